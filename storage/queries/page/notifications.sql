-- Who was told of which state of one incident, and when.
SELECT state, sent_ns FROM notifications WHERE incident = {incident:String} ORDER BY sent_ns
