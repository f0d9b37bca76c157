-- What was read of processes of one attempt between two times (ns): stacks, kernel lines, who had the processor.
SELECT host, rank, reason, doing, taken_by, frames, libraries, kernel_log, time_ns
FROM host_evidence
WHERE job = {job:String} AND attempt = {attempt:Int32}
    AND time >= fromUnixTimestamp64Nano({from_ns:Int64}) AND time <= fromUnixTimestamp64Nano({until_ns:Int64})
ORDER BY rank, time_ns
LIMIT 1000
