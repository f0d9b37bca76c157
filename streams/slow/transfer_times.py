"""How long the transfers of each communicator take, to compare those that should be equal."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

from pacehound.model.calls import OPS
from pacehound.model.events import GroupOutlier
from streams.rounds.round_table import RoundTable
from streams.slow.groups import GroupTransfer, outliers
from streams.slow.thresholds import TYPICAL_ROUNDS

RECENT = 64
"""Rounds of one kind that a typical transfer is taken from."""

MAX_KINDS = 64
"""Kinds of rounds followed per communicator; sizes that never recur must not fill the memory."""

_Kind = tuple[str, int, tuple[int, ...]]  # operation, bytes, shape


@dataclass(slots=True)
class _Recent:
    """The last rounds of one kind, and when the last of them was added (a count of blocks)."""

    times_s: deque[float]
    added: int = 0


class TransferTracker:
    """Recent transfer times by communicator and kind of round: operation, bytes and shape of the communicator.

    The shape is the distances of its ranks. Tensor-parallel groups lie within a host and data-parallel groups of
    as many ranks across hosts: they are no peers even where they move the same bytes.

    Where more than `MAX_KINDS` sizes come, those make room that have the fewest rounds, the longest unseen first,
    so that what recurs stays.
    """

    def __init__(self) -> None:
        self._recent: dict[str, dict[_Kind, _Recent]] = {}
        self._added = 0

    def add(self, arrived: RoundTable) -> None:
        """Rounds whose starts and ends were seen; others say nothing about a transfer."""
        for rounds, kinds in arrived.transfers:
            self._added += 1
            first = rounds.ranks[0]
            shape = tuple([rank - first for rank in rounds.ranks])  # of thousands of blocks: a generator takes longer
            known = self._recent.setdefault(rounds.communicator, {})
            for of_kind in kinds:
                transfer_ns = arrived.transfer_ns[of_kind.lines]
                transfer_ns = transfer_ns[transfer_ns > 0]
                if not len(transfer_ns):
                    continue
                kind = (OPS[of_kind.op], of_kind.size_bytes, shape)
                if kind not in known:
                    if len(known) >= MAX_KINDS:
                        del known[
                            min(known, key=lambda k: (min(len(known[k].times_s), TYPICAL_ROUNDS), known[k].added))
                        ]
                    known[kind] = _Recent(deque(maxlen=RECENT))
                known[kind].times_s.extend((transfer_ns / 1e9).tolist())
                known[kind].added = self._added

    def outliers(self, job: str, attempt: int, now_ns: int) -> list[GroupOutlier]:
        """Communicators above 1.1 x the median of their peers, the worst first (Falcon 4.3)."""
        groups = [
            GroupTransfer(
                group=communicator,
                kind=kind,
                transfer_s=statistics.median(recent.times_s),
                rounds_s=tuple(recent.times_s),
            )
            for communicator, kinds in sorted(self._recent.items())
            for kind, recent in sorted(kinds.items())
            if len(recent.times_s) >= TYPICAL_ROUNDS
        ]
        worst: dict[str, GroupOutlier] = {}
        for outlier in outliers(groups):
            worst.setdefault(
                outlier.group,
                GroupOutlier(
                    job=job,
                    attempt=attempt,
                    time_ns=now_ns,
                    communicator=outlier.group,
                    peers=outlier.peers,
                    transfer_s=outlier.transfer_s,
                    median_s=outlier.median_s,
                ),
            )
        return list(worst.values())
