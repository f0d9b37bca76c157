"""What runs on a training host, and what reads the files that other tools left there.

In: rings, /proc, files. Out: calls, topology, hosts, ops.
Must not import streams, storage, alerts, actuators or simulator: they meet on topics.
"""
