-- One round over all its ranks, from what is kept for an incident: times in ns.
SELECT rank, any(host) AS host, any(op) AS op, any(`count`) AS elements, any(dtype) AS dtype, any(algorithm) AS algorithm,
       any(protocol) AS protocol, min(launch_ns) AS launch, max(start_ns) AS start, max(end_ns) AS end
FROM incident_calls
WHERE incident = {incident:String} AND communicator = {communicator:String} AND seq = {seq:Int64}
GROUP BY rank
ORDER BY rank
LIMIT 20000
