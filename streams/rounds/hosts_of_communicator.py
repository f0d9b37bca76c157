"""What a communicator knows of each of its hosts, and how that is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pacehound.model.events import Progress, RankProgress
from streams.rounds.giving_up import Patience


@dataclass(slots=True)
class HostOfCommunicator:
    """How far one host has told of its calls, and how far its ranks are.

    Attributes
    ----------
    quiet_ns
        So long after it has promised something it may say nothing.
    progress
        What each of its ranks said last.

    """

    ranks: frozenset[int]
    promised_ns: int = -1
    closed: bool = False
    left_out: bool = False
    quiet_ns: int = 0
    last_progress: Progress | None = None
    progress: dict[int, RankProgress] = field(default_factory=dict)
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True)
class HostStates:
    """What a snapshot has of the hosts of a communicator besides the last progress of each, one item per host.

    That stands apart: mostly it is as the snapshot before had it.

    Attributes
    ----------
    ranks
        In ascending order.
    before
        What ranks of which its last progress says nothing said last.

    """

    names: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]
    promised_ns: tuple[int, ...]
    closed: tuple[bool, ...]
    left_out: tuple[bool, ...]
    quiet_ns: tuple[int, ...]
    before: tuple[tuple[RankProgress, ...], ...]
    patience: tuple[Patience, ...]

    @classmethod
    def of(cls, hosts: Mapping[str, HostOfCommunicator]) -> HostStates:
        """To be written down."""
        known = hosts.values()
        return cls(
            tuple(hosts),
            tuple([tuple(sorted(host.ranks)) for host in known]),
            tuple([host.promised_ns for host in known]),
            tuple([host.closed for host in known]),
            tuple([host.left_out for host in known]),
            tuple([host.quiet_ns for host in known]),
            tuple(map(_said_before, known)),
            tuple([host.patience for host in known]),
        )

    def hosts(self, last: Sequence[Progress | None]) -> dict[str, HostOfCommunicator]:
        """As they were, with what each said last; `ValueError`: there is not one item of each host."""
        if odd := [type(one).__name__ for one in last if one is not None and type(one) is not Progress]:
            raise ValueError(f"a host of a communicator has said a {odd[0]}")
        numbers = zip(self.promised_ns, self.closed, self.left_out, self.quiet_ns, strict=True)
        said = zip(last, map(_by_rank, self.before, last), self.patience, strict=True)
        each = zip(self.names, self.ranks, numbers, said, strict=True)
        return {
            name: HostOfCommunicator(frozenset(ranks), *of_host, *said_by_it)
            for name, ranks, of_host, said_by_it in each
        }


def _said_before(host: HostOfCommunicator) -> tuple[RankProgress, ...]:
    """What was said last of ranks of which the last progress says nothing, in their order."""
    told = {theirs.rank for theirs in host.last_progress.ranks} if host.last_progress is not None else set()
    if host.progress.keys() <= told:  # as nearly always
        return ()
    return tuple([host.progress[rank] for rank in sorted(host.progress.keys() - told)])


def _by_rank(before: tuple[RankProgress, ...], last: Progress | None) -> dict[int, RankProgress]:
    return {theirs.rank: theirs for theirs in (*before, *(last.ranks if last is not None else ()))}
