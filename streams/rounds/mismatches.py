"""Rounds of one communicator in which ranks have met with different calls, closed or still open.

An all_gather may be meant to have a size of its own on each rank. Where one with different sizes has ended on all of
them its sizes are no mismatch, then nor later; until then they are, for most have equal ones and must.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pacehound.model.events import CallSignature, Progress, SignatureMismatch, Topology
from streams.rounds.assembly import ClosedRounds, RoundGrid
from streams.rounds.signatures import (
    agree,
    compared_signature_of,
    disagreement,
    unpacked,
    usually_equal_op,
    usually_equal_op_of,
)

MAX_REPORTED = 64
"""Once ranks are out of step every later round differs: the first ones are what matters."""

OPEN_FOR_NS = 1_000_000_000
"""A call that is not over is compared with those of others when it has lasted so long (derived: nothing is called a
hang before ten times that, and of a job that goes on every rank is in some call at every promise)."""

UNEVEN_FOR_NS = 10_000_000_000
"""The same where only sizes differ that may (chosen: of those that are meant to, nearly all are over by then)."""


class MismatchWatch:
    """Says of each round once, and again when more of its ranks are known, what they called."""

    def __init__(self, topology: Topology) -> None:
        self._job = topology.job
        self._attempt = topology.attempt
        self._communicator = topology.communicator
        self._members = topology.members
        # By sequence number and rank: what a rank is in, and since when. One of each is looked at first: that who came
        # first stays first is part of the state.
        self._open_calls: dict[int, dict[int, tuple[CallSignature, int]]] = {}
        self._open_seqs: dict[int, tuple[int, ...]] = {}
        self._reported: dict[int, int] = {}  # by sequence number, how many ranks it named
        self._uneven: set[str] = set()  # operations that have ended although sizes differed

    def __getstate__(self) -> dict[str, Any]:
        """Open calls as columns, if there are any; which ranks they are of says in which each rank is."""
        numbers: dict[CallSignature, int] = {}
        columns: dict[int, tuple[tuple[int, ...], ...]] = {}
        for seq, calls in self._open_calls.items():
            signatures = tuple([numbers.setdefault(signature, len(numbers)) for signature, _ in calls.values()])
            columns[seq] = (tuple(calls), signatures, tuple([launch_ns for _, launch_ns in calls.values()]))
        state = {name: value for name, value in self.__dict__.items() if name != "_open_seqs"}
        return state | {"_open_calls": (list(numbers), columns) if columns else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Each call has a signature that was written, and a time (`ValueError`, `IndexError`)."""
        self.__dict__.update(state)
        signatures, columns = state["_open_calls"] or ([], {})
        self._open_calls = {
            seq: dict(zip(ranks, zip((signatures[at] for at in which), launch_ns, strict=True), strict=True))
            for seq, (ranks, which, launch_ns) in columns.items()
        }
        seqs: dict[int, list[int]] = {}
        for seq, calls in self._open_calls.items():
            for rank in calls:
                seqs.setdefault(rank, []).append(seq)
        self._open_seqs = {rank: tuple(of_rank) for rank, of_rank in seqs.items()}

    def in_closed(self, closed: ClosedRounds, *, sees_ends: bool) -> list[SignatureMismatch]:
        """Closed rounds in which ranks met with different calls.

        Where no ends are seen (`sees_ends`) nothing tells sizes that are meant to differ.
        """
        found: list[SignatureMismatch] = []
        for at in closed.disagreeing().tolist():
            packed = closed.signature[at]
            if op := usually_equal_op(packed[packed > 0]):
                if (closed.end_ns[at] > 0).all():
                    self._uneven.add(op)
                if op in self._uneven or not sees_ends:
                    continue
            called = {self._members[column]: unpacked(int(packed[column])) for column in np.flatnonzero(packed)}
            found += self._mismatch(int(closed.seq[at]), called, int(closed.arrival_ns[at].max()))
        return found

    def in_open(self, progress: Progress, collectives: RoundGrid, *, sees_ends: bool) -> list[SignatureMismatch]:
        """Rounds in which ranks of this host have been for a while, and others called something else, or have left."""
        for theirs in progress.ranks:
            for seq in self._open_seqs.pop(theirs.rank, ()):
                self._open_calls[seq].pop(theirs.rank)
                if not self._open_calls[seq]:
                    del self._open_calls[seq]
            calls = [
                call
                for call in theirs.open
                if call.direction == "none" and progress.time_ns - call.launch_ns >= OPEN_FOR_NS
            ]
            if calls:
                self._open_seqs[theirs.rank] = tuple(dict.fromkeys(call.seq for call in calls))
            for call in calls:
                self._open_calls.setdefault(call.seq, {})[theirs.rank] = (compared_signature_of(call), call.launch_ns)
        found: list[SignatureMismatch] = []
        for seq in sorted({seq for theirs in progress.ranks for seq in self._open_seqs.get(theirs.rank, ())}):
            packed = collectives.signatures_at(seq)
            gone = np.flatnonzero(packed).tolist()
            calls_at = self._open_calls[seq]
            # One of each is enough to see whether all agree: the others were compared when they came.
            first, _ = next(iter(calls_at.values()))
            few = [calls_at[theirs.rank][0] for theirs in progress.ranks if theirs.rank in calls_at]
            few += [unpacked(int(packed[column])) for column in gone[:1]]
            if all(one is first or agree(first, one) for one in few):
                continue
            called = {self._members[column]: unpacked(int(packed[column])) for column in gone}
            called |= {rank: signature for rank, (signature, _) in calls_at.items()}
            latest_ns = max(launch_ns for _, launch_ns in calls_at.values())
            op = usually_equal_op_of(called.values())
            is_young = progress.time_ns - latest_ns < UNEVEN_FOR_NS
            if op and (op in self._uneven or not sees_ends or is_young):
                continue
            found += self._mismatch(seq, called, latest_ns)
        return found

    def _mismatch(self, seq: int, called: dict[int, CallSignature], time_ns: int) -> list[SignatureMismatch]:
        if self._reported.get(seq, 0) >= len(called) or disagreement(called) is None:
            return []
        self._reported[seq] = len(called)
        while len(self._reported) > MAX_REPORTED:
            del self._reported[next(iter(self._reported))]
        return [
            SignatureMismatch(
                job=self._job,
                attempt=self._attempt,
                time_ns=time_ns,
                communicator=self._communicator,
                seq=seq,
                called=tuple(sorted(called.items())),
            )
        ]
