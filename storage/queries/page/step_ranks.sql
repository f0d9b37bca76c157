-- Of each recorded step and rank: how much longer it computed than the median of its pipeline stage in that step.
-- 0.5 is half as long again. Operations are kept for two days; of older windows there are no rows.
SELECT step, rank, computing_s / greatest(median(computing_s) OVER (PARTITION BY step, stage), 1e-9) - 1 AS longer
FROM
(
    SELECT step, rank, min(stage) AS stage, sum(end_ns - start_ns) / 1e9 AS computing_s
    FROM operations
    WHERE job = {job:String} AND attempt = {attempt:Int32} AND step >= {first:Int64} AND step <= {until:Int64}
        AND optype IN ('forward-compute', 'backward-compute') AND start_ns > 0 AND end_ns > start_ns
    GROUP BY step, rank
)
ORDER BY rank, step
LIMIT 1000000
