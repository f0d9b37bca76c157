-- Hosts and ranks that were named as culprits, by the latest version of each finding; those who come back first.
-- Of: latest_findings with the verdict culprit, topology. `as_link_end` counts findings that name a link of the host: the
-- other end may be the one at fault.
SELECT
    host,
    uniqExactIf(finding, NOT is_link) AS findings,
    uniqExactIf(finding, is_link) AS as_link_end,
    uniqExact(job, attempt) AS jobs,
    arraySort(groupUniqArray(rank)) AS ranks,
    arraySort(groupUniqArrayIf(cause, cause != '')) AS causes,
    max(said_ns) AS last_ns
FROM
(
    SELECT id AS finding, job, attempt, cause, who.1 AS rank, who.2 AS is_link, time_ns AS said_ns
    FROM latest_findings
    ARRAY JOIN
        arrayConcat(
            arrayMap(rank -> (rank, false), culprits),
            arrayMap(rank -> (rank, true), arrayConcat(links.1, links.2))
        ) AS who
    WHERE verdict = 'culprit' AND time_ns >= {since_ns:Int64} AND time_ns < {until_ns:Int64}
) AS named
LEFT JOIN
(
    SELECT DISTINCT job, attempt, host, arrayJoin(host_ranks) AS rank FROM topology WHERE is_world
) AS placed USING (job, attempt, rank)
GROUP BY host
ORDER BY findings DESC, as_link_end DESC, last_ns DESC, host
