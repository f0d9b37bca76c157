"""Who tells of a communicator: the hosts of its members, how far each has told, and up to when all have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.errors import InvalidEvent
from pacehound.model.events import Progress, RankProgress, Topology
from pacehound.model.flushes import Heartbeat
from streams.rounds.giving_up import Patience
from streams.rounds.merge import CLOSED_NS

BoolArray = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]


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

    @property
    def is_away(self) -> bool:
        """It is not waited for."""
        return self.closed or self.left_out


class HostsOfCommunicator:
    """All hosts that have announced themselves.

    Parameters
    ----------
    column
        Of each member, by its world rank, its place in the communicator.
    created_ns
        When the first host said that there is such a communicator.
    lateness_ns
        A host that has been silent for so long is left out, and those of members that nobody has announced are
        waited for so long.

    Attributes
    ----------
    gone
        Ranks of hosts that are closed.
    may_rise
        Whether `lowest_promise_ns` may be another one than when it was asked last.
    n_backward
        Promises that said less than the one before.

    """

    def __init__(self, column: Mapping[int, int], created_ns: int, lateness_ns: int) -> None:
        self._column, self._created_ns, self._lateness_ns = column, created_ns, lateness_ns
        self._known: dict[str, HostOfCommunicator] = {}
        self._ticked_ns = -1
        self.n_backward = 0
        self.may_rise = False
        self._begin()

    def _begin(self) -> None:
        """What follows from the rest."""
        self._claimed = {rank: name for name, host in self._known.items() for rank in host.ranks}
        self.gone = {rank for host in self._known.values() if host.closed for rank in host.ranks}
        self._lowest: tuple[int, int] | None = None  # the lowest promise of open hosts, and how many have to leave it
        self._open: tuple[str, ...] | None = None  # nothing: one has come, closed or opened since
        self._is_whole: bool | None = None  # nothing: a host has come, gone or come back since
        self._unheard: Mapping[str, Heartbeat] | None = None  # of all hosts, as far as only the lowest promise knows

    @property
    def state(self) -> tuple[HostStates, list[Progress | None]]:
        """What a snapshot has of them: what each said last stands apart, for mostly it is as before."""
        self._hear_all()
        states = HostStates.of(self._known, self._created_ns, self._ticked_ns, self.n_backward)
        return states, [host.last_progress for host in self._known.values()]

    @classmethod
    def of_state(cls, state: Any, column: Mapping[int, int], lateness_ns: int) -> HostsOfCommunicator:
        """As they were; `ValueError`: they cannot have been."""
        states, last = state
        made = cls(column, states.created_ns, lateness_ns)
        made._known, made._ticked_ns, made.n_backward = states.hosts(last), states.ticked_ns, states.n_backward
        made.may_rise = True
        made._begin()
        if strangers := sorted(made._claimed.keys() - column.keys()):
            raise ValueError(f"hosts of a communicator have the ranks {strangers[:8]}, which are no members")
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def get(self, name: str) -> HostOfCommunicator | None:
        """A host that has announced itself."""
        return self._known.get(name)

    @property
    def names(self) -> Collection[str]:
        """Those that have announced themselves, in that order."""
        return self._known.keys()

    @property
    def open(self) -> tuple[str, ...]:
        """Those that are not closed; the same tuple while they are the same."""
        if self._open is None:
            self._open = tuple(name for name, host in self._known.items() if not host.closed)
        return self._open

    @property
    def is_complete(self) -> bool:
        """Every member has been claimed by a host."""
        return len(self._claimed) == len(self._column)

    @property
    def is_whole(self) -> bool:
        """All members are running, as far as is known."""
        if self._is_whole is None:
            self._is_whole = self.is_complete and not any(host.is_away for host in self._known.values())
        return self._is_whole

    def announce(self, topology: Topology) -> bool:
        """A host announces itself, or more of its ranks; whether there is anything new in that.

        Raises
        ------
        InvalidEvent
            One of its ranks is another host's; none of them is its own then.

        """
        for rank in topology.host_ranks:
            owner = self._claimed.get(rank, topology.host)
            if owner != topology.host:
                raise InvalidEvent(f"rank {rank} is announced by host {topology.host!r} and by host {owner!r}")
        self._claimed.update(dict.fromkeys(topology.host_ranks, topology.host))
        self._hear_all()
        known = self._known.get(topology.host)
        ranks = frozenset(topology.host_ranks)
        self._open = self._is_whole = None
        if known is None:
            self._known[topology.host] = HostOfCommunicator(ranks)
        elif ranks <= known.ranks:
            return False  # sent twice: it must not open again what is closed
        else:
            known.ranks |= ranks
            self._set_away(known, is_left_out=known.left_out, is_closed=False)
        return True

    def promise(self, host: HostOfCommunicator, progress: Progress) -> bool:
        """What a host says of how far it is; whether later stages are to know of it."""
        self._hear_all()
        host.patience.renew()
        if progress == host.last_progress:  # sent twice: later stages have it
            self.may_rise = True
            return False
        if progress.time_ns < host.promised_ns:
            self.n_backward += 1
            if not progress.closed:
                return False
        # Where a host's last promise lay beyond the watermark, others hold it back. Looking at all of them at each
        # promise of each would take hosts squared.
        self.may_rise |= (
            host.left_out or progress.closed != host.closed or host.closed or self._moves(host, progress.time_ns)
        )
        host.last_progress = progress
        host.promised_ns, host.quiet_ns = max(host.promised_ns, progress.time_ns), 0
        self._set_away(host, is_left_out=False, is_closed=progress.closed)
        for theirs in progress.ranks:
            host.progress[theirs.rank] = theirs
        return True

    def beat_at_once(self, beats: Mapping[str, Heartbeat], times_ns: Mapping[str, int], since_ns: int) -> int | None:
        """The lowest of the heartbeats of all hosts; `None`: each is to be heard (`beat`).

        That is where a host is away or says nothing, or one was further already (`since_ns`). Who has promised what is
        written down when somebody asks.
        """
        if not self.is_whole or not beats.keys() >= self._known.keys():
            return None
        lowest_ns = min(map(times_ns.__getitem__, self._known))
        if lowest_ns < since_ns:
            return None
        self._lowest, self._unheard = None, beats
        return lowest_ns

    def beat(self, beats: Sequence[tuple[str, Heartbeat]]) -> None:
        """Hosts promise the same up to a later time, and do not say how far their ranks are."""
        self._hear_all()
        if len(beats) > 1:
            self._lowest = None  # it is looked for once, and not followed from one to the next
        for name, one in beats:
            self.may_rise |= self._hear(self._known[name], one)

    def tick(self, time_ns: int, among: Collection[str] | None = None) -> None:
        """Time has passed in a stream in which a host is silent: who is too far behind is left out, then given up.

        That is told of some hosts (`among`), and then nothing of those that nobody has announced; of none, and then of
        these alone; or of all (`None`).
        """
        if not among or self.is_complete:
            self._ticked_ns = max(self._ticked_ns, time_ns)
        self._hear_all()
        for name, host in self._known.items():
            if among is not None and name not in among:
                continue
            if host.closed or host.promised_ns + host.quiet_ns >= time_ns - self._lateness_ns:
                continue
            is_given_up = host.patience.ends(time_ns)
            self._set_away(host, is_left_out=not is_given_up, is_closed=is_given_up)
        self.may_rise = True

    def lowest_promise_ns(self) -> int:
        """Up to when all hosts that count have told; -1 while a member's host is unknown and may still come."""
        self._hear_all()
        self._lowest = None
        if not self.is_complete and self._ticked_ns < self._created_ns + self._lateness_ns:
            return -1
        hosts = self._known.values()
        open_promises = [host.promised_ns for host in hosts if not host.is_away]
        if open_promises:
            lowest_ns = min(open_promises)
            self._lowest = lowest_ns, open_promises.count(lowest_ns)
            return lowest_ns
        if hosts and not any(host.left_out for host in hosts):
            return CLOSED_NS
        return self._ticked_ns - self._lateness_ns if self._ticked_ns >= 0 else -1

    def running(self) -> tuple[BoolArray, Int64Array]:
        """Which members may still send rows, and from which sequence number on."""
        running = np.zeros(len(self._column), np.bool_)
        expected_from = np.zeros(len(self._column), np.int64)
        for host in self._known.values():
            if host.is_away:
                continue
            for rank in host.ranks:
                column = self._column[rank]
                running[column] = True
                progress = host.progress.get(rank)
                if progress is not None:
                    open_seq = [call.seq for call in progress.open if call.direction == "none"]
                    expected_from[column] = min([*open_seq, progress.last_launched + 1])
        return running, expected_from

    def expected_of_pair(self, sender: int, receiver: int) -> Int64Array | None:
        """The first number that each side may still send, by its own counters; `None` where one does not count."""
        expected_from = []
        for rank, peer, direction in ((sender, receiver, "send"), (receiver, sender, "recv")):
            progress = self._progress_of(rank)
            if progress is None:
                return None
            counted = [p.last_launched for p in progress.pairs if p.peer == peer and p.direction == direction]
            if not counted:
                return None
            waiting = [c.seq for c in progress.open if c.peer == peer and c.direction == direction]
            expected_from.append(min([*waiting, counted[0] + 1]))
        return np.array(expected_from, np.int64)

    def has_open_pair_call(self, rank: int) -> bool:
        """A point-to-point row of this rank may still come: one of its p2p calls is open."""
        if rank in self.gone:
            return False
        progress = self._progress_of(rank)
        return progress is not None and any(call.direction != "none" for call in progress.open)

    def _progress_of(self, rank: int) -> RankProgress | None:
        host = self._known.get(self._claimed.get(rank, ""))
        return host.progress.get(rank) if host is not None else None

    def _hear_all(self) -> None:
        """Those heartbeats of which only the lowest promise knows."""
        beats, self._unheard = self._unheard, None
        if beats is not None:
            for name, host in self._known.items():
                self._hear(host, beats[name])

    def _hear(self, host: HostOfCommunicator, beat: Heartbeat) -> bool:
        """Whether the lowest promise may rise with it."""
        host.patience.renew()
        if host.is_away or beat.time_ns < host.promised_ns:
            return self._beats_again(host, beat)
        may_rise = self._lowest is None or self._moves(host, beat.time_ns)
        host.promised_ns, host.quiet_ns = beat.time_ns, beat.quiet_ns
        return may_rise

    def _beats_again(self, host: HostOfCommunicator, heartbeat: Heartbeat) -> bool:
        """Whether the lowest promise may rise with that of a host which was away, or has promised more before."""
        has_said_the_last = host.is_away and host.last_progress is not None and host.last_progress.closed
        if has_said_the_last or heartbeat.time_ns < host.promised_ns:
            self.n_backward += 1
            return False
        host.promised_ns, host.quiet_ns = heartbeat.time_ns, heartbeat.quiet_ns
        self._set_away(host, is_left_out=False, is_closed=False)
        return True

    def _set_away(self, host: HostOfCommunicator, *, is_left_out: bool, is_closed: bool) -> None:
        if host.closed != is_closed:
            self._open = self._is_whole = None
        if host.left_out != is_left_out:
            self._is_whole = None
        host.left_out, host.closed = is_left_out, is_closed
        if is_closed:
            self.gone |= host.ranks
        else:
            self.gone -= host.ranks

    def _moves(self, host: HostOfCommunicator, promised_ns: int) -> bool:
        """Whether a promise of an open host may raise the lowest: the last of those that held it back moves on."""
        if self._lowest is None:
            return True
        lowest_ns, n_hosts = self._lowest
        if host.promised_ns == lowest_ns and promised_ns > lowest_ns:
            n_hosts -= 1
            self._lowest = lowest_ns, n_hosts
        return n_hosts <= 0


@dataclass(frozen=True, slots=True)
class HostStates:
    """What a snapshot has of the hosts of a communicator besides the last progress of each.

    Attributes
    ----------
    names, ranks, promised_ns, closed, left_out, quiet_ns, patience
        One item per host; ranks in ascending order.
    before
        Per host, what ranks of which its last progress says nothing said last.
    created_ns, ticked_ns, n_backward
        Of all of them.

    """

    names: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]
    promised_ns: tuple[int, ...]
    closed: tuple[bool, ...]
    left_out: tuple[bool, ...]
    quiet_ns: tuple[int, ...]
    before: tuple[tuple[RankProgress, ...], ...]
    patience: tuple[Patience, ...]
    created_ns: int
    ticked_ns: int
    n_backward: int

    @classmethod
    def of(
        cls, hosts: Mapping[str, HostOfCommunicator], created_ns: int, ticked_ns: int, n_backward: int
    ) -> HostStates:
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
            created_ns,
            ticked_ns,
            n_backward,
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
