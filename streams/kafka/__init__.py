"""Both stages on Kafka, under Faust: partitions, snapshots, workers.

In: messages of a partition. Out: messages, snapshots, commits.
May import `rounds` and `job`; no other room imports it, and it alone names Faust.
"""
