"""Communicators whose members are evenly spaced, as most are, said in three numbers.

A host announces each communicator with all its members: of the world of 16,384 ranks 90 KB, from each of 2,048 hosts.
What a host says at once (`pacehound.model.flushes`), and what follows from it, has first, step and number of them
instead, and readers share the ranks that they make of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from pacehound.errors import InvalidEvent
from pacehound.model.evenly_spaced import SHARED
from pacehound.model.events import MAX_WORLD_RANKS, Topology

LEAST = 8
"""Members of which a span is shorter than the ranks themselves."""

MAX_AT_ONCE = MAX_WORLD_RANKS
"""Members that the spans of one message may stand for: the largest world, or many smaller communicators."""

_SAME = tuple(field.name for field in fields(Topology) if field.name not in ("job", "attempt", "members"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpannedTopology:
    """A `Topology` without its members, which are `first`, `first + step`, and so on; `at` is its place among others.

    Its attributes are those of `Topology`.
    """

    at: int
    first: int
    step: int
    n_members: int
    time_ns: int
    host: str
    communicator: str
    name: str
    is_world: bool
    host_ranks: tuple[int, ...]
    world_size: int
    generation: int = 0
    backend: str = ""
    timeout_s: float | None = None


def in_short(topologies: Iterable[Topology]) -> tuple[tuple[Topology, ...], tuple[SpannedTopology, ...]]:
    """Those that have to be said in full, and the others, as they travel.

    >>> world = Topology(job="j", attempt=0, time_ns=5, host="h", communicator="c", name="world", is_world=True,
    ...                  members=tuple(range(64)), host_ranks=(0, 1), world_size=64)
    >>> full, short = in_short([world])
    >>> full, (short[0].first, short[0].step, short[0].n_members)
    ((), (0, 1, 64))
    >>> in_full(full, short, job="j", attempt=0) == (world,)
    True

    """
    full: list[Topology] = []
    short: list[SpannedTopology] = []
    for at, one in enumerate(topologies):
        step = one.members[1] - one.members[0] if len(one.members) >= LEAST else 0
        if not (step > 0 and _are_evenly_spaced(one, step)):
            full.append(one)
            continue
        said = {name: getattr(one, name) for name in _SAME}
        short.append(SpannedTopology(at=at, first=one.members[0], step=step, n_members=len(one.members), **said))
    return tuple(full), tuple(short)


def _are_evenly_spaced(one: Topology, step: int) -> bool:
    """Its members lie so far apart: those that were shared before are not compared one by one."""
    members = one.members
    return SHARED.made(members) is not None or (
        not one.is_partial and members == SHARED.of(members[0], step, len(members))
    )


def in_full(
    full: Sequence[Topology], short: Sequence[SpannedTopology], *, job: str, attempt: int
) -> tuple[Topology, ...]:
    """All of them, in their order.

    Raises
    ------
    InvalidEvent
        A span does not lie in its world, stands for too much, or has a place that there is not.

    """
    if not short:
        return tuple(full)
    if sum(one.n_members for one in short) > MAX_AT_ONCE:
        raise InvalidEvent(f"spans stand for {sum(one.n_members for one in short)} members; at most {MAX_AT_ONCE} do")
    made: dict[int, Topology] = {}
    for one in short:
        last = one.first + one.step * (one.n_members - 1)
        if min(one.first, one.step - 1, one.n_members - 1) < 0 or last >= min(one.world_size, MAX_WORLD_RANKS):
            raise InvalidEvent(
                f"communicator {one.name!r} has {one.n_members} members from {one.first} on, {one.step} apart, "
                f"in a world of {one.world_size} ranks"
            )
        said = {name: getattr(one, name) for name in _SAME}
        members = SHARED.of(one.first, one.step, one.n_members)
        made[one.at] = Topology(job=job, attempt=attempt, members=members, **said)
    others = iter(full)
    n_all = len(full) + len(short)
    if len(made) < len(short) or not made.keys() <= set(range(n_all)):
        raise InvalidEvent(f"{len(short)} spans have the places {sorted(one.at for one in short)[:8]} among {n_all}")
    return tuple(made[at] if at in made else next(others) for at in range(n_all))
