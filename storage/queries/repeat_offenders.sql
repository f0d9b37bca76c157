-- Hosts and ranks that were named as culprits, by the latest version of each finding; those who come back first.
SELECT
    host,
    uniqExact(finding) AS findings,
    uniqExact(job, attempt) AS jobs,
    arraySort(groupUniqArray(rank)) AS ranks,
    arraySort(groupUniqArrayIf(cause, cause != '')) AS causes,
    max(said_ns) AS last_ns
FROM
(
    SELECT id AS finding, job, attempt, cause, arrayJoin(culprits) AS rank, time_ns AS said_ns
    FROM latest_findings
    WHERE verdict = 'culprit'
) AS named
LEFT JOIN
(
    SELECT DISTINCT job, attempt, host, arrayJoin(host_ranks) AS rank FROM topology WHERE is_world
) AS placed USING (job, attempt, rank)
GROUP BY host
ORDER BY findings DESC, last_ns DESC, host
