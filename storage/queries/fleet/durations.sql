-- How long incidents last, by kind and cause: mean and percentiles in seconds, from the onset to the end.
-- Of: fleet_incidents that are over. `go_on` counts those that are not.
SELECT
    kind,
    cause,
    countIf(duration_s IS NOT NULL) AS incidents,
    countIf(duration_s IS NULL) AS go_on,
    avg(duration_s) AS mean_s,
    quantileExactOrNull(0.1)(duration_s) AS p10_s,
    quantileExactOrNull(0.25)(duration_s) AS p25_s,
    quantileExactOrNull(0.5)(duration_s) AS p50_s,
    quantileExactOrNull(0.75)(duration_s) AS p75_s,
    quantileExactOrNull(0.9)(duration_s) AS p90_s,
    quantileExactOrNull(0.99)(duration_s) AS p99_s
FROM fleet_incidents
WHERE opened_ns >= {since_ns:Int64} AND opened_ns < {until_ns:Int64}
GROUP BY kind, cause
ORDER BY incidents DESC, kind, cause
