-- Jobs for a variable of a dashboard: the name, and its bytes in hexadecimal, which no quote can end.
-- Of: fleet_runs. The one that was heard of last comes first.
SELECT job AS __text, hex(job) AS __value
FROM fleet_runs
WHERE last_ns >= {since_ns:Int64} AND first_ns < {until_ns:Int64}
GROUP BY job
ORDER BY max(last_ns) DESC, job
LIMIT 1000
