-- Every job and attempt: its size, when it was seen, how fast it goes, what is wrong.
SELECT
    job,
    attempt,
    max(world_size) AS world_size,
    sum(hosts) AS hosts,
    sum(iterations) AS iterations,
    max(median_step_time_s) AS median_step_time_s,
    sum(incidents) AS incidents,
    sum(open_incidents) AS open_incidents,
    sum(gpu_hours) AS lost_gpu_hours,
    min(first_ns) AS first_ns,
    max(last_ns) AS last_ns
FROM
(
    SELECT job, attempt, max(world_size) AS world_size, toInt64(uniqExact(host)) AS hosts, toInt64(0) AS iterations,
           toFloat64(0) AS median_step_time_s, toInt64(0) AS incidents, toInt64(0) AS open_incidents,
           toFloat64(0) AS gpu_hours, min(time_ns) AS first_ns, max(time_ns) AS last_ns
    FROM topology GROUP BY job, attempt
    UNION ALL
    -- The first sample of a job has no iteration before it and a time of zero.
    SELECT job, attempt, toInt32(0), toInt64(0), toInt64(uniqExact(step)),
           if(countIf(step_time_s > 0) = 0, 0., quantileExactIf(0.5)(step_time_s, step_time_s > 0)),
           toInt64(0), toInt64(0), toFloat64(0), min(time_ns), max(time_ns)
    FROM iterations GROUP BY job, attempt
    UNION ALL
    SELECT job, attempt, toInt32(0), toInt64(0), toInt64(0), toFloat64(0),
           toInt64(count()), toInt64(countIf(state = 'open')), sum(gpu_hours), min(opened_ns), max(time_ns)
    FROM latest_incidents GROUP BY job, attempt
)
GROUP BY job, attempt
ORDER BY last_ns DESC, job, attempt
