-- Every job and attempt, or those of one job: its size, when it was heard of, how fast it goes, what it has lost.
-- `has_ended`: each of its hosts said so. Times in seconds or ns since 1970. The newest first.
SELECT
    job,
    attempt,
    max(ranks) AS world_size,
    max(on_hosts) AS hosts,
    max(on_gpus) AS is_on_gpus,
    max(ended) >= max(on_hosts) AND max(on_hosts) > 0 AS has_ended,
    max(first) AS first_step,
    max(last) AS last_step,
    max(found) AS incidents,
    max(open) AS open_incidents,
    max(excess) AS lost_s,
    max(hours) AS lost_rank_hours,
    minIf(begun, begun > 0) AS first_ns,
    max(heard) AS last_ns
FROM
(
    SELECT job, attempt, max(world_size) AS ranks, toInt64(uniqExact(host)) AS on_hosts, max(backend = 'nccl') AS on_gpus,
           toInt64(0) AS ended, toInt64(-1) AS first, toInt64(-1) AS last, toInt64(0) AS found,
           toInt64(0) AS open, 0. AS excess, 0. AS hours, min(time_ns) AS begun, max(time_ns) AS heard
    FROM stored_topology WHERE {job:String} IN ('', job) GROUP BY job, attempt
    UNION ALL
    SELECT job, attempt, 0, 0, 0, toInt64(uniqExact(host)), -1, -1, 0, 0, 0, 0, min(time_ns), max(time_ns)
    FROM stored_host_samples WHERE closed AND {job:String} IN ('', job) GROUP BY job, attempt
    UNION ALL
    SELECT job, attempt, 0, 0, 0, 0, min(step), max(step), 0, 0, 0, 0, min(time_ns), max(time_ns)
    FROM stored_iterations WHERE {job:String} IN ('', job) GROUP BY job, attempt
    UNION ALL
    SELECT job, attempt, 0, 0, 0, 0, -1, -1, toInt64(count()), toInt64(countIf(state = 'open')), sum(excess_s),
           sum(gpu_hours), min(opened_ns), max(time_ns)
    FROM latest_incidents WHERE {job:String} IN ('', job) GROUP BY job, attempt
)
GROUP BY job, attempt
ORDER BY last_ns DESC, job, attempt
LIMIT {most:UInt32}
