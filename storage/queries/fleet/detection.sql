-- How long it takes until an incident is noticed, opened and told, by kind and cause: from its onset, in seconds.
-- Of: fleet_incidents, notifications. It is noticed with the last step that had been seen when it was first said; opened
-- once it has lasted and cost enough; told where somebody was told of it.
SELECT
    kind,
    cause,
    count() AS incidents,
    quantileExact(0.5)(noticed_s) AS noticed_p50_s,
    quantileExact(0.9)(noticed_s) AS noticed_p90_s,
    max(noticed_s) AS noticed_most_s,
    quantileExact(0.5)(opened_s) AS opened_p50_s,
    quantileExact(0.9)(opened_s) AS opened_p90_s,
    count(told_s) AS told,
    quantileExact(0.5)(told_s) AS told_p50_s
FROM
(
    SELECT kind, cause, (detected_ns - onset_ns) / 1e9 AS noticed_s, (opened_ns - onset_ns) / 1e9 AS opened_s,
           if(first_ns = 0, NULL, (first_ns - onset_ns) / 1e9) AS told_s
    FROM fleet_incidents
    LEFT JOIN
    (
        SELECT incident, min(sent_ns) AS first_ns FROM notifications WHERE state = 'open' GROUP BY incident
    ) AS sent ON sent.incident = id
    WHERE opened_ns >= {since_ns:Int64} AND opened_ns < {until_ns:Int64}
)
GROUP BY kind, cause
ORDER BY incidents DESC, kind, cause
