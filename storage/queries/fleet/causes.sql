-- Incidents by month, kind and cause: how many, in how many jobs, and the rank-hours and GPU-hours that they took.
-- Of: fleet_incidents. Hours are excess time x ranks; a job without NCCL has no GPU-hours.
SELECT
    toStartOfMonth(opened) AS month,
    kind,
    cause,
    count() AS incidents,
    uniqExact(job, attempt) AS runs,
    sum(rank_hours) AS lost_rank_hours,
    sum(gpu_hours) AS lost_gpu_hours
FROM fleet_incidents
WHERE opened_ns >= {since_ns:Int64} AND opened_ns < {until_ns:Int64}
GROUP BY month, kind, cause
ORDER BY month, incidents DESC, kind, cause
