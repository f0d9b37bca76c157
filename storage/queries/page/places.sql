-- The communicators of one attempt: their members in order, and on which host each rank is.
SELECT communicator, any(name) AS name, any(backend) AS backend, max(is_world) AS is_world,
       maxForEach(members) AS members, groupArray(host) AS hosts, groupArray(host_ranks) AS ranks_of_hosts
FROM topology
WHERE job = {job:String} AND attempt = {attempt:Int32}
GROUP BY communicator
ORDER BY is_world DESC, length(members) DESC, communicator
LIMIT 20000
