-- How long earlier incidents of a kind and cause lasted, in seconds, where, and at which hour of the day (UTC).
-- Of: fleet_incidents but `incident`, opened before `before_ns`. `has_ended` is false where it had not ended when it was last
-- seen: it goes on, or its job ended, or nobody watched any longer. `hosts` are those of the ranks that were named.
SELECT
    duration_s,
    has_ended,
    hour,
    arraySort(groupUniqArrayIf(host, host != '')) AS hosts
FROM
(
    SELECT found.id AS id, found.job AS job, found.attempt AS attempt, onset_ns,
           greatest(if(end_ns = 0, latest.time_ns, end_ns) - onset_ns, 0) / 1e9 AS duration_s,
           found.state = 'relieved' OR found.closed_why = 'relieved' AS has_ended,
           toUInt8(intDiv(onset_ns, 3600000000000) % 24) AS hour,
           arrayJoin(if(empty(culprits) AND empty(link_ranks), [-1], arrayConcat(culprits, link_ranks))) AS rank
    FROM fleet_incidents AS found
    INNER JOIN (SELECT id, time_ns FROM latest_incidents) AS latest ON latest.id = found.id
    WHERE kind = {kind:String} AND cause = {cause:String} AND found.id != {incident:String}
        AND opened_ns < {before_ns:Int64}
) AS earlier
LEFT JOIN
(
    SELECT DISTINCT job, attempt, host, arrayJoin(host_ranks) AS rank FROM topology WHERE is_world
) AS placed USING (job, attempt, rank)
GROUP BY id, duration_s, has_ended, hour
ORDER BY duration_s, id
LIMIT 100000
