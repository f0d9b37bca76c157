"""Both stages of the streams in one process, each on its keys, as on Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pacehound.errors import PartlyRefused
from pacehound.model import codec, topics
from pacehound.model.conclusions import Conclusions
from pacehound.model.events import Topology, Watermark
from pacehound.model.relayed import Relayed
from pacehound.model.routing import Event, route
from pacehound.settings import Settings
from streams.job.stage_two import StageTwo
from streams.kafka.operators import Operator, operator_of
from streams.kafka.outputs import Followed, encoded, passed_on, told
from streams.kafka.outputs import together as in_few
from streams.rounds.home import Home
from streams.rounds.shard import Shard
from streams.snapshots.schema import state_codec

OperatorT = TypeVar("OperatorT", Home, Shard)


@dataclass
class BothStages:
    """Both stages, each on its keys, as on Kafka; whatever follows is worked on in the order in which it is told.

    With `again` each state of stage one is written down and read before each of its messages.
    """

    settings: Settings
    again: bool = False
    keys: dict[str, Operator] = field(default_factory=dict)
    passed: list[Relayed] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    said: list[Event] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def hear(self, event: Event) -> None:
        topic, key = route(event)
        self._work(topic.name, key, [event])

    def _work(self, topic: str, key: str, events: Sequence[Event]) -> None:
        stage = self.keys.setdefault(key, operator_of(topic, key, self.settings))
        if self.again and not isinstance(stage, StageTwo):
            states = state_codec(self.settings)
            stage = self.keys[key] = states.decode(states.encode(stage))
        followed = []
        for event in events:
            try:
                followed.append(Followed(event, list(stage.on_event(event))))
            except PartlyRefused as error:
                self.refused.append(str(error))
                followed.append(Followed(event, error.results))  # type: ignore[arg-type]
        if isinstance(stage, StageTwo):
            self.said += [one for some in followed for one in some.results]  # type: ignore[misc]
            return
        rest, relayed = passed_on(followed)
        for one in relayed:
            self.passed.append(one)
            self.bodies.append(codec.encode(one))
            self._work(topics.ROUNDS.name, one.key, codec.decode(codec.encode(one)))
        bodies, refused = encoded(told(rest))
        assert refused is None
        for of_job, body in in_few(bodies):
            self.bodies.append(body)
            self._work(topics.ROUNDS.name, of_job, codec.decode(body))

    def until_ns(self) -> int:
        """Up to when the world is known."""
        events = [event for body in self.bodies for event in codec.decode(body)]
        said = [one for event in events if isinstance(event, Conclusions) for one in event.said]
        (world,) = {one.communicator for one in said if isinstance(one, Topology) and one.is_world}
        return max(one.time_ns for one in said if isinstance(one, Watermark) and one.stream == world)

    @property
    def n_calls(self) -> int:
        """That are in the rounds that stage one has told."""
        events = [event for body in self.bodies for event in codec.decode(body)]
        rounds = [one for event in events if isinstance(event, Conclusions) for one in event.rounds()]
        return sum(int((one.arrival_ns > 0).sum()) for one in rounds)

    def of(self, kind: type[OperatorT]) -> dict[str, OperatorT]:
        return {key: stage for key, stage in self.keys.items() if isinstance(stage, kind)}
