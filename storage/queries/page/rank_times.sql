-- For each rank and slice of time around an incident: the share of its time that it spent in collective calls.
-- Whoever is late for its peers spends least: the others wait inside the call for it.
-- From the calls that are kept for the incident, or, while there are none, from those of its job in that time.
-- Calls behind digests of iterations are left out: the digests say the same of more time.
SELECT
    rank,
    toInt32(intDiv(launch_ns - {first_ns:Int64}, {slice_ns:Int64})) AS slice,
    sum(end_ns - if(start_ns > 0, start_ns, launch_ns)) / {slice_ns:Int64} AS share
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
WHERE end_ns > 0 AND greatest(start_ns, launch_ns) > 0
    AND launch_ns >= {first_ns:Int64} AND launch_ns < {first_ns:Int64} + {slices:Int64} * {slice_ns:Int64}
GROUP BY rank, slice
ORDER BY rank, slice
