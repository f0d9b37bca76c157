"""Stage one on the key of a shard: all its communicators, of which each host tells at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from pacehound.errors import InvalidEvent, PartlyRefused, RejectedMessage
from pacehound.model.events import Tick, Topology, Watermark
from pacehound.model.flushes import Flush
from pacehound.model.routing import Event, host_stream
from pacehound.settings import Settings
from streams.rounds.call_rows import rows_of_flush
from streams.rounds.held_back import HeldBack
from streams.rounds.stage_one import OpenStream, StageOne, StageTwoInput

MAX_OVER = 1_000
"""Communicators that are over, and whose late rows are still recognised as such."""


def hear_flush(flush: Flush, stage_of: Callable[[str], StageOne]) -> list[StageTwoInput]:
    """What follows from a flush: its parts reach the communicators one by one, and its rows are made ready once.

    Raises
    ------
    PartlyRefused
        Some of it cannot be true, or belongs to nothing that is known; the rest was taken, and what follows from that
        is with the error.

    """
    results: list[StageTwoInput] = []
    refused: list[RejectedMessage] = []

    def hear(what: Callable[[], Iterable[StageTwoInput]]) -> None:
        try:
            results.extend(what())
        except RejectedMessage as error:
            refused.append(error)

    for topology in flush.topologies:
        hear(lambda said=topology: stage_of(said.communicator).on_event(said))  # type: ignore[misc]
    if flush.parts:
        rows = rows_of_flush(flush)
        for part, where in zip(flush.parts, flush.slices(), strict=True):
            hear(lambda p=part, w=where: stage_of(p.communicator).on_rows(flush, p, w, rows))  # type: ignore[misc]
    for said in (*flush.markers, *flush.promises):
        hear(lambda one=said: stage_of(one.communicator).on_event(one))  # type: ignore[misc]
    if (heartbeat := flush.heartbeat) is not None:
        for communicator in heartbeat.communicators:
            try:
                results += stage_of(communicator).on_heartbeat(flush.host, heartbeat)
            except RejectedMessage as error:
                refused.append(error)
        if heartbeat.is_of_processes:
            stream = host_stream(flush.job, flush.host)
            results.append(Watermark(job=flush.job, attempt=flush.attempt, time_ns=heartbeat.time_ns, stream=stream))
    if refused:
        raise PartlyRefused(f"{len(refused)} parts of a flush are refused, the first one: {refused[0]}", results)
    return results


class _Hosts:
    """All that are in some communicators: asked each second, and of thousands of hosts different hardly ever."""

    def __init__(self) -> None:
        self._of: list[tuple[str, ...]] = []
        self._all: tuple[str, ...] = ()

    def of(self, hosts: list[tuple[str, ...]]) -> tuple[str, ...]:
        if len(hosts) != len(self._of) or any(now is not before for now, before in zip(hosts, self._of, strict=True)):
            self._of, self._all = hosts, tuple(dict.fromkeys(host for some in hosts for host in some))
        return self._all


class Shard:
    """The communicators of a shard, each with its own stage one.

    >>> from pacehound.settings import Settings
    >>> Shard(Settings()).on_event(Tick(job="j", attempt=0, time_ns=5, stream="shard:j/0/0"))
    []
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lateness_ns = round(settings.stream.lateness_s * 1e9)
        self._stages: dict[str, StageOne] = {}
        self._over: dict[str, None] = {}  # in the order in which they were over
        self._held = HeldBack(round(settings.stream.tick_s * 1e9))
        self._quiet_ns = 0  # for how long a host may say nothing, as one said last
        self._beat_ns: dict[str, int] = {}  # by host whose heart beats, when it did last
        self._hosts = _Hosts()

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the rest."""
        return {name: value for name, value in self.__dict__.items() if name != "_hosts"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Who is in it is put together again when somebody asks."""
        self.__dict__.update(state)
        self._hosts = _Hosts()

    def on_event(self, event: Event) -> list[StageTwoInput]:
        """One event; what stage two has to know of it, in order, or when it is of use to it (`held_back`).

        Raises
        ------
        InvalidEvent
            The event cannot be true, or belongs to nothing that is known; it has changed nothing. (`PartlyRefused`:
            that holds of a part of it.)

        """
        try:
            return self._held_back(event, self._on_event(event))
        except PartlyRefused as error:
            taken = [cast(StageTwoInput, result) for result in error.results]
            raise PartlyRefused(str(error), self._held_back(event, taken)) from error
        finally:
            self._note_over(event)

    def _on_event(self, event: Event) -> list[StageTwoInput]:
        match event:
            case Flush():
                results = hear_flush(event, self._stage)
                self._note_heartbeat(event)
                return results
            case Topology():
                return self._stage(event.communicator).on_event(event)
            case Tick():
                return [
                    *self._silent(event),
                    *(
                        result
                        for communicator, stage in self._stages.items()
                        for result in stage.on_event(replace(event, stream=communicator))
                    ),
                ]
            case _:
                raise InvalidEvent(f"a {type(event).__name__} does not travel with a shard")

    def _note_heartbeat(self, flush: Flush) -> None:
        """That of a host which has announced itself, or it would have been refused."""
        if flush.heartbeat is not None and flush.heartbeat.communicators:
            self._quiet_ns = flush.heartbeat.quiet_ns
            self._beat_ns[flush.host] = flush.heartbeat.time_ns
        elif flush.promises:
            self._beat_ns.pop(flush.host, None)  # its samples follow each other again

    def _silent(self, tick: Tick) -> list[StageTwoInput]:
        """Hosts whose hearts beat no more: their samples, which these stood for, are silent as well."""
        before_ns = tick.time_ns - self._lateness_ns - self._quiet_ns
        silent = [host for host, beat_ns in self._beat_ns.items() if beat_ns < before_ns]
        return [replace(tick, stream=host_stream(tick.job, host)) for host in silent]

    def _held_back(self, event: Event, results: Sequence[StageTwoInput]) -> list[StageTwoInput]:
        self._held.expect(one for one in self._touched(event) if one in self._stages)
        return self._held.take(results)

    @property
    def is_closed(self) -> bool:
        """All that has been told of is over; a job may yet make another communicator."""
        return not self._stages and bool(self._over)

    def shed(self) -> None:
        """What is left of communicators that are over is small already."""

    def open_stream(self) -> OpenStream | None:
        """All its streams as one: whoever tells of one of them tells of the others."""
        streams = [opened for stage in self._stages.values() if (opened := stage.open_stream()) is not None]
        if not streams:
            return None
        return OpenStream(
            job=streams[0].job,
            attempt=streams[0].attempt,
            hosts=self._hosts.of([opened.hosts for opened in streams]),
            is_complete=all(opened.is_complete for opened in streams),
            quiet_s=self._quiet_ns / 1e9,
        )

    def _stage(self, communicator: str) -> StageOne:
        if communicator in self._over:
            return self._over_stage()
        stage = self._stages.get(communicator)
        if stage is None:
            stage = self._stages[communicator] = StageOne(self._settings)
        return stage

    def _note_over(self, event: Event) -> None:
        """Keep no state of what is over with this, nor of what was refused before it was known."""
        for communicator in self._touched(event):
            stage = self._stages.get(communicator)
            if stage is None:
                continue
            if stage.is_closed:
                self._over[communicator] = None
            if stage.is_closed or stage.communicator is None:
                del self._stages[communicator]
                self._held.forget([communicator])
        while len(self._over) > MAX_OVER:
            del self._over[next(iter(self._over))]

    def _touched(self, event: Event) -> list[str]:
        return event.communicators if isinstance(event, Flush) else list(self._stages)

    def _over_stage(self) -> StageOne:
        """Takes nothing: what comes was sent twice."""
        stage = StageOne(self._settings)
        stage.is_closed = True
        return stage
