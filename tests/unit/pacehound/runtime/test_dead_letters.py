"""Dead letters: each message once, found by the beginning of its id, put back on its own place, and marked."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from pacehound.bus import Message
from pacehound.bus.kafka import MAX_MESSAGE_BYTES, max_bytes
from pacehound.errors import InvalidEvent, InvalidInput, MalformedMessage, PartlyRefused
from pacehound.model import codec, topics
from pacehound.model.events import DeadLetter, Topology
from pacehound.model.flushes import Flush
from pacehound.model.topics import Topic
from pacehound.runtime.dead_letter import LARGEST_PAYLOAD_BYTES, LONGEST_REASON, dead_letter_of
from pacehound.runtime.dead_letter_queue import matching, preview, replay, stored_dead_letters, summaries
from pacehound.runtime.records import dead_letters_of, refused_with, worked


def letter(offset: int = 0, payload: bytes = b"x", **changes: object) -> DeadLetter:
    fields = {"source_topic": "calls", "partition": 3, "time_ns": offset, "error": "E", "reason": "r", "key": "c"}
    return DeadLetter(**(fields | {"offset": offset, "payload": payload} | changes))  # type: ignore[arg-type]


class FakeProducer:
    """Appends to the log that it was given."""

    def __init__(self, log: list[DeadLetter]) -> None:
        self.log = log
        self.put: list[tuple[str, int, bytes, bytes | None]] = []

    def publish_to(self, topic: Topic, partition: int, key: bytes, value: bytes | None) -> None:
        self.put.append((topic.name, partition, key, value))

    def publish(self, topic: Topic, key: str, value: bytes) -> None:
        assert (topic, key) == (topics.DEAD_LETTERS, "calls")
        self.log.extend(codec.decode(value))  # type: ignore[arg-type]

    def flush(self, timeout_s: float) -> None:
        pass


def test_a_message_that_two_consumers_set_aside_is_listed_once_and_two_records_of_it_twice() -> None:
    found = summaries([letter(1), letter(0), replace(letter(1), reason="another"), letter(1, b"y")])
    assert [(one.offset, one.reason, one.payload_bytes) for one in found] == [(0, "r", 1), (1, "r", 1), (1, "r", 1)]


def test_the_beginning_of_an_id_is_enough_where_it_is_clear() -> None:
    log = [letter(offset) for offset in range(40)]
    assert matching(lambda: log, log[7].identity()[:16]) == [log[7]]
    with pytest.raises(InvalidInput, match="there is no dead letter 'nonsense'"):
        matching(lambda: log, "nonsense")
    with pytest.raises(InvalidInput, match="there is no dead letter ''"):
        matching(lambda: log, "")
    common = next(c for c in "0123456789abcdef" if sum(one.identity().startswith(c) for one in log) > 1)
    with pytest.raises(InvalidInput, match="write more of it"):
        matching(lambda: log, common)


def test_all_are_replayed_once_in_order_and_one_by_name_again() -> None:
    log = [letter(0, b"a"), letter(1, b"b"), letter(0, b"a")]
    producer = FakeProducer(log)
    done = replay(lambda: list(log), [], True, producer, now_ns=77)
    assert producer.put == [("calls", 3, b"c", b"a"), ("calls", 3, b"c", b"b")]
    assert [one.replayed_ns for one in done] == [77, 77]
    assert {one.replayed_ns for one in summaries(log)} == {77}
    assert replay(lambda: list(log), [], True, producer, now_ns=78) == []
    assert len(replay(lambda: list(log), [log[1].identity()], False, producer, now_ns=79)) == 1
    assert producer.put[-1][-1] == b"b"


@pytest.mark.parametrize("changes", [{"source_topic": "nowhere"}, {"source_topic": "dead-letters"}, {"partition": 99}])
def test_what_has_no_place_of_ours_is_not_replayed(changes: dict[str, object]) -> None:
    log = [letter(**changes)]
    with pytest.raises(InvalidInput, match="nothing to replay to"):
        replay(lambda: log, [], True, FakeProducer(log), now_ns=1)


def test_a_preview_shows_what_can_be_read_and_the_first_bytes() -> None:
    shown = preview(codec.encode(letter()))
    assert "pacehound.dead_letter (" in shown
    assert '"source_topic":"calls"' in shown
    assert preview(b"\x01" * 600).splitlines()[-1] == "… and 88 bytes more"


def test_a_reason_of_any_length_and_bytes_makes_a_letter_that_can_be_written() -> None:
    message = Message(topic="calls", key="k\udcff", partition=0, offset=0, value=b"\xff")
    made = dead_letter_of(message, MalformedMessage("\ud800" * 10_000), now_ns=5)
    assert codec.decode(codec.encode(made)) == [made]
    assert len(made.reason) == LONGEST_REASON


def test_the_rows_of_a_store_are_letters_too() -> None:
    columns = {"source_topic": ["calls"], "partition": [3], "offset": [4], "job": [""], "error": ["E"]}
    rows = pa.table(columns | {"reason": ["r"], "time_ns": [4], "payload_hex": ["FF00"]})
    assert stored_dead_letters(rows) == [letter(4, b"\xff\x00", key="")]


def test_a_letter_fits_its_topic_whatever_a_foreign_producer_has_sent() -> None:
    """Brokers bound what is compressed: a client may be handed more than any topic of ours takes."""
    message = Message(topic="calls", key="\0" * 5_000, partition=3, offset=8, value=bytes(40_000_000))
    written = dead_letter_of(message, MalformedMessage("\0" * 5_000), 5)
    assert LARGEST_PAYLOAD_BYTES == MAX_MESSAGE_BYTES
    assert written.payload == message.value[:LARGEST_PAYLOAD_BYTES]
    assert written.reason.endswith(f"(the first {LARGEST_PAYLOAD_BYTES} of 40000000 bytes are kept)")
    assert len(codec.encode(written)) <= max_bytes(topics.DEAD_LETTERS)


def test_what_waited_for_a_message_and_is_refused_with_it_is_a_letter_and_the_message_is_none() -> None:
    topology = Topology(
        job="j", attempt=0, time_ns=5, host="h", communicator="c", name="tp", is_world=False,
        members=(0, 1), host_ranks=(0,), world_size=2,
    )  # fmt: skip
    before, now = (
        Flush(job="j", attempt=0, host=host, shard=0, is_home=True, topologies=(replace(topology, host=host),))
        for host in ("liar", "honest")
    )
    why = InvalidEvent("ranks [9] are no members")
    message = Message(topic="calls", key=now.key, partition=3, offset=8, value=codec.encode(now))

    def refuse(_: object) -> None:
        raise PartlyRefused("what came before", [], earlier=[(before, why)], is_of_event=False)

    (outcome,) = worked(message, refuse)
    (letter,) = dead_letters_of(message, refused_with(message, outcome), now_ns=9)
    assert list(codec.decode(letter.payload)) == [before]
    assert (letter.error, letter.reason, letter.offset) == ("InvalidEvent", "ranks [9] are no members", 8)
