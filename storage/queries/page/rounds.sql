-- The rounds kept around an incident, the longest first: when each began, how far apart its ranks came, what it took.
SELECT communicator, seq, any(op) AS op, count() AS calls, min(launch_ns) AS first_ns,
       (max(launch_ns) - min(launch_ns)) / 1e9 AS apart_s,
       (max(end_ns) - min(launch_ns)) / 1e9 AS took_s,
       argMax(rank, launch_ns) AS last_rank
FROM incident_calls
WHERE incident = {incident:String} AND launch_ns > 0
GROUP BY communicator, seq
HAVING calls > 1
ORDER BY took_s DESC, first_ns
LIMIT {most:UInt32}
