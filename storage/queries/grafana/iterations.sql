-- Iteration times of an attempt over time, in seconds: median and longest of each interval.
-- Of: iterations, planned ones left out.
SELECT
    toDateTime(intDiv(time_ns, {interval_s:Int64} * 1000000000) * {interval_s:Int64}, 'UTC') AS time,
    quantileExact(0.5)(step_time_s) AS median_s,
    max(step_time_s) AS longest_s
FROM stored_iterations
WHERE job = {job:String} AND attempt = {attempt:Int32} AND time_ns >= {since_ns:Int64} AND time_ns < {until_ns:Int64}
    AND step_time_s > 0 AND planned = ''
GROUP BY time
ORDER BY time
