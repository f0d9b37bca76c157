"""What follows from the events of a message, as it is sent on: as few messages as may be, none larger than Kafka takes.

Pure: whoever takes in the same message says the same, byte for byte (partition.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, cast

from pacehound.bus.kafka import MAX_MESSAGE_BYTES
from pacehound.errors import InvalidEvent
from pacehound.model import codec
from pacehound.model.conclusions import Concluded, Conclusions, cells_of
from pacehound.model.events import Tick
from pacehound.model.flushes import Flush
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.relayed import Relayed
from pacehound.model.routing import Event
from pacehound.model.shards import RELAYED_KEY, is_of_shard

LARGEST_OUTPUT_BYTES = MAX_MESSAGE_BYTES - 64 * 1024
"""Key, stamp and Kafka's own frame need some room, too."""
MAX_CONCLUDED_CELLS = 65_536
"""Cells that are said at once, two megabytes (`pacehound.model.conclusions.cells_of`): what is larger by itself is
said by itself, or cut where that can be done."""


class Followed(NamedTuple):
    """An event, and what follows from it."""

    event: Event
    results: Sequence[Event | PairRounds]


def told(followed: Iterable[Followed]) -> Iterator[Event]:
    """What follows from some events, in order: from those of a shard at once, from anything else as it is.

    Rounds of pairs are said among conclusions alone, whatever they follow from.
    """
    for (job, attempt, is_told_at_once), some in groupby(followed, _whose):
        results = [result for one in some for result in one.results]
        if results and (is_told_at_once or any(isinstance(result, PairRounds) for result in results)):
            yield from _concluded(job, attempt, results)
        else:
            yield from cast(Sequence[Event], results)


def encoded(events: Iterable[Event]) -> tuple[list[tuple[Event, bytes]], Exception | None]:
    """The bytes of each, and why the first that was left out was: a message cannot be so large, or it says nothing."""
    bodies: list[tuple[Event, bytes]] = []
    refused: Exception | None = None
    for event in events:
        try:
            body = codec.encode(event)
            if len(body) > LARGEST_OUTPUT_BYTES:
                raise InvalidEvent(
                    f"a {type(event).__name__} of {len(body)} bytes follows from it; "
                    f"at most {LARGEST_OUTPUT_BYTES} can be sent on"
                )
        except (InvalidEvent, ValueError) as error:
            refused = refused or error
            continue
        bodies.append((event, body))
    return bodies, refused


def passed_on(followed: Iterable[Followed]) -> tuple[list[Followed], list[Relayed]]:
    """The same without what goes to other shards of stage one, and that, in order."""
    rest: list[Followed] = []
    relayed: list[Relayed] = []
    for one in followed:
        mine = [result for result in one.results if isinstance(result, Relayed)]
        relayed += mine
        rest.append(Followed(one.event, [r for r in one.results if not isinstance(r, Relayed)]) if mine else one)
    return rest, relayed


def together(bodies: Iterable[tuple[Event, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Messages that hold these, in order, each with its job."""
    for job, of_job in groupby(bodies, lambda one: one[0].job):
        some: list[bytes] = []
        n_bytes = 0
        for _, body in of_job:
            if some and n_bytes + len(body) > LARGEST_OUTPUT_BYTES:
                yield job, b"".join(some)
                some, n_bytes = [], 0
            some.append(body)
            n_bytes += len(body)
        yield job, b"".join(some)


def _whose(one: Followed) -> tuple[str, int, bool]:
    event = one.event
    is_told_at_once = isinstance(event, (Flush, Relayed)) or (
        isinstance(event, Tick) and (is_of_shard(event.stream) or event.stream.startswith(RELAYED_KEY))
    )
    return event.job, event.attempt, is_told_at_once


def _concluded(job: str, attempt: int, results: Sequence[Event | PairRounds]) -> list[Event]:
    said: list[Event | list[Concluded]] = []
    portion: list[Concluded] | None = None
    n_cells = 0
    for result in _in_pieces(results):
        if not isinstance(result, Concluded):  # that a host is silent: it is said by itself
            said.append(result)
            portion = None
            continue
        cells = cells_of(result)
        if portion is None or n_cells + cells > MAX_CONCLUDED_CELLS:
            portion = []
            said.append(portion)
            n_cells = 0
        portion.append(result)
        n_cells += cells
    return [Conclusions(job=job, attempt=attempt, said=tuple(one)) if isinstance(one, list) else one for one in said]


def _in_pieces(results: Sequence[Event | PairRounds]) -> Iterator[Event | PairRounds]:
    """The same, digests of more pairs than are said at once in pieces."""
    n_lines = MAX_CONCLUDED_CELLS // 2
    for result in results:
        if isinstance(result, PairRounds) and len(result) > n_lines:
            yield from (result.chosen(slice(begin, begin + n_lines)) for begin in range(0, len(result), n_lines))
        else:
            yield result
