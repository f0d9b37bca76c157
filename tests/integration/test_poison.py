"""The workers of the streams and the writer on a real broker, with every kind of poison among what is good.

What is good comes out as if nothing else had been there; what is not is set aside once, with its bytes and its reason,
and counted; no partition stops, and every offset is committed.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from engine_world import Ours, events_on, is_all_committed
from events import call_batch, one_of_each
from poison import Poison, event_for, every_poison

from bench.rig.broker import Broker
from bench.rig.engine import Results
from bench.rig.realjob import until
from pacehound.bus import Message
from pacehound.bus.kafka import client_config
from pacehound.bus.kafka_reader import starts_and_ends
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.model import codec, topics
from pacehound.model.events import DeadLetter, Incident, Watermark
from pacehound.model.routing import Event, route
from pacehound.model.topics import Topic
from pacehound.runtime.dead_letter import LARGEST_PAYLOAD_BYTES
from pacehound.runtime.scrape import metrics_of
from pacehound.settings import KafkaSettings, Settings
from storage import schemas
from storage.client import Store
from storage.process import STORED
from streams.kafka.snapshot_records import MARKER, record_key
from streams.kafka.worker import INPUTS, snapshot_partition
from streams.pipeline import Pipeline
from streams.snapshots.schema import SCHEMA_VERSION, state_codec
from tests.fakes.stored import write as write_messages
from tests.hostile.doors import SLOW, simulated_job

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
]

WITHIN_S = 150
PATIENT = {"PACEHOUND_STREAM_LATENESS_S": "600"}
"""However long a busy machine takes to deliver its messages, a host of a simulated job has not fallen silent."""
JOB = "a job"
NO_TEXT = b"\xff\xfe\x00"
Place = tuple[str, int, int]


@dataclass(frozen=True)
class Letter:
    """What a dead letter has to say of a message."""

    error: str
    payload: bytes
    key: str


class Foreigner:
    """A producer that knows nothing of our rules; it remembers where its poison stands."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._kafka = kafka
        self.letters: dict[Place, Letter] = {}
        self._producer = self._made()

    def _made(self, **more: str) -> Producer:
        return Producer(
            client_config(self._kafka)
            | more
            | {
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 1,
                "compression.type": "zstd",
                "message.max.bytes": 200_000_000,
                "queue.buffering.max.kbytes": 1_000_000,
                "log_level": 0,  # it may outlive its broker, and every test after it would be told so
            }
        )

    def put(
        self,
        topic: Topic,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        error: str = "",
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        """A message; `error` says how it is to be set aside, and is empty for one that is good."""

        def delivered(problem: Any, message: Any) -> None:
            assert problem is None, problem
            if error:
                text = (key or b"").decode(errors="replace").encode(errors="replace").decode()
                self.letters[topic.name, partition, message.offset()] = Letter(error, value or b"", text)

        self._producer.produce(
            self._kafka.prefix + topic.name,
            key=key,
            value=value,
            partition=partition,
            headers=list(headers),
            on_delivery=delivered,
        )
        self._producer.poll(0)

    def put_good(self, event: Event) -> None:
        """As the agents do; a header of somebody else's is none of ours."""
        topic, key = route(event)
        partition = topics.partition_of(key.encode(), topic.partitions)
        self.put(topic, partition, key.encode(), codec.encode(event), headers=[("output", b"json"), ("trace", None)])

    def put_in_transaction(self, topic: Topic, partition: int, value: bytes, error: str) -> None:
        """Its end takes an offset at which nothing is delivered to anybody."""
        ours, self._producer = self._producer, self._made(**{"transactional.id": f"{self._kafka.prefix}foreign"})
        self._producer.init_transactions(60)
        self._producer.begin_transaction()
        self.put(topic, partition, None, value, error)
        self._producer.commit_transaction(60)
        self._producer = ours
        end = max(at for name, number, at in self.letters if (name, number) == (topic.name, partition)) + 2

        def is_over() -> bool:
            return starts_and_ends(self._kafka, "nobody", topic)[partition][1] >= end

        until("its end is in the log", is_over, WITHIN_S, 0.05)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0


@pytest.fixture
def kafka(broker: Broker, request: pytest.FixtureRequest) -> KafkaSettings:
    made = KafkaSettings(servers=broker.servers, prefix=f"{request.node.name}.")
    ensure_topics(made)
    return made


def embedded(events: Iterable[Event]) -> dict[tuple[str, int], Incident]:
    """What one process concludes from the same input."""
    pipeline, found = Pipeline(Settings()), {}
    for event in events:
        found |= {(out.id, out.version): out for out in pipeline.on_event(event) if isinstance(out, Incident)}
    return found


def bomb() -> Poison:
    """More bytes than a topic of ours takes, which a broker takes because they are compressed."""
    return Poison("a message larger than any of ours", bytes(20_000_000), "MalformedMessage")


def strangers(topic: Topic, good: Event) -> list[tuple[bytes | None, Poison]]:
    """Messages that are wrong for where they stand, each with its key."""
    elsewhere = next(event for event in one_of_each() if type(event).__name__ == "Decision")
    value = codec.encode(good)
    return [
        (None, Poison("no key", value, "InvalidEvent")),
        (NO_TEXT, Poison("a key that is no text", value, "InvalidEvent")),
        (b"somebody else's", Poison("a key that belongs elsewhere", value, "InvalidEvent")),
        (MARKER.encode(), Poison("the key of snapshots", value, "InvalidEvent")),
        (route(good)[1].encode(), Poison("an event of another topic", codec.encode(elsewhere), "InvalidEvent")),
    ]


def broken_stamps() -> list[list[tuple[str, bytes | None]]]:
    """Headers that say that they are a stamp, and are none."""
    values = [
        None,
        b"",
        b"7",
        b"7 0",
        b"x y calls/c",
        b"-1 0 calls/c",
        b"0 -1 calls/c",
        b"1.5 0 calls/c",
        b"0x7 0 calls/c",
        b"\xff\xfe 0 calls/c",
        NO_TEXT,
        b"9" * 5_000 + b" 0 calls/c",
    ]
    return [[("other", NO_TEXT), ("output", value), ("output", b"0 0 calls/c")] for value in values]


def poison_of_streams(good: Sequence[Event], rng: random.Random) -> Iterator[tuple[Topic, int, Any, Any, str, Any]]:
    """(topic, partition, key, value, error, headers), for every topic of the streams."""
    for topic in INPUTS:
        known = [event for event in good if route(event)[0] is topic] or [event_for(topic)]
        first = known[0] if topic is not topics.ROUNDS else Watermark(job=JOB, attempt=0, time_ns=5, stream="s")
        keys = sorted({route(event)[1] for event in known}) if topic is not topics.ROUNDS else [JOB]
        for poison in every_poison(topic):
            key = rng.choice(keys).encode()
            place = topics.partition_of(key, topic.partitions)
            yield topic, place, rng.choice([key, key, None, NO_TEXT]), poison.value, poison.error, ()
        for odd_key, poison in strangers(topic, first):
            place = topics.partition_of(rng.choice(keys).encode(), topic.partitions)
            yield topic, place, odd_key, poison.value, poison.error, ()
    yield topics.CALLS, 0, None, bomb().value, bomb().error, ()
    # Were one of these taken in, the job's streams would be over.
    end = codec.encode(Watermark(job=JOB, attempt=0, time_ns=(1 << 63) - 1, stream=route(good[0])[1]))
    place = topics.partition_of(JOB.encode(), topics.ROUNDS.partitions)
    for headers in broken_stamps():
        yield topics.ROUNDS, place, JOB.encode(), end, "MalformedMessage", headers


def garbage_of_snapshots(good: Iterable[Event]) -> Iterator[tuple[int, bytes, bytes | None]]:
    """(partition, key, value): records that are no snapshots, and some that look like one.

    The broker itself refuses one without a key on a compacted topic.
    """
    codec_of_states = state_codec(Settings())
    keys = [b"", NO_TEXT, b"calls", b"calls 3 x", b"calls three x 0 c", b"calls 3 x one c", b"calls 3/1 x one c"]
    values: list[bytes | None] = [None, b"", b"7", b"x 1 body", b"7 x body", NO_TEXT, b"7 1 body"]
    for number, key in enumerate(keys):
        for value in values:
            yield number, key, value
    for topic, name in sorted({(topic.name, name) for topic, name in map(route, good)} | {("rounds", JOB)}):
        topic_of = topics.TOPICS[topic]
        number = topics.partition_of(name.encode(), topic_of.partitions)
        at = snapshot_partition(topic, number)
        bodies = [
            b"no snapshot",
            b"",
            codec_of_states.encode((1 << 40, {name: 1 << 40})).replace(b"state 1", b"state 9"),
            codec_of_states.encode("neither a marker nor a state"),
            codec_of_states.encode(("x", {1: 2})),
        ]
        for slot, body in enumerate(bodies):
            for key_name in (MARKER, name):
                record = record_key(topic, number, SCHEMA_VERSION, f"foreign.{slot}", 0, key_name)
                yield at, record, f"{1 << 40} 1 ".encode() + body
                yield at, record + b"2", b"7 1000000000000 " + body
                yield at, record + b"3", b"7 0 " + body


def letters_on(kafka: KafkaSettings) -> dict[Place, list[DeadLetter]]:
    found: dict[Place, list[DeadLetter]] = {}
    for letter in events_on(kafka, topics.DEAD_LETTERS):
        assert isinstance(letter, DeadLetter)
        found.setdefault((letter.source_topic, letter.partition, letter.offset), []).append(letter)
    return found


def assert_set_aside(found: dict[Place, list[DeadLetter]], expected: dict[Place, Letter]) -> None:
    """Each once, with its bytes and its reason, and nothing else."""
    assert {place: [one.error for one in letters] for place, letters in found.items()} == {
        place: [letter.error] for place, letter in expected.items()
    }
    for place, letter in expected.items():
        (one,) = found[place]
        assert one.payload == letter.payload[:LARGEST_PAYLOAD_BYTES], place
        assert ("bytes are kept" in one.reason) == (len(letter.payload) > LARGEST_PAYLOAD_BYTES)
        assert one.key == letter.key
        assert one.reason


def counted(ours: Ours, name: str) -> dict[tuple[str, ...], int]:
    """A metric by the values of its labels, topic first."""
    status, text = ours.get("/metrics")
    assert status == 200
    order = ("topic", "error")
    return {
        tuple(one.labels[label] for label in order if label in one.labels): int(one.value)
        for one in metrics_of(text)
        if one.name == name
    }


@pytest.mark.prove  # in the suite test_kafka_workers.py has a worker of alerts
def test_a_worker_of_the_streams_concludes_the_same_whatever_lies_between(kafka: KafkaSettings, tmp_path: Path) -> None:
    """Twice: the second worker begins with the snapshots of the first, and with garbage among them."""
    rng = random.Random(17)
    events = simulated_job(JOB, SLOW)
    expected = embedded(events)
    assert any(finding.culprits == (5,) for incident in expected.values() for finding in incident.findings)
    foreigner = Foreigner(kafka)
    halves = events[: len(events) // 2], events[len(events) // 2 :]
    for number, half in enumerate(halves):
        for partition, key, value in garbage_of_snapshots(events):
            foreigner.put(topics.SNAPSHOTS, partition, key, value)
        foreigner.flush()
        before = Counter((place[0], letter.error) for place, letter in foreigner.letters.items())
        with Ours("streams", kafka, tmp_path / f"log{number}", PATIENT) as ours:
            poisons = list(poison_of_streams(events, rng))
            places = sorted((rng.randrange(len(half)), at) for at in range(len(poisons)))
            for at, event in enumerate(half):
                while places and places[0][0] == at:
                    topic, partition, key, value, error, headers = poisons[places.pop(0)[1]]
                    foreigner.put(topic, partition, key, value, error, headers)
                foreigner.put_good(event)
            foreigner.flush()
            for topic in INPUTS:
                place = topics.partition_of(JOB.encode(), topic.partitions)
                foreigner.put_in_transaction(topic, place, NO_TEXT, "MalformedMessage")
                foreigner.put(topic, place, None, b"behind it", "MalformedMessage")
            foreigner.flush()
            now = Counter((place[0], letter.error) for place, letter in foreigner.letters.items()) - before

            def is_through(ours: Ours = ours, now: Counter[tuple[str, str]] = now) -> bool:
                assert ours.process is not None
                assert ours.process.poll() is None, ours.text()[-4000:]
                return ours.metric("pacehound_dead_letters_total") >= sum(now.values()) and is_all_committed(
                    kafka, "streams", INPUTS
                )

            until("all is dealt with", is_through, WITHIN_S, 0.3)
            assert counted(ours, "pacehound_dead_letters_total") == now
            assert ours.metric("pacehound_pipeline_failures_total") == 0, ours.text()[-4000:]
            assert ours.get("/health")[0] == 200
            assert ours.stop() == 0
    assert_set_aside(letters_on(kafka), foreigner.letters)
    results = Results(kafka)
    until("the incidents", lambda: not results.read() and results.incidents().keys() >= expected.keys(), WITHIN_S, 0.0)
    assert results.incidents() == expected
    results.close()


def good_rows() -> list[Event]:
    """Of every kind that is stored, on several partitions."""
    calls: list[Event] = [call_batch(ordinal=n, communicator=f"c{n % 5}") for n in range(60)]
    return [*calls, event_for(topics.OPS), *(event for event in one_of_each() if route(event)[0] in STORED)]


def rows_by_table(store: Store) -> dict[str, list[tuple[str, ...]]]:
    """What is in the tables themselves, before anything is merged; without the dead letters."""
    found = {}
    for table in [schemas.CALLS, *schemas.ROW_TABLES]:
        if table != schemas.DEAD_LETTERS:
            rows = store.query(f"SELECT * EXCEPT (stored_at) FROM {table}").to_pylist()
            found[table] = sorted(tuple(str(value) for value in row.values()) for row in rows)
    assert all(found.values()), "every table has rows"
    return found


@pytest.mark.prove
def test_the_writer_stores_what_is_good_once_and_the_dead_letters_too(kafka: KafkaSettings, tmp_path: Path) -> None:
    rng = random.Random(23)
    good = good_rows()
    poisons = [(topic, poison) for topic in STORED for poison in every_poison(topic)]
    poisons.append((topics.CALLS, bomb()))
    places = sorted((rng.randrange(len(good)), at) for at in range(len(poisons)))
    foreigner = Foreigner(kafka)
    unread = 0
    environ = {"PACEHOUND_STORE_FLUSH_S": "0.5", "PACEHOUND_HOME": str(tmp_path)}
    store_folder = tmp_path / "store"
    with Ours("writer", kafka, tmp_path / "log", environ, arguments=("--store", str(store_folder))) as ours:
        for at, event in enumerate(good):
            while places and places[0][0] == at:
                topic, poison = poisons[places.pop(0)[1]]
                same = [one for one in good if route(one)[0] is topic]
                key = route(rng.choice(same))[1].encode()
                place = topics.partition_of(key, topic.partitions)
                is_letter = topic is topics.DEAD_LETTERS
                unread += is_letter
                odd_key = rng.choice([key, key, None, NO_TEXT])
                # A letter that cannot be read is counted, and not worth another one.
                foreigner.put(topic, place, odd_key, poison.value, "" if is_letter else poison.error)
            foreigner.put_good(event)
        foreigner.flush()
        n_letters = len(foreigner.letters)

        def is_through() -> bool:
            assert ours.process is not None
            assert ours.process.poll() is None, ours.text()[-4000:]
            return ours.metric("pacehound_writer_dead_letters_total") >= n_letters + unread and is_all_committed(
                kafka, "writer", STORED
            )

        until("all is dealt with", is_through, WITHIN_S, 0.3)
        errors = Counter(poison.error for _, poison in poisons)
        assert counted(ours, "pacehound_writer_dead_letters_total") == {(error,): n for error, n in errors.items()}
        assert ours.metric("pacehound_writer_failures_total") == 0, ours.text()[-4000:]
        assert ours.get("/health")[0] == 200
        assert ours.stop() == 0
    own = one_of_each()[-1]
    assert isinstance(own, DeadLetter)
    published = {
        place: found
        for place, letters in read_letters(kafka).items()
        if (found := [letter for letter in letters if letter != own])
    }
    assert_set_aside(published, foreigner.letters)
    with Store.open(tmp_path / "alone") as alone:
        written = [Message(topic="", key="", partition=0, offset=0, value=codec.encode(one)) for one in good]
        write_messages(alone, written)
        expected = rows_by_table(alone)
    with Store.open(store_folder) as store:
        assert rows_by_table(store) == expected
        sql = "SELECT source_topic, partition, offset, error, payload_hash FROM stored_dead_letters"
        stored = Counter(tuple(row.values()) for row in store.query(sql).to_pylist())
    assert stored == Counter(
        (letter.source_topic, letter.partition, letter.offset, letter.error, hash_of(letter.payload))
        for letter in [own, *(letter for letters in published.values() for letter in letters)]
    )


def read_letters(kafka: KafkaSettings) -> dict[Place, list[DeadLetter]]:
    """As `letters_on`, where poison lies on the topic of the letters."""
    from pacehound.runtime.dead_letter_queue import kafka_dead_letters

    found: dict[Place, list[DeadLetter]] = {}
    for letter in kafka_dead_letters(kafka):
        found.setdefault((letter.source_topic, letter.partition, letter.offset), []).append(letter)
    return found


def hash_of(payload: bytes) -> str:
    return hashlib.blake2b(payload, digest_size=16).hexdigest()
