"""Every topic: its name, what its key is, which events travel on it, how long they are kept.

The partition is computed here and set by every producer: the default partitioners of two Kafka clients disagree
on most keys, and an event on the wrong partition loses its order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

HOUR_S = 3600
DAY_S = 24 * HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic of the pipeline.

    Attributes
    ----------
    name
        As on the bus.
    key
        What the key names: events of one key are in order.
    partitions
        Fixed at creation. Growth is a new generation of the topic, never more partitions of the same one.
    retention_s
        How long messages are kept; `None` for a compacted topic.

    """

    name: str
    key: str
    partitions: int
    retention_s: int | None


CALLS = Topic(name="calls", key="communicator", partitions=32, retention_s=6 * HOUR_S)
# Partitioned as `calls`. Workers of the streams write it and take it away (streams/kafka/topologies.py).
TOPOLOGY = Topic(name="topology", key="what a host announced at once", partitions=8, retention_s=None)
HOSTS = Topic(name="hosts", key="job and host", partitions=8, retention_s=DAY_S)
OPS = Topic(name="ops", key="job and host", partitions=8, retention_s=DAY_S)
ROUNDS = Topic(name="rounds", key="job, or shard to which homes relay", partitions=8, retention_s=6 * HOUR_S)
ITERATIONS = Topic(name="iterations", key="job", partitions=8, retention_s=DAY_S)
FINDINGS = Topic(name="findings", key="job", partitions=8, retention_s=30 * DAY_S)
INCIDENTS = Topic(name="incidents", key="job", partitions=8, retention_s=30 * DAY_S)
DECISIONS = Topic(name="decisions", key="job", partitions=8, retention_s=30 * DAY_S)
# What a controller tells the agents of a job: nothing of it lives longer than a minute.
COMMANDS = Topic(name="commands", key="job", partitions=8, retention_s=HOUR_S)
RESULTS = Topic(name="results", key="job", partitions=8, retention_s=30 * DAY_S)
SNAPSHOTS = Topic(name="snapshots", key="partition and key of its state", partitions=8, retention_s=None)
# Kept longer than the incidents it speaks of, and not compacted: a key is written about once, so that compaction would
# remove nothing and the topic grow for ever. Partitions and key are those of the incidents: who gets a partition of
# these reads the same one of those, and knows what was told.
NOTIFICATIONS = Topic(name="notifications", key="job", partitions=INCIDENTS.partitions, retention_s=60 * DAY_S)
DEAD_LETTERS = Topic(name="dead-letters", key="source topic", partitions=4, retention_s=30 * DAY_S)

TOPICS = {
    topic.name: topic
    for topic in (
        CALLS,
        TOPOLOGY,
        HOSTS,
        OPS,
        ROUNDS,
        ITERATIONS,
        FINDINGS,
        INCIDENTS,
        DECISIONS,
        NOTIFICATIONS,
        COMMANDS,
        RESULTS,
        SNAPSHOTS,
        DEAD_LETTERS,
    )
}


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key: the same for every client, language and version.

    >>> partition_of(b"a communicator", 32) == partition_of(b"a communicator", 32)
    True
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") % partitions
