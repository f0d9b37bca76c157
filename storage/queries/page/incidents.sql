-- The latest version of every incident of one job, or of all, newest first; `event` is all of it.
SELECT event
FROM latest_incidents
WHERE {job:String} IN ('', job)
ORDER BY opened_ns DESC, id
LIMIT {most:UInt32}
