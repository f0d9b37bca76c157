-- Verified changes of the level of one attempt's iteration time.
SELECT at_step, at_ns, before_s, after_s, magnitude, probability
FROM changepoints
WHERE job = {job:String} AND attempt = {attempt:Int32} AND series = 'iteration'
ORDER BY at_ns
LIMIT 1000
