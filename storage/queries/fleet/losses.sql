-- Rank-hours and GPU-hours lost per week (from Monday, UTC) and cause.
-- Of: fleet_incidents. Hours are excess time x ranks; a job without NCCL has no GPU-hours.
SELECT
    toStartOfWeek(opened, 1) AS week,
    cause,
    count() AS incidents,
    sum(rank_hours) AS rank_hours,
    sum(gpu_hours) AS gpu_hours
FROM fleet_incidents
WHERE opened_ns >= {since_ns:Int64} AND opened_ns < {until_ns:Int64}
GROUP BY week, cause
ORDER BY week, cause
