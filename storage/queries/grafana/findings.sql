-- What is known of an incident: the findings of its latest version, with their evidence as sentences.
-- Of: latest_incidents. Ranks are world ranks.
SELECT
    finding.1 AS kind,
    finding.2 AS verdict,
    ifNull(finding.3, 'not named') AS cause,
    finding.4 AS culprits,
    finding.5 AS links,
    finding.6 AS magnitude,
    arrayStringConcat(arrayMap(piece -> piece.1, finding.7), '\n') AS evidence,
    arrayStringConcat(finding.8, '\n') AS unseen
FROM
(
    SELECT arrayJoin(
        JSONExtract(
            event,
            'findings',
            'Array(Tuple(kind String, verdict String, cause Nullable(String), culprits Array(Int32), links Array(Array(Int32)), magnitude Nullable(Float64), evidence Array(Tuple(words String)), unseen Array(String)))'
        )
    ) AS finding
    FROM latest_incidents
    WHERE id = {incident:String}
)
