-- What was decided, of one job or of all, the newest first. Seconds are of the job's time.
-- Of: decisions. In observe mode nothing is taken.
SELECT fromUnixTimestamp64Nano(time_ns, 'UTC') AS time, job, attempt, incident, action, taken, mode, reason, price_s, loss_s
FROM decisions
WHERE {job:String} IN ('', job) AND {incident:String} IN ('', incident)
    AND time_ns >= {since_ns:Int64} AND time_ns < {until_ns:Int64}
ORDER BY time_ns DESC, incident, action
LIMIT 1000
