-- The names of some communicators of a job; empty where they have none.
SELECT communicator, max(name) AS name
FROM topology
WHERE job = {job:String} AND attempt = {attempt:Int32} AND communicator IN {communicators:Array(String)}
GROUP BY communicator
ORDER BY communicator
