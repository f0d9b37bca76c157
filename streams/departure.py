"""Whose calls depart from what they were one iteration before: who called something else, or in another order.

A training job repeats itself. Where ranks disagree and no side has a majority, the one whose own sequence of calls has
changed is the one that went astray (DESIGN section 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pacehound.calls import OPS
from pacehound.codes import DTYPE_BYTES, DTYPES
from pacehound.events import CallSignature
from pacehound.rounds import Rounds

Line = tuple[str, tuple[int, int] | None]
"""A line of calls: a communicator, and the pair for calls from one rank to another."""

_WIDTH = dict(zip(DTYPES, DTYPE_BYTES, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastIterations:
    """The rounds of the iteration that is going on and of the one before.

    Attributes
    ----------
    rounds
        Of both.
    begins_ns, previous_begins_ns
        By rank, when this iteration began and when the one before did.

    """

    rounds: Sequence[Rounds]
    begins_ns: Mapping[int, int]
    previous_begins_ns: Mapping[int, int]

    def expected_call(self, communicator: str, seq: int) -> tuple[str, int] | None:
        """Operation and bytes of the round in the place of `seq` one iteration before; `None` where it is not known.

        The place is found by counting: an iteration has as many rounds on this communicator as the one before had.
        Where the round next to it does not repeat either, the count is not to be trusted.
        """
        known: dict[int, tuple[str, int]] = {}
        in_previous = 0
        for block in self.rounds:
            if block.communicator != communicator or block.is_pair or not len(block):
                continue
            begin_ns = np.array([self.previous_begins_ns.get(r, 0) for r in block.ranks], np.int64)
            end_ns = np.array([self.begins_ns.get(r, 0) for r in block.ranks], np.int64)
            is_seen = block.arrival_ns > 0
            inside = is_seen & (block.arrival_ns > begin_ns) & (block.arrival_ns <= end_ns)
            in_previous += int((2 * inside.sum(axis=1) > is_seen.sum(axis=1)).sum())
            for number, op, size_bytes in zip(
                block.seq.tolist(), block.op.tolist(), block.size_bytes.tolist(), strict=True
            ):
                known[number] = (OPS[op], size_bytes)
        before = seq - 1 - in_previous
        if not in_previous or (before in known and known.get(seq - 1) != known[before]):
            return None
        return known.get(seq - in_previous)

    def strangers(self, communicator: str, seq: int, signatures: Mapping[int, CallSignature]) -> tuple[int, ...] | None:
        """Ranks that call something else than one iteration before; `None` where that is not known.

        Where all of them do the work itself has changed, and nothing follows.
        """
        expected = self.expected_call(communicator, seq)
        if expected is None:
            return None
        strange = tuple(rank for rank in sorted(signatures) if not _is_like(signatures[rank], *expected))
        return None if len(strange) == len(signatures) else strange

    def out_of_order(
        self, ranks: Sequence[int], open_lines: Mapping[int, Sequence[tuple[int, Line]]]
    ) -> dict[int, str]:
        """Ranks that have entered their lines of calls in another order than one iteration before, and how.

        Parameters
        ----------
        ranks
            Whom to look at.
        open_lines
            By rank, launch time and line of the calls that are open.

        """
        departed: dict[int, str] = {}
        for rank in ranks:
            begin_ns, previous_ns = self.begins_ns.get(rank), self.previous_begins_ns.get(rank)
            if begin_ns is None or previous_ns is None:
                continue
            entered = sorted([*self._entered(rank), *open_lines.get(rank, ())], key=lambda entry: entry[0])
            before = [line for time_ns, line in entered if previous_ns < time_ns <= begin_ns]
            now = [line for time_ns, line in entered if time_ns > begin_ns]
            for index, line in enumerate(now):
                if index >= len(before):
                    departed[rank] = "it has entered more calls than in the whole iteration before"
                    break
                if line != before[index]:
                    departed[rank] = f"its call {index} of this iteration is on another communicator than one before"
                    break
        return departed

    def _entered(self, rank: int) -> list[tuple[int, Line]]:
        entered: list[tuple[int, Line]] = []
        for block in self.rounds:
            if rank not in block.ranks:
                continue
            arrival = block.arrival_ns[:, block.ranks.index(rank)]
            line: Line = (block.communicator, (block.ranks[0], block.ranks[1]) if block.is_pair else None)
            entered += [(time_ns, line) for time_ns in arrival[arrival > 0].tolist()]
        return entered


def _is_like(signature: CallSignature, op: str, size_bytes: int) -> bool:
    if signature.op == "unknown" or op == "unknown":
        return True
    width = _WIDTH.get(signature.dtype, 0)
    if signature.op == op and signature.count >= 0 and width and size_bytes:
        return signature.count * width == size_bytes
    return signature.op == op
