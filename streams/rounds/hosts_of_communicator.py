"""What a communicator knows of each of its hosts, and how that is written down."""

from __future__ import annotations

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


@dataclass(slots=True)
class HostState:
    """What a snapshot has of a host.

    `ranks` in ascending order; `before` holds what ranks of which its last progress says nothing said last.
    """

    ranks: tuple[int, ...]
    promised_ns: int
    closed: bool
    left_out: bool
    quiet_ns: int
    last_progress: Progress | None
    before: tuple[RankProgress, ...]
    since_ns: int | None
    ticked_ns: int

    @classmethod
    def of(cls, host: HostOfCommunicator) -> HostState:
        """To be written down."""
        last, before = host.last_progress, host.progress
        if last is not None and before:
            told = {theirs.rank for theirs in last.ranks}
            before = {} if before.keys() <= told else {r: said for r, said in before.items() if r not in told}
        return cls(
            tuple(sorted(host.ranks)),
            host.promised_ns,
            host.closed,
            host.left_out,
            host.quiet_ns,
            last,
            tuple([before[rank] for rank in sorted(before)]) if before else (),
            *host.patience.state,
        )

    def host(self) -> HostOfCommunicator:
        """As it was."""
        last = self.last_progress
        said = [*self.before, *last.ranks] if last is not None else self.before
        return HostOfCommunicator(
            frozenset(self.ranks),
            self.promised_ns,
            self.closed,
            self.left_out,
            self.quiet_ns,
            last,
            {theirs.rank: theirs for theirs in said},
            Patience((self.since_ns, self.ticked_ns)),
        )
