"""Which ranks make up each communicator of a simulated job."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.links import expert_groups
from simulator.program import CommunicatorKind
from simulator.spec import JobSpec

KINDS: tuple[CommunicatorKind, ...] = ("world", "tp", "dp", "ep", "pp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """By kind: the members of each group, and for each rank the place of its group among them."""

    members: dict[CommunicatorKind, list[tuple[int, ...]]]
    place: dict[CommunicatorKind, list[int]]


def groups_of(spec: JobSpec) -> Groups:
    """All groups, those of a single rank included.

    >>> from pacehound.model.topology import Layout
    >>> groups_of(JobSpec(layout=Layout(tp=2, dp=2))).members["dp"]
    [(0, 2), (1, 3)]
    """
    layout = spec.layout
    members: dict[CommunicatorKind, list[tuple[int, ...]]] = {
        "world": [tuple(range(layout.world_size))],
        "tp": list(layout.groups("tp")),
        "dp": list(layout.groups("dp")),
        "ep": expert_groups(layout, spec.ep),
        "pp": list(layout.groups("pp")),
    }
    place = {kind: [0] * layout.world_size for kind in KINDS}
    for kind, groups in members.items():
        for index, group in enumerate(groups):
            for rank in group:
                place[kind][rank] = index
    return Groups(members=members, place=place)
