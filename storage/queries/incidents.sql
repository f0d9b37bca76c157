-- The latest version of every incident, newest first. `job`: '' for all.
SELECT id, job, attempt, version, state, opened_ns, closed_ns, closed_why, kinds, culprits, gpu_hours, event
FROM latest_incidents
WHERE {job:String} = '' OR job = {job:String}
ORDER BY opened_ns DESC, id
