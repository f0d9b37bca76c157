-- One round over all its ranks: times in ns.
-- From the calls that are kept for the incident, or, while there are none, from those of its job in that time.
-- Digests of iterations are no rounds.
SELECT rank, any(host) AS host, any(op) AS op, any(`count`) AS elements, any(dtype) AS dtype, any(algorithm) AS algorithm,
       any(protocol) AS protocol, min(launch_ns) AS launch, max(start_ns) AS start, max(end_ns) AS end
FROM
(
    SELECT communicator, seq, rank, host, op, `count`, dtype, algorithm, protocol, launch_ns, start_ns, end_ns
    FROM incident_calls
    WHERE {kept:Bool} AND incident = {incident:String} AND NOT endsWith(source, ' digests') AND communicator = {communicator:String} AND seq = {seq:Int64}
    UNION ALL
    SELECT communicator, seq, rank, host, op, `count`, dtype, algorithm, protocol, launch_ns, start_ns, end_ns
    FROM calls
    WHERE NOT {kept:Bool} AND job = {job:String} AND attempt = {attempt:Int32} AND NOT endsWith(source, ' digests')
        AND time >= fromUnixTimestamp64Nano({from_ns:Int64}) AND time <= fromUnixTimestamp64Nano({until_ns:Int64}) AND communicator = {communicator:String} AND seq = {seq:Int64}
)
GROUP BY rank
ORDER BY rank
LIMIT 20000
