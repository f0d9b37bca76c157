-- GPUs whose ranks were named as culprits, those that come back first. The UUID names the card, wherever it is put in.
-- Of: latest_findings with the verdict culprit, host_vitals (kept for 30 days: a finding without a reading of its GPU is
-- left out).
SELECT
    gpu,
    host,
    uniqExact(finding) AS findings,
    uniqExact(job, attempt) AS jobs,
    arraySort(groupUniqArrayIf(cause, cause != '')) AS causes,
    max(said_ns) AS last_ns
FROM
(
    SELECT id AS finding, job, attempt, cause, arrayJoin(culprits) AS rank, time_ns AS said_ns
    FROM latest_findings
    WHERE verdict = 'culprit' AND time_ns >= {since_ns:Int64} AND time_ns < {until_ns:Int64}
) AS named
INNER JOIN
(
    SELECT DISTINCT job, attempt, host, name AS gpu, arrayJoin(ranks) AS rank
    FROM stored_host_vitals
    WHERE kind = 'gpu'
        AND (job, attempt) IN (SELECT job, attempt FROM stored_findings WHERE verdict = 'culprit')
) AS read USING (job, attempt, rank)
GROUP BY gpu, host
ORDER BY findings DESC, last_ns DESC, gpu, host
