-- What stragglers cost one attempt, by window of recorded steps: what each worker, stage or type of operation would give back.
SELECT first_step, last_step, n_steps, what, name, ranks, step_time_s, gain, recorded_s, original_s, ideal_s, slowdown,
       waste, discrepancy, patterns
FROM prices
WHERE job = {job:String} AND attempt = {attempt:Int32}
ORDER BY first_step, what, name
LIMIT 50000
