-- What statistics over all jobs are made of: a row per incident, and a row per run of a job.

-- The latest version of every incident with what its findings say. `kind`, `magnitude` and `reason` are those of the
-- finding that first names a cause, or of the first one; a cause that nobody named is 'not named'. `culprits` and
-- `link_ranks` are of findings with the verdict culprit alone. `duration_s` is empty while it goes on. `reason` is in
-- the words of Falcon's table 1, by what the host of the culprit said; `gpu_hours` are 0 where the job has no NCCL.
CREATE OR REPLACE VIEW fleet_incidents AS
WITH
    JSONExtract(
        event,
        'findings',
        'Array(Tuple(kind String, verdict String, cause Nullable(String), culprits Array(Int32), links Array(Array(Int32)), magnitude Nullable(Float64), onset Tuple(time_ns Int64), detected Tuple(time_ns Int64), relief Tuple(time_ns Int64), evidence Array(Tuple(kind String))))'
    ) AS findings,
    arrayFirst(finding -> finding.cause IS NOT NULL, findings) AS named,
    if(named.kind = '', findings[1], named) AS main,
    arrayFilter(finding -> finding.verdict = 'culprit', findings) AS proven,
    arrayMap(piece -> piece.kind, main.evidence) AS pieces,
    arrayFilter(at -> at > 0, arrayMap(finding -> finding.onset.time_ns, findings)) AS onsets_ns,
    arrayFilter(at -> at > 0, arrayMap(finding -> finding.detected.time_ns, findings)) AS detections_ns,
    arrayMap(finding -> finding.relief.time_ns, findings) AS reliefs_ns
SELECT
    latest.id AS id,
    latest.job AS job,
    latest.attempt AS attempt,
    state,
    opened_ns,
    fromUnixTimestamp64Nano(opened_ns, 'UTC') AS opened,
    ifNull(closed_why, '') AS closed_why,
    main.kind AS kind,
    ifNull(main.cause, 'not named') AS cause,
    multiIf(
        main.kind NOT IN ('slow', 'intermittent'), main.kind,
        hasAny(pieces, ['lacks_processor', 'crowded']), 'CPU contention',
        has(pieces, 'gpu'), 'GPU degradation',
        cause = 'S1', 'other computation',
        cause = 'S2', 'network congestion',
        cause = 'S3', 'several',
        'not named'
    ) AS reason,
    arraySort(arrayDistinct(arrayFlatten(arrayMap(finding -> finding.culprits, proven)))) AS culprits,
    arraySort(arrayDistinct(arrayFlatten(arrayMap(finding -> finding.links, proven)))) AS link_ranks,
    main.magnitude AS magnitude,
    if(empty(onsets_ns), opened_ns, arrayMin(onsets_ns)) AS onset_ns,
    if(empty(detections_ns), opened_ns, arrayMin(detections_ns)) AS detected_ns,
    if(has(reliefs_ns, 0), ifNull(closed_ns, 0), arrayMax(reliefs_ns)) AS end_ns,
    if(end_ns = 0, NULL, greatest(end_ns - onset_ns, 0) / 1e9) AS duration_s,
    excess_s AS lost_s,
    ranks,
    latest.gpu_hours AS rank_hours,
    if(is_on_gpus, rank_hours, 0.) AS gpu_hours
FROM latest_incidents AS latest
LEFT JOIN
(
    SELECT job, attempt, max(backend = 'nccl') AS is_on_gpus FROM stored_topology GROUP BY job, attempt
) AS known ON known.job = latest.job AND known.attempt = latest.attempt;

-- A run is one attempt of a job, from when it was first heard of to when it was last. `lost_s` is what its incidents
-- took of that time.
CREATE OR REPLACE VIEW fleet_runs AS
SELECT
    job,
    attempt,
    max(size) AS world_size,
    max(on_hosts) AS hosts,
    max(on_gpus) AS is_on_gpus,
    minIf(begun, begun > 0) AS first_ns,
    max(heard) AS last_ns,
    (last_ns - first_ns) / 1e9 AS run_s,
    max(lost) AS lost_s,
    max(found) AS incidents,
    multiIf(world_size <= 8, '1 to 8', world_size < 64, '9 to 63', world_size < 512, '64 to 511', '512 and more') AS scale
FROM
(
    SELECT job, attempt, max(world_size) AS size, toInt64(uniqExact(host)) AS on_hosts, max(backend = 'nccl') AS on_gpus,
           min(time_ns) AS begun, max(time_ns) AS heard, 0. AS lost, toInt64(0) AS found
    FROM stored_topology GROUP BY job, attempt
    UNION ALL
    SELECT job, attempt, 0, 0, 0, min(time_ns), max(time_ns), 0, 0 FROM stored_iterations GROUP BY job, attempt
    UNION ALL
    SELECT job, attempt, 0, 0, 0, min(opened_ns), max(time_ns), sum(excess_s), toInt64(count())
    FROM latest_incidents GROUP BY job, attempt
)
GROUP BY job, attempt;
