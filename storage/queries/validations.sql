-- What was measured of the ranks of jobs, the last validation of each attempt first. `job`: '' for all. Of: validations.
SELECT event_id, job, attempt, ranks, hosts, verdict, measured, ratio, reason, time_ns
FROM validations
WHERE {job:String} = '' OR job = {job:String}
ORDER BY time_ns DESC, event_id, ranks
LIMIT 100000
