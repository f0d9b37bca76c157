-- What was said of an incident in turn: its versions, the oldest first.
-- Of: incidents.
SELECT fromUnixTimestamp64Nano(time_ns, 'UTC') AS time, version, state, ifNull(closed_why, '') AS why, kinds, culprits,
       excess_s AS lost_s, ranks
FROM incidents
WHERE id = {incident:String}
ORDER BY version
