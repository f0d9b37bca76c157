"""Decides from the progress of a host's own ranks that they do not go on, and whom to look at then; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pacehound.model.calls import FIRST_PLACE
from pacehound.model.events import OpenCall, PairProgress, Progress, RankProgress

MAX_STACKS = 8
"""Looked at per stall: a host's usual number of ranks."""
AGAIN_AFTER_NS = 60_000_000_000
"""The same stall is looked into again no sooner than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """Ranks of this host that do not go on.

    Attributes
    ----------
    reason
        Why somebody should look, in words.
    ranks
        Whom to look at: those that are in no call while others wait, then those that wait, the longest first, and
        one that goes on, for comparison.
    in_call
        Those of this host's ranks that have a call open, as far as the source can see.

    """

    attempt: int
    reason: str
    ranks: tuple[int, ...]
    in_call: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    rank: int
    communicator: str
    call: OpenCall

    @property
    def names(self) -> tuple[object, ...]:
        """Tells this call from every other one."""
        return self.rank, self.communicator, self.call.seq, self.call.peer, self.call.direction, self.call.launch_ns


class StallWatch:
    """Watches the progress of one host's ranks.

    A stall is a call that has been open for too long, or ranks that have made calls and all make none any more. An
    open send or receive counts only while its rank makes no other call: a script need not wait for its sends, and
    then nobody sees them end. A stall that goes on is looked into again after `AGAIN_AFTER_NS`, another one no sooner
    than `suspect_after_ns` after the last look.

    Parameters
    ----------
    suspect_after_ns
        How long is too long.

    """

    def __init__(self, suspect_after_ns: int) -> None:
        self._suspect_after_ns = suspect_after_ns
        self._again_after_ns = max(AGAIN_AFTER_NS, suspect_after_ns)
        self._calls: dict[tuple[int, int], int] = {}
        self._moved_ns: dict[tuple[int, int], int] = {}
        self._looked_ns: int | None = None
        self._looked_into: tuple[object, ...] = ()

    def look(self, progress: Sequence[Progress], alive: Collection[tuple[int, int]], now_unix_ns: int) -> Stall | None:
        """Whether somebody should look now.

        Parameters
        ----------
        progress
            What is promised now on every communicator of the host.
        alive
            (attempt, rank) of the processes that are there.
        now_unix_ns
            Unix time.

        """
        attempt = max((attempt for attempt, _ in alive), default=-1)
        ranks = sorted(rank for of, rank in alive if of == attempt)
        current = [said for said in progress if said.attempt == attempt]
        self._note_moves(attempt, current, now_unix_ns)
        waiting = self._waiting(attempt, current, set(ranks), now_unix_ns)
        in_call = frozenset(r.rank for said in current if said.sees_completion for r in said.ranks if r.open)
        idle_ns = self._idle_ns(attempt, ranks, now_unix_ns)
        which: tuple[object, ...]
        if waiting:
            reason, which = _why_waiting(waiting[0], now_unix_ns), waiting[0].names
        elif idle_ns >= self._suspect_after_ns:
            reason = f"no rank of this host has made a call for {idle_ns / 1e9:.0f} s"
            which = (now_unix_ns - idle_ns,)
        else:
            return None
        pause_ns = self._again_after_ns if which == self._looked_into else self._suspect_after_ns
        if self._looked_ns is not None and now_unix_ns - self._looked_ns < pause_ns:
            return None
        self._looked_ns, self._looked_into = now_unix_ns, which
        whom = self._whom(attempt, ranks, waiting, in_call)
        return Stall(attempt=attempt, reason=reason, ranks=whom, in_call=in_call)

    def _note_moves(self, attempt: int, current: Sequence[Progress], now_ns: int) -> None:
        calls: dict[int, int] = {}
        for said in current:
            for rank in said.ranks:
                calls[rank.rank] = calls.get(rank.rank, 0) + _made(rank)
        for rank_number, made in calls.items():
            key = (attempt, rank_number)
            # A communicator that closes takes its count with it: that is a move too.
            if self._calls.get(key, 0) != made:
                self._calls[key] = made
                self._moved_ns[key] = now_ns
        for key in [key for key in self._calls if key[0] != attempt]:
            del self._calls[key], self._moved_ns[key]

    def _waiting(self, attempt: int, current: Iterable[Progress], alive: set[int], now_ns: int) -> list[_Waiting]:
        """The longest open call of each rank that is in one for too long, the longest first."""
        longest: dict[int, _Waiting] = {}
        for said in current:
            for rank in said.ranks:
                if not said.sees_completion or rank.rank not in alive:
                    continue
                for call in rank.open:
                    moved_ns = self._moved_ns.get((attempt, rank.rank), now_ns)
                    since_ns = call.launch_ns if call.direction == "none" else max(call.launch_ns, moved_ns)
                    known = longest.get(rank.rank)
                    is_longest = known is None or call.launch_ns < known.call.launch_ns
                    if now_ns - since_ns >= self._suspect_after_ns and is_longest:
                        longest[rank.rank] = _Waiting(rank=rank.rank, communicator=said.communicator, call=call)
        return sorted(longest.values(), key=lambda one: (one.call.launch_ns, one.rank))

    def _idle_ns(self, attempt: int, ranks: Sequence[int], now_ns: int) -> int:
        """How long no rank has made a call; 0 where none ever did."""
        moved = [self._moved_ns[attempt, rank] for rank in ranks if (attempt, rank) in self._moved_ns]
        return now_ns - max(moved) if moved else 0

    def _whom(
        self, attempt: int, ranks: Sequence[int], waiting: Sequence[_Waiting], in_call: frozenset[int]
    ) -> tuple[int, ...]:
        waiters = [one.rank for one in waiting]
        outside = sorted(
            (rank for rank in ranks if rank not in in_call),
            key=lambda rank: (self._moved_ns.get((attempt, rank), 0), rank),
        )
        healthy = [rank for rank in ranks if rank in in_call and rank not in waiters][:1]
        room = MAX_STACKS - len(healthy) - min(len(waiters), 1)
        chosen = outside[:room] + waiters
        return (*chosen[: MAX_STACKS - len(healthy)], *healthy)


def _made(rank: RankProgress) -> int:
    """How many calls a rank has launched and ended on a communicator; it grows whenever the rank goes on."""
    sequences: list[RankProgress | PairProgress] = [rank, *rank.pairs]
    return sum(sequence.last_launched + sequence.last_completed + 2 for sequence in sequences)


def _why_waiting(one: _Waiting, now_ns: int) -> str:
    call = one.call
    where = f"{call.op} {call.seq} on communicator {one.communicator[:12]}"
    if call.direction != "none":
        peer = (
            f"rank {call.peer}" if call.peer > FIRST_PLACE else f"place {FIRST_PLACE - call.peer} of its communicator"
        )
        where = f"{call.op} {call.seq} with {peer}"
    return f"rank {one.rank} has been in {where} for {(now_ns - call.launch_ns) / 1e9:.0f} s"
