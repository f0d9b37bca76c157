-- Incidents as regions of a dashboard, of one job or of all: from the onset to the end; one that goes on ends with the view.
-- Of: fleet_incidents.
SELECT
    fromUnixTimestamp64Nano(onset_ns, 'UTC') AS time,
    fromUnixTimestamp64Nano(if(end_ns = 0, {until_ns:Int64}, end_ns), 'UTC') AS timeEnd,
    concat(kind, ' ', cause, ' in ', job) AS title,
    if(empty(culprits), 'nobody named', concat('ranks ', arrayStringConcat(arrayMap(rank -> toString(rank), culprits), ', '))) AS text,
    concat(kind, ',', cause) AS tags
FROM fleet_incidents
WHERE {job:String} IN ('', job) AND onset_ns < {until_ns:Int64} AND (end_ns = 0 OR end_ns >= {since_ns:Int64})
ORDER BY time, id
LIMIT 1000
