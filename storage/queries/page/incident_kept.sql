-- How many calls are kept for an incident.
SELECT count() AS calls FROM stored_incident_calls WHERE incident = {incident:String}
