-- Falcon's figure 1, center: by how much incidents delayed each run, the most delayed first.
-- Of: fleet_runs. `delay` is relative to the time that the run would have taken without them: 0.35 is 35 % longer.
SELECT
    job,
    attempt,
    world_size,
    hosts,
    incidents,
    run_s,
    lost_s,
    if(run_s > lost_s, lost_s / (run_s - lost_s), NULL) AS delay
FROM fleet_runs
WHERE last_ns >= {since_ns:Int64} AND first_ns < {until_ns:Int64} AND incidents > 0
ORDER BY delay IS NULL DESC, delay DESC, job, attempt
LIMIT 1000
