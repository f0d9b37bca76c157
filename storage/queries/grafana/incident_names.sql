-- Incidents for a variable of a dashboard: what it is called, and its id in hexadecimal.
-- Of: fleet_incidents. The newest first.
SELECT concat(formatDateTime(opened, '%Y-%m-%d %H:%i'), ' ', job, ': ', kind, ' ', cause) AS __text, hex(id) AS __value
FROM fleet_incidents
WHERE opened_ns >= {since_ns:Int64} AND opened_ns < {until_ns:Int64}
ORDER BY opened_ns DESC, id
LIMIT 1000
