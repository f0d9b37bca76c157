"""The communicators of a simulated job."""

from __future__ import annotations

from dataclasses import dataclass

from pacehound.model.identity import communicator_id
from simulator.members import groups_of
from simulator.program import CommunicatorKind
from simulator.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """One communicator of the job."""

    id: str
    name: str
    kind: CommunicatorKind
    members: tuple[int, ...]


def communicators(spec: JobSpec) -> list[Communicator]:
    """The world first, then tensor, data, expert and pipeline groups of more than one rank."""
    named: list[tuple[str, CommunicatorKind, tuple[int, ...]]] = []
    for kind, groups in groups_of(spec).members.items():
        larger = [group for group in groups if len(group) > 1 or kind == "world"]
        named += [("world" if kind == "world" else f"{kind}{index}", kind, group) for index, group in enumerate(larger)]
    return [
        Communicator(
            id=communicator_id(spec.job, spec.attempt, name, members, 0), name=name, kind=kind, members=members
        )
        for name, kind, members in named
    ]
