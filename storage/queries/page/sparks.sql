-- The shape of some attempts' iteration times: medians of points of `widths` steps each, in seconds. Of many steps every
-- eighth of a point is looked at.
SELECT job, attempt, groupArray(median_s) AS points
FROM
(
    SELECT job, attempt, intDiv(step, width) AS point, quantileExact(0.5)(step_time_s) AS median_s
    FROM stored_iterations
    INNER JOIN
    (
        SELECT one.1 AS job, one.2 AS attempt, one.3 AS width
        FROM (SELECT arrayJoin(arrayZip({jobs:Array(String)}, {attempts:Array(Int32)}, {widths:Array(Int64)})) AS one)
    ) AS asked USING (job, attempt)
    WHERE step % intDiv(width + 7, 8) = 0 AND step_time_s > 0
    GROUP BY job, attempt, point
    ORDER BY job, attempt, point
)
GROUP BY job, attempt
