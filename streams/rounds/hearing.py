"""What communicators hear of a message that tells of many: each part of it by itself, and its rows made ready once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pacehound.errors import PartlyRefused, RejectedMessage
from pacehound.model.events import Watermark
from pacehound.model.flushes import Flush, Heartbeat
from pacehound.model.relayed import Relayed, RelayedPart
from pacehound.model.routing import host_stream
from streams.rounds.call_rows import CallRows, rows_of_flush
from streams.rounds.stage_one import StageOne, StageTwoInput


def conclude_flush(flush: Flush, stage_of: Callable[[str], StageOne]) -> list[StageTwoInput]:
    """What follows from a flush, and at once from what it promises; errors as in `hear_flush`."""

    def concluded() -> list[StageTwoInput]:
        return [result for communicator in flush.promised for result in stage_of(communicator).advance()]

    try:
        return [*hear_flush(flush, stage_of), *concluded()]
    except PartlyRefused as error:
        raise error.with_results([*error.results, *concluded()]) from error


class _Heard:
    """What follows from parts of a message, and which of them are refused: those take no other with them."""

    def __init__(self) -> None:
        self.results: list[StageTwoInput] = []
        self.refused: list[RejectedMessage] = []
        self.by_host: dict[str, RejectedMessage] = {}

    def hear(self, host: str, what: Callable[[], Iterable[StageTwoInput] | None]) -> None:
        """One part, which this host has said."""
        try:
            self.results.extend(what() or ())
        except RejectedMessage as error:
            self.refuse(host, error)

    def refuse(self, host: str, error: RejectedMessage) -> None:
        """A part that this host has said."""
        self.refused.append(error)
        self.by_host.setdefault(host, error)

    def all(self, message: str) -> list[StageTwoInput]:
        """What follows from all of them, or `PartlyRefused`."""
        if self.refused:
            reason = f"{len(self.refused)} parts of {message} are refused, the first one: {self.refused[0]}"
            raise PartlyRefused(reason, self.results, by_host=self.by_host)
        return self.results


def hear_flush(flush: Flush, stage_of: Callable[[str], StageOne]) -> list[StageTwoInput]:
    """What follows from a flush but for what it promises: which rounds that closes is to be asked (`StageOne.advance`).

    Its parts reach the communicators one by one, and its rows are made ready once.

    Raises
    ------
    PartlyRefused
        Some of it cannot be true, or belongs to nothing that is known; the rest was taken, and what follows from that
        is with the error.

    """
    heard = _Heard()
    heard.results += flush.vitals
    _hear_said(flush, heard, stage_of)
    if flush.heartbeat is not None:
        _take_beats([(flush.host, flush.heartbeat)], heard, stage_of)
        heard.results += of_processes(flush)
    return heard.all("a flush")


def hear_relayed(said: Relayed, stage_of: Callable[[str], StageOne]) -> list[StageTwoInput]:
    """What follows from what a home has relayed, but for what it promises, as of a flush; errors as in `hear_flush`."""
    heard = _Heard()
    _hear_said(said, heard, stage_of)
    _take_beats([(one.host, one.beat) for one in said.beats], heard, stage_of)
    return heard.all("what was relayed")


def _hear_said(said: Flush | Relayed, heard: _Heard, stage_of: Callable[[str], StageOne]) -> None:
    """All but heartbeats, in order; one host that says what cannot be takes no other's rows with it."""
    for topology in said.topologies:
        heard.hear(topology.host, lambda one=topology: stage_of(one.communicator).on_event(one))  # type: ignore[misc]
    if said.parts:
        rows = rows_of_flush(said)
        for part, where in zip(said.parts, said.slices(), strict=True):
            try:
                heard.results += _hear_rows(said, part, where, rows, stage_of)
            except RejectedMessage as error:
                if isinstance(said, Flush):
                    heard.refuse(said.host, error)
                    continue
                assert isinstance(part, RelayedPart), "as each of what was relayed"
                for mine, its in said.by_host(part, where):
                    heard.hear(mine.hosts[0], lambda p=mine, w=its: _hear_rows(said, p, w, rows, stage_of))  # type: ignore[misc]
    for marks in said.markers:
        heard.hear(marks.host, lambda one=marks: stage_of(one.communicator).on_event(one))  # type: ignore[misc]
    for promise in said.promises:
        heard.hear(promise.host, lambda one=promise: stage_of(one.communicator).on_promise(one))  # type: ignore[misc]


def _take_beats(beats: Iterable[tuple[str, Heartbeat]], heard: _Heard, stage_of: Callable[[str], StageOne]) -> None:
    """Each communicator hears at once of all hosts whose hearts beat; who cannot have said that takes no other's."""
    of_each: dict[str, list[tuple[str, Heartbeat]]] = {}
    for host, beat in beats:
        for name in beat.communicators:
            of_each.setdefault(name, []).append((host, beat))
    for name, some in of_each.items():
        try:
            stage_of(name).take_heartbeats(some)
        except RejectedMessage:
            for one in some:
                heard.hear(one[0], lambda n=name, beat=one: stage_of(n).take_heartbeats([beat]))  # type: ignore[misc]


def _hear_rows(
    said: Flush | Relayed, part: Any, where: slice, rows: CallRows, stage_of: Callable[[str], StageOne]
) -> list[StageTwoInput]:
    return stage_of(part.communicator).on_rows(part, where, rows, said.hosts_of(part), lambda: said.batch(part, where))


def of_processes(flush: Flush) -> list[Watermark]:
    """That the host's processes go on, if its heartbeat says so."""
    beat = flush.heartbeat
    if beat is None or not beat.is_of_processes:
        return []
    stream = host_stream(flush.job, flush.host)
    return [
        Watermark(job=flush.job, attempt=flush.attempt, time_ns=beat.time_ns, stream=stream, behind_ns=beat.behind_ns)
    ]
