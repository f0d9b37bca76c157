-- What would be done, or was, about one incident ('' for all), in the order in which it was decided.
SELECT incident, action, mode, taken, reason, price_s, loss_s, time_ns, event
FROM decisions
WHERE {incident:String} = '' OR incident = {incident:String}
ORDER BY time_ns, incident_version, action
