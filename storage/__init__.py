"""The history of every job, in ClickHouse SQL: embedded (chDB, one process owns the folder) or on a server."""
