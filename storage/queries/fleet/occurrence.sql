-- Falcon's table 1: runs by their ranks and by what slowed them down, with the mean delay of their completion.
-- Of: fleet_runs, fleet_incidents (slow and intermittent ones). `share` is of the runs of that scale; `mean_delay` is
-- relative: 0.35 is a run that took 35 % longer than it would have without its fail-slows. A run of two reasons is 'several'.
SELECT
    scale,
    multiIf(empty(found), 'no fail-slow', length(found) > 1, 'several', found[1]) AS reason,
    count() AS runs,
    runs / sum(runs) OVER (PARTITION BY scale) AS share,
    avg(delay) AS mean_delay
FROM
(
    SELECT scale, min_ranks, found, if(run_s > slow_s, slow_s / (run_s - slow_s), 0.) AS delay
    FROM
    (
        SELECT runs.job AS job, runs.attempt AS attempt, scale, world_size AS min_ranks, run_s, reasons AS found,
               taken_s AS slow_s
        FROM fleet_runs AS runs
        LEFT JOIN
        (
            SELECT job, attempt, arraySort(groupUniqArray(reason)) AS reasons, sum(lost_s) AS taken_s
            FROM fleet_incidents
            WHERE kind IN ('slow', 'intermittent') AND opened_ns < {until_ns:Int64}
            GROUP BY job, attempt
        ) AS slow ON slow.job = runs.job AND slow.attempt = runs.attempt
        WHERE last_ns >= {since_ns:Int64} AND first_ns < {until_ns:Int64} AND world_size > 0
    )
)
GROUP BY scale, reason
ORDER BY min(min_ranks), runs DESC, reason
