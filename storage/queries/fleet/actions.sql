-- What actions did to the iteration time: its median before the onset, from there to the action, and after it, in seconds.
-- Of: decisions that were taken, fleet_incidents, iterations. The times before and after reach half an hour. `recovered` is
-- the share of the slowdown that was gone after the action: 1 is all of it, 0 nothing, below 0 it became worse; empty where
-- the incident had made nothing slower. Slowness that went away by itself in that half hour counts, too:
-- `relieved_after_s` says how long after the action it ended; empty while it goes on.
WITH 1800000000000 AS half_hour_ns
SELECT
    incident,
    job,
    attempt,
    kind,
    cause,
    action,
    acted_ns,
    quantileExactIf(0.5)(step_time_s, time_ns < onset_ns) AS usual_s,
    quantileExactIf(0.5)(step_time_s, time_ns >= onset_ns AND time_ns < acted_ns) AS before_s,
    quantileExactIf(0.5)(step_time_s, time_ns >= acted_ns) AS after_s,
    if(before_s > usual_s, (before_s - after_s) / (before_s - usual_s), NULL) AS recovered,
    if(end_ns = 0, NULL, (end_ns - acted_ns) / 1e9) AS relieved_after_s
FROM
(
    SELECT decided.incident AS incident, decided.job AS job, decided.attempt AS attempt, kind, cause, action, onset_ns, end_ns,
           decided.time_ns AS acted_ns
    FROM decisions AS decided
    INNER JOIN fleet_incidents AS found ON found.id = decided.incident
    WHERE taken AND decided.time_ns >= {since_ns:Int64} AND decided.time_ns < {until_ns:Int64}
) AS acted
INNER JOIN
(
    SELECT job, attempt, time_ns, step_time_s
    FROM stored_iterations
    WHERE step_time_s > 0 AND planned = '' AND (job, attempt) IN (SELECT job, attempt FROM stored_decisions WHERE taken)
) AS steps USING (job, attempt)
WHERE time_ns >= onset_ns - half_hour_ns AND time_ns < acted_ns + half_hour_ns
GROUP BY incident, job, attempt, kind, cause, action, acted_ns, end_ns
ORDER BY acted_ns DESC, incident, action
