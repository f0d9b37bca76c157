-- Who was asked about the decisions of one incident that waited, when, and what came of it, in order.
SELECT decision, sink, outcome, by, time_ns FROM asked WHERE incident = {incident:String} ORDER BY time_ns, sink
