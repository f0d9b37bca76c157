-- For each rank and slice of time around an incident: the share of its time that it spent in collective calls.
-- Whoever is late for its peers spends least: the others wait inside the call for it.
SELECT
    rank,
    toInt32(intDiv(launch_ns - {from_ns:Int64}, {slice_ns:Int64})) AS slice,
    sum(end_ns - if(start_ns > 0, start_ns, launch_ns)) / {slice_ns:Int64} AS share
FROM incident_calls
WHERE incident = {incident:String} AND end_ns > 0 AND greatest(start_ns, launch_ns) > 0
    AND launch_ns >= {from_ns:Int64} AND launch_ns < {from_ns:Int64} + {slices:Int64} * {slice_ns:Int64}
GROUP BY rank, slice
ORDER BY rank, slice
