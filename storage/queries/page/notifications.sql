-- Which states of one incident somebody was told of, and when the first was.
SELECT state, min(sent_ns) AS sent_ns FROM notifications WHERE incident = {incident:String} AND state NOT IN ('grouped', 'ended') GROUP BY state ORDER BY sent_ns
