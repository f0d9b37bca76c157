-- Iteration times of one attempt from step `first` on and before step `until`, `width` steps a row; in seconds.
SELECT
    intDiv(step, {width:Int64}) * {width:Int64} AS first_step,
    count() AS steps,
    min(step_time_s) AS shortest_s,
    quantileExact(0.5)(step_time_s) AS median_s,
    max(step_time_s) AS longest_s,
    max(time_ns) AS end_ns,
    anyIf(planned, planned != '') AS pause
FROM stored_iterations
WHERE job = {job:String} AND attempt = {attempt:Int32} AND step >= {first:Int64} AND step < {until:Int64}
    AND step_time_s > 0
GROUP BY first_step
ORDER BY first_step
