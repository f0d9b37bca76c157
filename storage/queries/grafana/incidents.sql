-- Incidents, of one job or of all, the newest first: what, who, since when, and what it has cost.
-- Of: fleet_incidents. `duration_s` is empty while it goes on.
SELECT
    opened, state, job, attempt, kind, cause, culprits, link_ranks, magnitude, duration_s, lost_s, rank_hours, gpu_hours, id
FROM fleet_incidents
WHERE {job:String} IN ('', job) AND opened_ns >= {since_ns:Int64} AND opened_ns < {until_ns:Int64}
ORDER BY opened_ns DESC, id
LIMIT 1000
