"""Both stages on Kafka, under Faust: partitions, snapshots, workers.

In: messages of a partition. Out: messages, snapshots, commits.
May import `rounds`, `job` and `snapshots`; no other room imports it, and it alone names Faust.
"""
