-- How often: incidents by kind and cause, per run and per 1,000 hours of a rank, over all runs that were watched.
-- Of: fleet_incidents, fleet_runs. `rank_hours_between` is the mean time between two of them on one rank, in hours.
WITH
    (
        SELECT (count(), sum(world_size * run_s) / 3600)
        FROM fleet_runs
        WHERE last_ns >= {since_ns:Int64} AND first_ns < {until_ns:Int64}
    ) AS watched
SELECT
    kind,
    cause,
    count() AS incidents,
    incidents / watched.1 AS per_run,
    incidents / watched.2 * 1000 AS per_1000_rank_hours,
    watched.2 / incidents AS rank_hours_between
FROM fleet_incidents
WHERE opened_ns >= {since_ns:Int64} AND opened_ns < {until_ns:Int64}
GROUP BY kind, cause
ORDER BY incidents DESC, kind, cause
