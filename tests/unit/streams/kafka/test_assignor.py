"""How partitions are shared out while the broker does not tell of all topics."""

from __future__ import annotations

import faust
import pytest

from pacehound.model import topics
from streams.kafka.assignor import assignor_of
from streams.kafka.worker import INPUTS


class Told:
    """A client that was told of these topics alone, with so many partitions."""

    def __init__(self, **partitions: int) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        n = self._partitions.get(topic)
        return None if n is None else set(range(n))


def shared_out(told: Told, members: int) -> list[tuple[str, int]]:
    app = faust.App("test", broker="kafka://nobody", store="memory://", PartitionAssignor=assignor_of(INPUTS, "p."))
    names = {"p." + topic.name for topic in INPUTS}
    wanted = {f"member{number}": app.assignor.metadata(names) for number in range(members)}
    assigned = app.assignor.assign(told, wanted)
    return sorted((topic, one) for member in assigned.values() for topic, ones in member.assignment for one in ones)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("told", [Told(), Told(**{"p.rounds": topics.ROUNDS.partitions})])
def test_every_partition_is_shared_out_once_though_the_broker_does_not_know_of_it_yet(told: Told, members: int) -> None:
    assert shared_out(told, members) == sorted(
        ("p." + topic.name, one) for topic in INPUTS for one in range(topic.partitions)
    )


def test_what_the_broker_tells_counts() -> None:
    found = shared_out(Told(**{"p.rounds": 2}), 1)
    assert [one for topic, one in found if topic == "p.rounds"] == [0, 1]
