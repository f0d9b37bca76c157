"""Shares out all partitions of our topics, also while the broker does not tell of them.

A broker that has come back a moment ago answers before it knows of all its topics again. Faust's assignor (0.15) leaves
out a topic of which it is told nothing, and aiokafka looks again when what it knows is five minutes old: for so long
nobody reads that topic, though the group is stable and everybody in it is well. How many partitions a topic has is
fixed (`pacehound.model.topics`) and was checked before the worker began.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from faust.assignor.partition_assignor import PartitionAssignor

from pacehound.model.topics import Topic


class Cluster(Protocol):
    """What a client of Kafka knows of its brokers, as far as assignors ask for it."""

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of a topic's partitions; nothing where the topic is not known."""
        ...


class WholeCluster:
    """A cluster in which nothing of some topics is missing.

    >>> class Empty:
    ...     def partitions_for_topic(self, topic):
    ...         return None
    >>> WholeCluster(Empty(), {"calls": 2}).partitions_for_topic("calls")
    {0, 1}
    """

    def __init__(self, known: Cluster, n_partitions: Mapping[str, int]) -> None:
        self._known = known
        self._n_partitions = n_partitions

    def partitions_for_topic(self, topic: str) -> set[int]:
        """As the brokers have told, or as it must be."""
        return self._known.partitions_for_topic(topic) or set(range(self._n_partitions.get(topic, 0)))


class WholeAssignor(PartitionAssignor):
    """Faust's assignor, of such a cluster."""

    n_partitions: Mapping[str, int] = {}

    def assign(self, cluster: Cluster, member_metadata: Any) -> Any:
        """What each member of the group is to have."""
        return super().assign(WholeCluster(cluster, self.n_partitions), member_metadata)


def assignor_of(topics: tuple[Topic, ...], prefix: str) -> type[WholeAssignor]:
    """The assignor of an application that reads these topics."""
    counts = {prefix + topic.name: topic.partitions for topic in topics}
    return type("WholeAssignor", (WholeAssignor,), {"n_partitions": counts})
