-- Iteration times of one job, in order.
SELECT attempt, communicator, step, step_time_s, time_ns, boundary, planned, ranks, ends_ns
FROM iterations
WHERE job = {job:String}
ORDER BY attempt, step, communicator
