-- What a job's own history says of prices, in seconds: by how much its last checkpoint and the shortest of its holds made an
-- iteration longer than the usual one of its attempt, and its last restart; empty where there was none. An attempt that
-- began more than an hour after the one before was begun by somebody who had gone away, and is no restart.
-- Of: iterations. `heard_ns` is its last iteration, `checkpoint_ns` the end of the last with a checkpoint in this attempt.
WITH
    (
        SELECT max(attempt) FROM stored_iterations WHERE job = {job:String}
    ) AS last_attempt,
    steps AS
    (
        SELECT attempt, step, max(step_time_s) AS took_s, max(time_ns) AS end_ns, max(planned) AS pause
        FROM iterations
        WHERE job = {job:String}
        GROUP BY attempt, step
    ),
    usual AS
    (
        SELECT attempt, quantileExact(0.5)(took_s) AS usual_s
        FROM steps
        WHERE took_s > 0 AND pause = ''
        GROUP BY attempt
    ),
    pauses AS
    (
        SELECT attempt, end_ns, pause, greatest(took_s - usual_s, 0.) AS more_s
        FROM steps
        INNER JOIN usual USING (attempt)
        WHERE pause != '' AND took_s > 0
    ),
    runs AS
    (
        SELECT attempt, min(end_ns) AS first_ns, max(end_ns) AS last_ns FROM steps GROUP BY attempt
    )
SELECT
    (SELECT max(last_ns) FROM runs) AS heard_ns,
    (
        SELECT if(count() = 0, NULL, argMax(more_s, end_ns)) FROM pauses WHERE pause = 'checkpoint'
    ) AS checkpoint_s,
    (
        SELECT if(count() = 0, NULL, max(end_ns)) FROM pauses WHERE pause = 'checkpoint' AND attempt = last_attempt
    ) AS checkpoint_ns,
    (SELECT if(count() = 0, NULL, min(more_s)) FROM pauses WHERE pause = 'hold') AS hold_s,
    (
        SELECT if(count() = 0, NULL, argMax((later.first_ns - earlier.last_ns) / 1e9, later.attempt))
        FROM runs AS later
        INNER JOIN (SELECT attempt + 1 AS attempt, last_ns FROM runs) AS earlier ON earlier.attempt = later.attempt
        WHERE later.first_ns > earlier.last_ns AND later.first_ns - earlier.last_ns < 3600000000000
    ) AS restart_s
