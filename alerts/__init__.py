"""Who is told of an incident: once per state of it, also when this process is started again in between."""
