"""What must have come of a log: both stages of the streams over everything that stands on Kafka, in one process.

Whatever was killed in the meantime, the log says what the answer is: outputs of stage one follow from the partitions of
`calls` and `hosts`, those of stage two from the partitions of `rounds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pacehound.bus import Message
from pacehound.bus.kafka_reader import read_to_end
from pacehound.model import codec, topics
from pacehound.model.events import Incident, Tick
from pacehound.model.shards import RELAYED_KEY
from pacehound.model.topics import Topic
from pacehound.settings import KafkaSettings, Settings
from streams.job.stage_two import StageTwo
from streams.kafka.operators import Operator, operator_of
from streams.kafka.outputs import Followed, passed_on, together, told
from streams.kafka.partition import Stamp

Versions = dict[tuple[str, int], Incident]
"""Incidents by id and version, in the order in which they were said."""


@dataclass
class FromLog:
    """What follows from a log, and where what stands in it differs from that.

    Attributes
    ----------
    incidents
        What stage two says of the `rounds` that are there.
    differences
        Where `rounds` is not what stage one says of `calls` and `hosts`; empty if all is right.
    ticks
        By job, how many ticks workers have written.

    """

    incidents: Versions = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    ticks: dict[str, int] = field(default_factory=dict)


def ordered(messages: Iterable[Message]) -> list[Message]:
    """By partition and offset."""
    return sorted(messages, key=lambda message: (message.partition, message.offset))


def said_incidents(kafka: KafkaSettings) -> Versions:
    """What stands on the topic of the incidents, each version once.

    Raises
    ------
    AssertionError
        A version came twice with different contents, or behind a later one that was new.

    """
    found: Versions = {}
    last: dict[str, int] = {}
    for message in ordered(read_to_end(kafka, topics.INCIDENTS)):
        for event in codec.decode(message.value):
            assert isinstance(event, Incident)
            known = found.setdefault((event.id, event.version), event)
            assert known == event, f"version {event.version} of incident {event.id} was said in two ways"
            if known is event:
                assert last.get(event.id, -1) == event.version - 1, f"{event.id}: {event.version} after {last}"
                last[event.id] = event.version
    return found


def from_log(kafka: KafkaSettings, settings: Settings) -> FromLog:
    """Read everything, and work it out.

    Parameters
    ----------
    kafka
        Where the log is.
    settings
        Of the workers.

    """
    answer = FromLog()
    wanted: dict[str, list[bytes]] = {}
    for topic in (topics.CALLS, topics.HOSTS, topics.ROUNDS):
        for stream, body in _stage_one(topic, kafka, settings, answer.ticks):
            wanted.setdefault(stream, []).append(body)
    jobs: dict[str, StageTwo] = {}
    began: dict[str, int] = {}
    taken: dict[str, int] = {}
    for message in ordered(read_to_end(kafka, topics.ROUNDS)):
        stamp = Stamp.of(message.headers)
        if stamp is None and message.key.startswith(RELAYED_KEY):  # a tick
            continue
        assert stamp is not None, f"a message on rounds without a stamp: {message}"
        if began.setdefault(stamp.stream, stamp.began) != stamp.began:
            answer.differences.append(f"{stamp.stream} began at {began[stamp.stream]} and at {stamp.began}")
        number = taken.get(stamp.stream, 0)
        if stamp.number != number:
            continue
        taken[stamp.stream] = number + 1
        expected = wanted.get(stamp.stream, [])
        if number >= len(expected) or expected[number] != message.value:
            answer.differences.append(f"output {number} of {stamp.stream} is not what follows from its input")
        if message.key.startswith(RELAYED_KEY):
            continue
        stage = jobs.setdefault(message.key, StageTwo(message.key, settings))
        for event in codec.decode(message.value):
            for out in stage.on_event(event):
                if isinstance(out, Incident):
                    answer.incidents[out.id, out.version] = out
    for stream, bodies in wanted.items():
        if taken.get(stream, 0) != len(bodies):
            answer.differences.append(f"{taken.get(stream, 0)} outputs of {stream} instead of {len(bodies)}")
    return answer


def _stage_one(
    topic: Topic, kafka: KafkaSettings, settings: Settings, ticks: dict[str, int]
) -> Iterator[tuple[str, bytes]]:
    """By the stream of their stamps, the bodies of all that stage one says of a topic."""
    keys: dict[str, Operator] = {}
    taken: dict[str, int] = {}
    for message in ordered(read_to_end(kafka, topic)):
        if topic is topics.ROUNDS and not message.key.startswith(RELAYED_KEY):
            continue
        if topic is topics.ROUNDS and (stamp := Stamp.of(message.headers)) is not None:
            if stamp.number != taken.get(stamp.stream, 0):
                continue
            taken[stamp.stream] = stamp.number + 1
        stage = keys.setdefault(message.key, operator_of(topic.name, message.key, settings))
        events = codec.decode(message.value)
        for event in events:
            if isinstance(event, Tick):
                ticks[event.job] = ticks.get(event.job, 0) + 1
        rest, relayed = passed_on(Followed(event, list(stage.on_event(event))) for event in events)
        for one in relayed:
            yield f"{topic.name}/{message.key} to {one.key}", codec.encode(one)
        for _, joined in together((event, codec.encode(event)) for event in told(rest)):
            yield f"{topic.name}/{message.key}", joined
