"""The history of every job, in ClickHouse SQL: embedded (chDB, one process owns the folder) or on a server.

In: messages of every topic but `rounds`. Out: rows, and the answers to reading statements.
Must not import collector, streams, alerts, actuators or simulator.
"""
