-- Rank-hours lost per week and cause, from the latest version of every incident.
SELECT
    toStartOfWeek(fromUnixTimestamp64Nano(opened_ns), 1) AS week,
    arrayFirst(cause -> cause != '', arrayPushBack(causes, 'not named')) AS cause,
    count() AS incidents,
    sum(gpu_hours) AS rank_hours
FROM
(
    SELECT id, opened_ns, gpu_hours, JSONExtract(event, 'findings', 'Array(Tuple(cause Nullable(String)))') AS found,
           arrayMap(one -> ifNull(one.1, ''), found) AS causes
    FROM latest_incidents
)
GROUP BY week, cause
ORDER BY week, cause
