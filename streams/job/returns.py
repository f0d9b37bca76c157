"""Hosts that could take part in a job which goes on with fewer ranks than it had: lost ones that are back, new ones.

A job has lost ranks when a finding says so and tells the layout of before (`JobShape`); it goes on with fewer as soon
as a smaller communicator of all ranks is heard of, in the same attempt or a later one. A host is back when it was away
and speaks again, or runs a process of a lost rank again; a new one offers itself by an agent that is given the job's
name and has no rank in it. Either is told as evidence of the finding that told of the loss, once for each host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from pacehound.model.events import Finding, HostSample, Incident, Tick, Topology
from pacehound.model.evidence import merged
from pacehound.model.evidence.leaving import JobShape, Joined, Left, Process
from pacehound.model.evidence.machines import HostSilent
from pacehound.model.gone import gone_ranks
from pacehound.model.routing import HOST_STREAM, host_stream
from streams.job.operator import StageTwoEvent
from streams.job.thresholds import MOST_LOSSES, MOST_OFFERS


@dataclass(slots=True, kw_only=True)
class World:
    """The communicator of all ranks at a time: who is in it, by host."""

    attempt: int
    communicator: str
    size: int
    began_ns: int
    ranks_of: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Loss:
    """The newest one: the incident and the finding that told of it, and who is gone, by host.

    `was_told` are the hosts that have been told of as joining since.
    """

    incident: Incident
    finding: Finding
    shape: JobShape
    world: World
    lost: dict[str, tuple[int, ...]]
    was_told: tuple[str, ...] = ()


class Returns:
    """Of one job, over all its attempts; what it adds to incidents stays in their later versions."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._world: World | None = None
        self._before: World | None = None
        self._loss: Loss | None = None
        self._away: dict[str, None] = {}
        self._offers: dict[str, int] = {}  # hosts that could take part, with how many ranks
        self._joined: dict[str, Joined] = {}  # by finding
        self._more: dict[str, int] = {}  # versions of findings and incidents that were said besides those of others

    def on_event(self, event: object) -> None:
        """What hosts and communicators say."""
        match event:
            case Topology() if event.is_world:
                self._on_world(event)
            case Tick() if event.stream.startswith(HOST_STREAM):
                self._goes(event.stream.removeprefix(host_stream(self._job, "")))
            case HostSample(closed=True):
                self._goes(event.host)
            case HostSample():
                self._on_sample(event)
            case _:
                pass

    def told(self, said: Iterable[StageTwoEvent]) -> list[StageTwoEvent]:
        """What others say of findings and incidents, with what was added to them; losses are noted."""
        return [self._with_joined(one) for one in said]

    def news(self, time_ns: int, layout: Callable[[int], JobShape | None]) -> list[StageTwoEvent]:
        """The finding and the incident anew where a host could take part of which nobody has been told.

        `layout` tells how the ranks of an attempt are laid out now.
        """
        loss, world = self._loss, self._world
        if loss is None or world is None or not self._goes_on_with_fewer(loss, world):
            return []
        offers = {host: n for host, n in self._offers.items() if host not in world.ranks_of}
        if not offers.keys() - set(loss.was_told):
            return []
        loss.was_told = tuple(sorted({*loss.was_told, *offers}))
        layout_now = layout(world.attempt)
        joined = Joined(
            back=tuple(sorted(offers.keys() & loss.lost.keys())),
            new=tuple(sorted(offers.keys() - loss.lost.keys())),
            n_ranks=sum(offers.values()),
            n_now=world.size,
            n_before=loss.world.size,
            at_ns=max(time_ns, loss.incident.time_ns),
            dp=0 if layout_now is None else layout_now.dp,
            pp=0 if layout_now is None else layout_now.pp,
        )
        self._keep(loss, joined)
        finding = loss.finding.next_version(joined)
        findings = tuple(finding if one.id == finding.id else one for one in loss.incident.findings)
        incident = replace(loss.incident, version=loss.incident.version + 1, time_ns=joined.at_ns, findings=findings)
        loss.finding, loss.incident = finding, incident
        return [finding, incident]

    def _on_world(self, topology: Topology) -> None:
        known = self._world
        if known is not None and topology.attempt < known.attempt:
            return
        if known is None or (topology.attempt, topology.communicator) != (known.attempt, known.communicator):
            self._before = known
            self._world = known = World(
                attempt=topology.attempt,
                communicator=topology.communicator,
                size=topology.world_size,
                began_ns=topology.time_ns,
            )
            if self._loss is not None and known.size >= self._loss.world.size:
                self._loss = None  # it has all its ranks again
        known.ranks_of[topology.host] = topology.host_ranks
        self._offers.pop(topology.host, None)
        self._away.pop(topology.host, None)

    def _goes(self, host: str) -> None:
        """It is not heard any more, or its command has ended."""
        self._offers.pop(host, None)
        self._away[host] = None
        for oldest in list(self._away)[:-MOST_OFFERS]:
            del self._away[oldest]

    def _on_sample(self, sample: HostSample) -> None:
        loss, world = self._loss, self._world
        was_away = sample.host in self._away
        self._away.pop(sample.host, None)
        if loss is None or world is None:
            return
        lost = loss.lost.get(sample.host, ())
        running = {process.rank: process.pid for process in sample.processes if process.state == "running"}
        if sample.host in world.ranks_of and sample.attempt == world.attempt:
            return
        n_ranks = 0
        if lost and was_away:
            n_ranks = len(lost)
        elif lost and sample.attempt == loss.finding.attempt:
            gone = _pids(loss.finding)
            n_ranks = sum(rank in running and running[rank] != gone.get(rank) for rank in lost)
        elif not lost and sample.host not in loss.world.ranks_of:
            n_ranks = len(running) or max(map(len, loss.world.ranks_of.values()), default=0)
        if n_ranks and (sample.host in self._offers or len(self._offers) < MOST_OFFERS):
            self._offers[sample.host] = n_ranks

    def _with_joined(self, said: StageTwoEvent) -> StageTwoEvent:
        match said:
            case Finding():
                return self._finding(said)
            case Incident():
                findings = tuple(map(self._finding, said.findings))
                version = said.version + self._more.get(said.id, 0)
                incident = replace(said, version=version, findings=findings)
                self._note_loss(incident)
                return incident
            case _:
                return said

    def _finding(self, finding: Finding) -> Finding:
        joined = self._joined.get(finding.id)
        if joined is None:
            return finding
        version = finding.version + self._more.get(finding.id, 0)
        return replace(finding, version=version, evidence=merged(finding.evidence, (joined,)))

    def _note_loss(self, incident: Incident) -> None:
        """The finding of an incident that tells who is gone, and how the job was laid out."""
        for finding in incident.findings:
            gone = gone_ranks(finding)
            shape = next((piece for piece in finding.evidence if isinstance(piece, JobShape)), None)
            world = self._world_of(finding)
            if shape is None or world is None or shape.dp * shape.pp * shape.tp != world.size or not gone:
                continue
            known = self._loss
            if known is not None and known.finding.id != finding.id and _onset_ns(known.finding) > _onset_ns(finding):
                continue
            lost = {
                host: here
                for host, ranks in world.ranks_of.items()
                if (here := tuple(rank for rank in ranks if rank in gone))
            }
            was_told = known.was_told if known is not None and known.finding.id == finding.id else ()
            self._loss = Loss(
                incident=incident, finding=finding, shape=shape, world=world, lost=lost, was_told=was_told
            )
            for piece in finding.evidence:
                if isinstance(piece, HostSilent) and not was_told:
                    self._away |= dict.fromkeys(piece.hosts)

    def _world_of(self, finding: Finding) -> World | None:
        """The one that a finding is about: a smaller one may have begun since its onset."""
        if self._loss is not None and self._loss.finding.id == finding.id:
            return self._loss.world
        for world in (self._world, self._before):
            if world is not None and world.attempt == finding.attempt and world.began_ns <= _onset_ns(finding):
                return world
        return None

    @staticmethod
    def _goes_on_with_fewer(loss: Loss, world: World) -> bool:
        is_later = world.attempt > loss.world.attempt or world.communicator != loss.world.communicator
        return is_later and world.size < loss.world.size

    def _keep(self, loss: Loss, joined: Joined) -> None:
        self._joined[loss.finding.id] = joined
        for one in (loss.finding.id, loss.incident.id):
            self._more[one] = self._more.pop(one, 0) + 1
        for oldest in list(self._more)[: -2 * MOST_LOSSES]:
            del self._more[oldest]
            self._joined.pop(oldest, None)


def _onset_ns(finding: Finding) -> int:
    return 0 if finding.onset is None else finding.onset.time_ns


def _pids(finding: Finding) -> dict[int, int]:
    """Of the processes that are gone."""
    return {piece.rank: piece.pid for piece in finding.evidence if isinstance(piece, (Left, Process))}
