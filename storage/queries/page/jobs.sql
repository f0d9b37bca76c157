-- Every job and attempt, or those of one job: its size, when it was heard of, how fast it goes, what it has lost.
-- `has_ended`: each of its hosts said so. Times in seconds or ns since 1970. The newest first.
SELECT
    job,
    attempt,
    max(world_size) AS world_size,
    max(hosts) AS hosts,
    max(is_on_gpus) AS is_on_gpus,
    max(ended) >= max(hosts) AND max(hosts) > 0 AS has_ended,
    max(first_step) AS first_step,
    max(last_step) AS last_step,
    max(step_time_s) AS step_time_s,
    max(incidents) AS incidents,
    max(open_incidents) AS open_incidents,
    max(lost_s) AS lost_s,
    max(lost_rank_hours) AS lost_rank_hours,
    minIf(first_ns, first_ns > 0) AS first_ns,
    max(last_ns) AS last_ns
FROM
(
    SELECT job, attempt, max(world_size) AS world_size, toInt64(uniqExact(host)) AS hosts,
           max(backend = 'nccl') AS is_on_gpus, toInt64(0) AS ended, toInt64(-1) AS first_step, toInt64(-1) AS last_step,
           0. AS step_time_s, toInt64(0) AS incidents, toInt64(0) AS open_incidents, 0. AS lost_s, 0. AS lost_rank_hours,
           min(time_ns) AS first_ns, max(time_ns) AS last_ns
    FROM stored_topology WHERE {job:String} IN ('', job) GROUP BY job, attempt
    UNION ALL
    SELECT job, attempt, 0, 0, 0, toInt64(uniqExact(host)), -1, -1, 0, 0, 0, 0, 0, min(time_ns), max(time_ns)
    FROM stored_host_samples WHERE closed AND {job:String} IN ('', job) GROUP BY job, attempt
    UNION ALL
    -- The first sample of a job has no iteration before it and a time of zero.
    SELECT job, attempt, 0, 0, 0, 0, min(step), max(step),
           if(countIf(step_time_s > 0) = 0, 0., quantileTDigestIf(0.5)(step_time_s, step_time_s > 0)),
           0, 0, 0, 0, min(time_ns), max(time_ns)
    FROM stored_iterations WHERE {job:String} IN ('', job) GROUP BY job, attempt
    UNION ALL
    SELECT job, attempt, 0, 0, 0, 0, -1, -1, 0, toInt64(count()), toInt64(countIf(state = 'open')), sum(excess_s),
           sum(gpu_hours), min(opened_ns), max(time_ns)
    FROM latest_incidents WHERE {job:String} IN ('', job) GROUP BY job, attempt
)
GROUP BY job, attempt
ORDER BY last_ns DESC, job, attempt
LIMIT {most:UInt32}
