-- The shape of some attempts' iteration times, each in about sixty points of equally many steps: medians, in seconds.
SELECT job, attempt, groupArray(median_s) AS points
FROM
(
    SELECT job, attempt, point, quantileTDigest(0.5)(step_time_s) AS median_s
    FROM
    (
        SELECT job, attempt, step_time_s,
               intDiv(step * 60, 1 + max(step) OVER (PARTITION BY job, attempt)) AS point
        FROM stored_iterations
        WHERE (job, attempt) IN (SELECT arrayJoin(arrayZip({jobs:Array(String)}, {attempts:Array(Int32)})) AS one)
            AND step_time_s > 0
    )
    GROUP BY job, attempt, point
    ORDER BY job, attempt, point
)
GROUP BY job, attempt
