-- The attempts of a job, the last one first.
SELECT attempt FROM fleet_runs WHERE job = {job:String} ORDER BY attempt DESC
