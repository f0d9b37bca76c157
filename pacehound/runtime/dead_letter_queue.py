"""Dead letters: listed, looked at, and put on their topic again.

One that was replayed is said a second time on `dead-letters`, the same but for `replayed_ns`: so the mark lies beside
what it marks, for as long, and nobody has to keep a list.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from pacehound.bus.kafka import KafkaProducer
from pacehound.bus.kafka_reader import read_to_end
from pacehound.errors import InvalidInput, RejectedMessage
from pacehound.model import codec
from pacehound.model.events import DeadLetter
from pacehound.model.routing import route
from pacehound.model.topics import DEAD_LETTERS, TOPICS
from pacehound.settings import KafkaSettings

logger = logging.getLogger(__name__)

FLUSH_S = 30.0

DeadLetters = Callable[[], Iterable[DeadLetter]]
"""Every letter, in the order in which they were written; may be asked more than once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSummary:
    """A letter without its bytes.

    Attributes
    ----------
    id
        Names (topic, partition, offset). Several records of one message have the same.
    payload_hash
        Tells those apart.
    payload_bytes
        How many there are.
    replayed_ns
        When it was put on its topic again; 0: it was not.

    """

    id: str
    source_topic: str
    partition: int
    offset: int
    key: str
    time_ns: int
    error: str
    reason: str
    payload_hash: str
    payload_bytes: int
    replayed_ns: int


def kafka_dead_letters(settings: KafkaSettings) -> Iterator[DeadLetter]:
    """All dead letters of the topic.

    Raises
    ------
    Unavailable
        Kafka is away.

    """
    for message in read_to_end(settings, DEAD_LETTERS):
        try:
            for event in codec.decode(message.value):
                if isinstance(event, DeadLetter):
                    yield event
        except RejectedMessage as error:
            logger.warning("a dead letter cannot be read itself: %s", error)


STORED_DEAD_LETTERS = (
    "SELECT source_topic, partition, offset, job, error, reason, time_ns, payload_hex FROM dead_letters"
)


def stored_dead_letters(rows: pa.Table) -> list[DeadLetter]:
    """The answer to `STORED_DEAD_LETTERS` as letters, the oldest first; a store keeps no keys."""
    letters = []
    for row in rows.to_pylist():
        payload = bytes.fromhex(row.pop("payload_hex"))
        letters.append(DeadLetter(**row, payload=payload))
    return sorted(letters, key=lambda letter: (letter.time_ns, letter.source_topic, letter.partition, letter.offset))


def summaries(letters: Iterable[DeadLetter]) -> list[DeadLetterSummary]:
    """Each message once, the oldest first.

    Two consumers of a topic set the same message aside; the first one's words stay.

    >>> letter = DeadLetter(source_topic="calls", partition=0, offset=1, time_ns=2, error="E", reason="r", payload=b"x")
    >>> [(one.offset, one.replayed_ns) for one in summaries([letter, replace(letter, replayed_ns=9)])]
    [(1, 9)]
    """
    found: dict[tuple[str, str], DeadLetterSummary] = {}
    for letter in letters:
        one = _summary_of(letter)
        before = found.get((one.id, one.payload_hash))
        if before is not None:
            one = replace(before, replayed_ns=max(before.replayed_ns, one.replayed_ns))
        found[one.id, one.payload_hash] = one
    return sorted(found.values(), key=lambda one: (one.time_ns, one.source_topic, one.partition, one.offset))


def matching(letters: DeadLetters, prefix: str) -> list[DeadLetter]:
    """The letters whose id begins with `prefix`, each once, as they were written first.

    Raises
    ------
    InvalidInput
        There is none, or there are several of different ids.

    """
    found: dict[tuple[str, str], DeadLetter] = {}
    for letter in letters():
        if prefix and letter.identity().startswith(prefix):
            found.setdefault((letter.identity(), _hash(letter)), letter)
    ids = sorted({one for one, _ in found})
    if not ids:
        raise InvalidInput(f"there is no dead letter {prefix!r}; `pacehound dead-letters list` shows them")
    if len(ids) > 1:
        raise InvalidInput(f"{prefix!r} stands for {len(ids)} dead letters ({', '.join(ids[:3])} …); write more of it")
    return list(found.values())


def replay(
    letters: DeadLetters, ids: Iterable[str], is_all: bool, producer: KafkaProducer, now_ns: int
) -> list[DeadLetterSummary]:
    """Put bytes on their source topics again, in the order in which they were set aside, and mark the letters.

    Parameters
    ----------
    letters
        All there are.
    ids
        Which, as the beginnings of ids. They are replayed even if they have been before.
    is_all
        Every one that has not been replayed.
    producer
        To Kafka.
    now_ns
        What the mark says.

    Returns
    -------
    list of DeadLetterSummary
        What was replayed. The bytes are on their topic before the mark is made: who dies in between leaves a letter
        that will be replayed again, and whoever reads it knows its events by their ids.

    Raises
    ------
    InvalidInput
        An id stands for no letter or several, or a topic is not one of ours.
    Unavailable
        Kafka is away.

    """
    wanted = {(one.identity(), _hash(one)) for prefix in ids for one in matching(letters, prefix)}
    if is_all:
        wanted |= {(one.id, one.payload_hash) for one in summaries(letters()) if not one.replayed_ns}
    done = []
    for letter in letters():
        place = (letter.identity(), _hash(letter))
        if place not in wanted:
            continue
        wanted.remove(place)
        topic = TOPICS.get(letter.source_topic)
        if topic is None or topic is DEAD_LETTERS or not 0 <= letter.partition < topic.partitions:
            where = f"{letter.source_topic}/{letter.partition}"
            raise InvalidInput(f"letter {letter.identity()} is of {where}, which is nothing to replay to")
        producer.publish_to(topic, letter.partition, letter.key.encode(), letter.payload)
        producer.flush(FLUSH_S)
        marked = replace(letter, replayed_ns=now_ns)
        mark_topic, key = route(marked)
        producer.publish(mark_topic, key, codec.encode(marked))
        producer.flush(FLUSH_S)
        done.append(_summary_of(marked))
    return done


def dead_letter_answer(letter: DeadLetter) -> dict[str, Any]:
    """A letter with its bytes, for a script."""
    one = _summary_of(letter)
    fields = {name: getattr(one, name) for name in one.__slots__}
    return fields | {"payload": base64.b64encode(letter.payload).decode()}


def preview(payload: bytes, most_bytes: int = 512) -> str:
    r"""The bytes as text: what can be read of an event, then the first of them in hexadecimal.

    >>> print(preview(b"\xff\x00noise"))
    no Pacehound event
    0000  ff 00 6e 6f 69 73 65                             ..noise
    """
    return "\n".join([*_readable(payload), *_hex_lines(payload[:most_bytes]), *_rest(len(payload), most_bytes)])


def _readable(payload: bytes) -> list[str]:
    try:
        records = codec.records_of(payload)
    except RejectedMessage:
        return ["no Pacehound event"]
    lines = []
    for resource, record in records[:3]:
        attributes = [*resource.resource.attributes, *record.attributes]
        said = ", ".join(f"{one.key}={_value(one.value)}" for one in attributes)
        lines.append(f"{record.event_name or 'no event name'} ({said})")
        body = record.body.bytes_value
        if body[:1] == b"{":
            lines.append(body[:2_000].decode(errors="replace"))
    return lines


def _value(value: Any) -> str:
    kind = value.WhichOneof("value")
    return str(getattr(value, kind)) if kind in ("string_value", "int_value", "bool_value", "double_value") else "…"


def _hex_lines(payload: bytes) -> list[str]:
    lines = []
    for start in range(0, len(payload), 16):
        part = payload[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:04x}  {part.hex(' '):<47}  {text}")
    return lines


def _rest(n_bytes: int, shown: int) -> list[str]:
    return [f"… and {n_bytes - shown} bytes more"] if n_bytes > shown else []


def _summary_of(letter: DeadLetter) -> DeadLetterSummary:
    return DeadLetterSummary(
        id=letter.identity(),
        source_topic=letter.source_topic,
        partition=letter.partition,
        offset=letter.offset,
        key=letter.key,
        time_ns=letter.time_ns,
        error=letter.error,
        reason=letter.reason,
        payload_hash=_hash(letter),
        payload_bytes=len(letter.payload),
        replayed_ns=letter.replayed_ns,
    )


def _hash(letter: DeadLetter) -> str:
    return hashlib.blake2b(letter.payload, digest_size=16).hexdigest()


def dead_letters_answer(letters: Iterable[DeadLetterSummary]) -> dict[str, Any]:
    """What `pacehound dead-letters list --json` prints."""
    return {"schema": 1, "letters": [{name: getattr(one, name) for name in one.__slots__} for one in letters]}
