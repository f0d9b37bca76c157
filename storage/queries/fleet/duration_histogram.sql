-- Falcon's figure 1, right: how long slowness lasts, as counts per bucket and as a cumulative share. Each bucket is twice
-- as long as the one before, in seconds.
-- Of: fleet_incidents (slow and intermittent ones) that are over.
SELECT
    if(duration_s < 1, 0., exp2(floor(log2(duration_s)))) AS from_s,
    if(duration_s < 1, 1., exp2(floor(log2(duration_s)) + 1)) AS below_s,
    count() AS incidents,
    sum(incidents) OVER (ORDER BY from_s) / sum(incidents) OVER () AS share_shorter
FROM fleet_incidents
WHERE opened_ns >= {since_ns:Int64} AND opened_ns < {until_ns:Int64} AND duration_s IS NOT NULL
    AND kind IN ('slow', 'intermittent')
GROUP BY from_s, below_s
ORDER BY from_s
