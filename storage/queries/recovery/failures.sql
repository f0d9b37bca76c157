-- Ranks that were lost in all jobs of this store, and for how long ranks were watched: what says when the next one fails.
-- Of: fleet_incidents (those in which a rank that left, or held its job up, is proven; without `incident`), topology,
-- iterations. An attempt that ended without a failure has been watched all the same: it is cut off, not left out.
SELECT
    (
        SELECT toInt64(sum(length(culprits))) FROM fleet_incidents
        WHERE kind IN ('exit', 'hang') AND id != {incident:String}
    ) AS n_failures,
    toFloat64(sum(world_size * (last_ns - first_ns) / 1e9)) AS rank_s,
    toInt64(count()) AS n_attempts
FROM
(
    SELECT job, attempt, max(world_size) AS world_size, min(first_ns) AS first_ns, max(last_ns) AS last_ns
    FROM
    (
        SELECT job, attempt, max(world_size) AS world_size, min(time_ns) AS first_ns, max(time_ns) AS last_ns
        FROM topology GROUP BY job, attempt
        UNION ALL
        SELECT job, attempt, toInt32(0), min(time_ns), max(time_ns) FROM iterations GROUP BY job, attempt
    )
    GROUP BY job, attempt
)
