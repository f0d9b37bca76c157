-- Over which time calls are kept for an incident, and what there is: ns, and how many calls.
SELECT min(launch_ns) AS first_ns, max(greatest(launch_ns, end_ns)) AS last_ns, count() AS calls,
       uniqExact(communicator) AS communicators, uniqExact(rank) AS ranks
FROM stored_incident_calls
WHERE incident = {incident:String}
