-- What a recovery has brought: the middle iteration of the last before a moment and of the first after it, in seconds, how many
-- those are, and for how long none had ended. The first one after it is left out of the pace: it has waited, and warms up.
-- Of: iterations.
WITH
    steps AS
    (
        SELECT step, max(step_time_s) AS took_s, max(time_ns) AS end_ns, max(planned) AS pause
        FROM iterations
        WHERE job = {job:String} AND attempt = {attempt:Int32}
        GROUP BY step
    ),
    before AS
    (
        SELECT took_s, end_ns FROM steps WHERE end_ns <= {at_ns:Int64} AND pause = '' ORDER BY end_ns DESC LIMIT 20
    ),
    after AS
    (
        SELECT took_s, end_ns FROM steps WHERE end_ns > {at_ns:Int64} AND pause = '' ORDER BY end_ns LIMIT 20 OFFSET 1
    )
SELECT
    toInt64((SELECT count() FROM before)) AS n_before,
    toInt64((SELECT count() FROM after)) AS n_after,
    (SELECT if(count() = 0, 0., quantileExact(0.5)(took_s)) FROM before WHERE took_s > 0) AS before_s,
    (SELECT if(count() = 0, 0., quantileExact(0.5)(took_s)) FROM after WHERE took_s > 0) AS after_s,
    (
        SELECT greatest((minIf(end_ns, end_ns > {at_ns:Int64}) - maxIf(end_ns, end_ns <= {at_ns:Int64})) / 1e9, 0.)
        FROM steps
    ) AS down_s
