-- On which hosts the ranks of an attempt are.
-- Of: topology (the communicator of all ranks).
SELECT DISTINCT arrayJoin(host_ranks) AS rank, host
FROM topology
WHERE job = {job:String} AND attempt = {attempt:Int32} AND is_world
ORDER BY rank, host
