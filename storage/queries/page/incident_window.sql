-- The calls around an incident: over which time they were launched or ended (ns), how many there are, and of how many ranks.
-- From the calls that are kept for the incident, or, while there are none, from those of its job in that time.
-- Calls behind digests of iterations are left out: the digests say the same of more time.
SELECT min(launch_ns) AS first_ns, max(greatest(launch_ns, end_ns)) AS last_ns, count() AS calls, uniqExact(rank) AS ranks
FROM
(
    SELECT communicator, seq, rank, host, op, `count`, dtype, algorithm, protocol, launch_ns, start_ns, end_ns
    FROM incident_calls
    WHERE {kept:Bool} AND incident = {incident:String} AND NOT endsWith(source, ' kept')
    UNION ALL
    SELECT communicator, seq, rank, host, op, `count`, dtype, algorithm, protocol, launch_ns, start_ns, end_ns
    FROM calls
    WHERE NOT {kept:Bool} AND job = {job:String} AND attempt = {attempt:Int32} AND NOT endsWith(source, ' kept')
        AND time >= fromUnixTimestamp64Nano({from_ns:Int64}) AND time <= fromUnixTimestamp64Nano({until_ns:Int64})
)
