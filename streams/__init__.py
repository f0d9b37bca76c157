"""Pure operators from calls to incidents, and one shell that runs them on Kafka.

In: calls, topology, hosts, ops. Out: rounds, iterations, findings, incidents.
Must not import collector, storage, alerts, actuators or simulator: they meet on topics.
"""
