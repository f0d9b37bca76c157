-- The longest rounds around an incident: when each began (ns), how far apart its ranks came, what it took (s).
-- From the calls that are kept for the incident, or, while there are none, from those of its job in that time.
-- Digests of iterations are no rounds.
SELECT communicator, seq, any(op) AS op, count() AS calls, min(launch_ns) AS first_ns,
       (max(launch_ns) - min(launch_ns)) / 1e9 AS apart_s,
       (max(end_ns) - min(launch_ns)) / 1e9 AS took_s,
       argMax(rank, launch_ns) AS last_rank
FROM
(
    SELECT communicator, seq, rank, host, op, `count`, dtype, algorithm, protocol, launch_ns, start_ns, end_ns
    FROM incident_calls
    WHERE {kept:Bool} AND incident = {incident:String} AND NOT endsWith(source, ' digests')
    UNION ALL
    SELECT communicator, seq, rank, host, op, `count`, dtype, algorithm, protocol, launch_ns, start_ns, end_ns
    FROM calls
    WHERE NOT {kept:Bool} AND job = {job:String} AND attempt = {attempt:Int32} AND NOT endsWith(source, ' digests')
        AND time >= fromUnixTimestamp64Nano({from_ns:Int64}) AND time <= fromUnixTimestamp64Nano({until_ns:Int64})
)
WHERE launch_ns > 0
GROUP BY communicator, seq
HAVING calls > 1
ORDER BY took_s DESC, first_ns
LIMIT {most:UInt32}
