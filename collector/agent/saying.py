"""Events of an agent as messages on their way: what it says of calls at once, or each communicator by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from collector.agent.outbox import Kind, Outgoing
from collector.calls.communicators import Communicator
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.column_records import ROW_BYTES
from pacehound.model.digests import is_of_digests
from pacehound.model.events import CommandResult, HostEvidence, HostSample, HostVitals, Markers, Progress
from pacehound.model.flushes import (
    MAX_FLUSH_ROWS,
    MAX_FLUSH_SAID,
    Flush,
    Heartbeat,
    HostCall,
    entries_of,
    flushes_of,
)
from pacehound.model.operations import Operations
from pacehound.model.routing import host_stream
from pacehound.model.shards import Place, place_of

BATCH_BYTES = 6 * 1024
"""What a batch takes by itself, of whatever calls (`python -m bench wire`)."""

AgentEvent = HostCall | HostSample | HostVitals | HostEvidence | Operations | CommandResult


def outgoing(event: AgentEvent) -> Outgoing:
    """An event by itself."""
    calls, reported = (event.n_calls, event.dropped) if isinstance(event, CallBatch) else (0, 0)
    if isinstance(event, (HostSample, HostVitals, HostEvidence, Operations, CommandResult)):
        stream = host_stream(event.job, event.host)
    else:
        stream = event.communicator
    return Outgoing(kind=_kind(event), stream=stream, calls=calls, reported=reported, payload=codec.encode(event))


def room_bytes(events: Iterable[HostCall]) -> int:
    """What batches of calls take of the outbox, at most, before they are messages."""
    return sum(BATCH_BYTES + len(event) * ROW_BYTES for event in events if isinstance(event, CallBatch))


def places_of(known: Iterable[Communicator], digests_from_ranks: int, *, has_homes: bool) -> dict[str, Place]:
    """By communicator. Where a source counts places, this host learns of the members one by one: the id alone tells."""
    return {
        one.id: place_of(
            one.id,
            () if one.counts_places else one.members,
            one.host_ranks[0] if one.host_ranks else -1,
            one.world_size,
            digests_from_ranks,
            has_homes=has_homes,
        )
        for one in known
    }


def outgoing_vitals(vitals: HostVitals, place: Place) -> Outgoing:
    """What hardware is like, on its way with the calls of a shard: on Kafka it costs no message of its own then."""
    return _outgoing_flush(
        Flush(
            job=vitals.job,
            attempt=vitals.attempt,
            host=vitals.host,
            shard=place.shard,
            is_home=place.is_home,
            vitals=(vitals,),
        )
    )


def outgoing_at_once(
    events: Iterable[HostCall],
    places: Mapping[str, Place],
    behind_ns: Mapping[int, int] | None = None,
    *,
    in_short: Iterable[Progress] = (),
    quiet_ns: int = 0,
    is_detail: bool = False,
) -> list[Outgoing]:
    """What is said of calls, in as few messages as may be: each holds what the outbox may treat alike.

    On Kafka those of one key travel as one message (`pacehound.bus.kafka_sender.joined`). Calls that are detail are the
    first to be dropped, and nobody misses them. Of promises `in_short` no more is said than up to when they hold.
    Promises of the attempts in `behind_ns` speak for their processes, too, and all of them say that for `quiet_ns`
    nothing more may be said.
    """
    flushes = with_short(flushes_of(events, places), in_short, places, quiet_ns)
    told = with_processes(flushes, behind_ns or {}, quiet_ns)
    return [_outgoing_flush(flush, is_detail=is_detail) for flush in in_one(told)]


def with_short(
    flushes: Iterable[Flush], in_short: Iterable[Progress], places: Mapping[str, Place], quiet_ns: int = 0
) -> list[Flush]:
    """The same flushes, and up to when these promises hold: beside those that a shard is given, or alone.

    Examples
    --------
    >>> one = Progress(job="j", attempt=0, time_ns=5, host="h", communicator="c", ranks=())
    >>> home = Place(2, is_home=True)
    >>> places, flush = {"c": home, "d": home}, Flush(job="j", attempt=0, host="h", shard=2, is_home=True)
    >>> [told] = with_short([replace(flush, promises=(one,))], [replace(one, communicator="d")], places)
    >>> told.promised_ns
    {'d': 5, 'c': 5}
    >>> [told] = with_short([], [one], places)
    >>> told.promised_ns, told.key == flush.key
    ({'c': 5}, True)

    """
    told = list(flushes)
    for beating in _heartbeats(in_short, places, quiet_ns, {}):
        beside = [
            at
            for at, flush in enumerate(told)
            if (flush.key, flush.attempt) == (beating.key, beating.attempt)
            and flush.promises
            and flush.heartbeat is None
            and not flush.promises_the_last
        ]
        if beside:
            told[beside[-1]] = replace(told[beside[-1]], heartbeat=beating.heartbeat)
        else:
            told.append(beating)
    return told


def with_processes(flushes: Iterable[Flush], behind_ns: Mapping[int, int], quiet_ns: int = 0) -> list[Flush]:
    """The same flushes; the last promises of each of these attempts speak for its processes as well, behind a word.

    All promises of theirs say that they hold for `quiet_ns`.

    Examples
    --------
    >>> one = Progress(job="j", attempt=3, time_ns=5, host="h", communicator="c", ranks=())
    >>> flush = Flush(job="j", attempt=3, host="h", shard=0, promises=(one,))
    >>> [told.speaks_of_processes for told in with_processes([flush, flush], {3: 2})]
    [False, True]
    >>> [told.quiet_ns for told in with_processes([flush, flush], {3: 2}, 7)]
    [7, 7]
    >>> with_processes([flush], {2: 2}, 7) == [flush]
    True

    """
    told = list(flushes)
    until_ns = _promised_ns(told)
    last = {flush.attempt: at for at, flush in enumerate(told) if flush.promised_ns}
    for at, flush in enumerate(told):
        attempt, is_last = flush.attempt, last.get(flush.attempt) == at
        if flush.promised_ns and attempt in behind_ns and (is_last or quiet_ns):
            beat = flush.heartbeat or Heartbeat(time_ns=until_ns[attempt], communicators=(), quiet_ns=quiet_ns)
            if is_last:
                beat = replace(beat, is_of_processes=True, behind_ns=behind_ns[attempt])
            told[at] = replace(flush, heartbeat=beat)
    return told


def _promised_ns(flushes: Iterable[Flush]) -> dict[int, int]:
    """By attempt, up to when all is promised: of each communicator the last counts."""
    latest_ns: dict[tuple[int, str], int] = {}
    for flush in flushes:
        for communicator, time_ns in flush.promised_ns.items():
            key = flush.attempt, communicator
            latest_ns[key] = max(time_ns, latest_ns.get(key, time_ns))
    until_ns: dict[int, int] = {}
    for (attempt, _), time_ns in latest_ns.items():
        until_ns[attempt] = min(time_ns, until_ns.get(attempt, time_ns))
    return until_ns


def outgoing_iteration(
    settled: Iterable[HostCall],
    promised: Iterable[Progress],
    places: Mapping[str, Place],
    *,
    quiet_ns: int,
    behind_ns: Mapping[int, int],
) -> list[Outgoing]:
    """What is said of calls, and of the promises behind them no more than up to when.

    Digests of iterations, their marks and that heartbeat are one message where they can be: whoever reads it pays for
    messages. A later promise takes the place of heartbeats by themselves where room has to be made.

    Parameters
    ----------
    settled, promised
        As they are told, and how far they go.
    places
        By communicator.
    quiet_ns
        As in `Heartbeat`.
    behind_ns
        The attempts of which heartbeats speak for their processes, each with the word behind which they do.

    """
    flushes = (*flushes_of(settled, places), *_heartbeats(promised, places, quiet_ns, behind_ns))
    return [_outgoing_flush(flush) for flush in in_one(flushes)]


def in_one(flushes: Iterable[Flush]) -> Iterator[Flush]:
    """What one host says at once, of each shard in as few flushes as may be: whoever reads one pays for it.

    Calls and what is promised behind them are one flush, and their marks are said before. So are digests, marks and a
    heartbeat, where nothing else is said: whoever reads those has places for them.

    Examples
    --------
    >>> from msgspec import structs
    >>> from pacehound.model.flushes import CallPart
    >>> said = Flush(job="j", attempt=0, host="h", shard=0)
    >>> digests = CallPart(communicator="c", source="c10d digests", ordinal=0, sees=3, n_rows=0)
    >>> beat = Heartbeat(time_ns=6, communicators=("c",))
    >>> [one] = in_one([replace(said, parts=(digests,)), replace(said, heartbeat=beat)])
    >>> len(one.parts), one.heartbeat == beat
    (1, True)
    >>> calls = replace(said, parts=(structs.replace(digests, source="c10d"),))
    >>> promise = Progress(job="j", attempt=0, time_ns=5, host="h", communicator="c", ranks=())
    >>> [one] = in_one([calls, replace(said, promises=(promise,), heartbeat=beat)])
    >>> len(one.parts), len(one.promises), one.heartbeat == beat
    (1, 1, True)

    """
    by_shard: dict[str, list[Flush]] = {}
    for flush in flushes:
        by_shard.setdefault(flush.key, []).append(flush)
    for said in by_shard.values():
        yield from _iteration_in_one(said) or _calls_in_one(said)


def _iteration_in_one(said: Sequence[Flush]) -> list[Flush]:
    """Digests with their marks and a heartbeat, nothing where something else is said of the shard."""
    rows, marks = ([one for one in said if getattr(one, name)] for name in ("parts", "markers"))
    beats = [one for one in said if one.heartbeat is not None and not one.promises]
    if (len(rows), len(beats)) != (1, 1) or len(marks) != len(said) - 2 or len(marks) > 1 or not _is_of_digests(rows):
        return []
    return [replace(rows[0], markers=marks[0].markers if marks else (), heartbeat=beats[0].heartbeat)]


def _calls_in_one(said: Sequence[Flush]) -> list[Flush]:
    """All that is said of the shard, the last calls with the first promises unless these are the last ones."""
    of_calls = [at for at, one in enumerate(said) if one.parts]
    promising = [at for at, one in enumerate(said) if one.promised_ns]
    if not of_calls or not promising:
        return list(said)
    last, first = of_calls[-1], promising[0]
    rows, promised = said[last], said[first]
    # What closes is never dropped, and calls may be.
    is_closing = any(promise.closed for promise in promised.promises)
    if last > first or is_closing or _is_of_digests([rows]) or not _fit_together(rows, promised):
        return list(said)
    both = replace(rows, promises=promised.promises, heartbeat=promised.heartbeat)
    return [*said[:last], *said[last + 1 : first], both, *said[first + 1 :]]


def _fit_together(rows: Flush, promised: Flush) -> bool:
    """Half of what a flush may have of each is no more than it may have of one."""
    n_said = sum(entries_of(promise) for promise in promised.promises)
    n_said += 0 if promised.heartbeat is None else len(promised.heartbeat.communicators) // 4
    return 2 * len(rows) <= MAX_FLUSH_ROWS and 2 * n_said <= MAX_FLUSH_SAID


def _is_of_digests(rows: Iterable[Flush]) -> bool:
    return all(is_of_digests(part.source) for flush in rows for part in flush.parts)


def _heartbeats(
    promised: Iterable[Progress], places: Mapping[str, Place], quiet_ns: int, behind_ns: Mapping[int, int]
) -> Iterator[Flush]:
    by_place: dict[tuple[int, Place], list[Progress]] = {}
    for one in promised:
        by_place.setdefault((one.attempt, places[one.communicator]), []).append(one)
    for (attempt, place), of_shard in sorted(by_place.items()):
        for first in range(0, len(of_shard), MAX_FLUSH_SAID):
            some = of_shard[first : first + MAX_FLUSH_SAID]
            beat = Heartbeat(
                time_ns=some[0].time_ns,
                communicators=tuple(one.communicator for one in some),
                quiet_ns=quiet_ns,
                is_of_processes=attempt in behind_ns,
                behind_ns=behind_ns.get(attempt, 0),
            )
            yield Flush(
                job=some[0].job,
                attempt=attempt,
                host=some[0].host,
                shard=place.shard,
                is_home=place.is_home,
                heartbeat=beat,
            )


def _outgoing_flush(flush: Flush, *, is_detail: bool = False) -> Outgoing:
    kind: Kind
    if flush.parts:
        is_promised = bool(flush.promises) or flush.heartbeat is not None
        kind = "diagnostics" if is_detail else "iteration" if is_promised else "calls"
    else:
        kind = _kind(flush.said[0]) if flush.said else "progress"
    calls = 0 if is_detail else sum(part.n_rows * max(len(part.represented), 1) for part in flush.parts)
    reported = sum(part.dropped for part in flush.parts)
    return Outgoing(kind=kind, stream=flush.key, calls=calls, reported=reported, payload=codec.encode(flush))


def _kind(event: AgentEvent) -> Kind:
    if isinstance(event, CallBatch):
        return "calls"
    if isinstance(event, Progress) and not event.closed:
        return "progress"
    if isinstance(event, HostSample) and not event.closed:
        return "host"
    if isinstance(event, (HostVitals, HostEvidence, Operations)):
        return "diagnostics"
    return "markers" if isinstance(event, Markers) else "keep"
