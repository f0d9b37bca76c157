"""How long the transfers of each communicator take, to compare those that should be equal."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from pacehound.calls import OPS, Sees
from pacehound.events import GroupOutlier
from pacehound.rounds import Rounds
from streams.groups import GroupTransfer, outliers, transfer_times_s

RECENT = 64
"""Rounds of one kind that a typical transfer is taken from."""

MIN_ROUNDS = 8
MAX_KINDS = 64
"""Kinds of rounds followed per communicator; sizes that never recur must not fill the memory."""

_Kind = tuple[str, int, int]  # operation, bytes, ranks


class TransferBook:
    """Recent transfer times by communicator and kind of round (operation, bytes, number of ranks)."""

    def __init__(self) -> None:
        self._recent: dict[str, dict[_Kind, deque[float]]] = {}

    def add(self, rounds: Rounds) -> None:
        """Rounds whose starts and ends were seen; others say nothing about a transfer."""
        if not (Sees.START in rounds.sees and Sees.END in rounds.sees) or rounds.is_pair:
            return
        times_s = transfer_times_s(rounds.start_ns, rounds.end_ns)
        known = self._recent.setdefault(rounds.communicator, {})
        for op, size_bytes in sorted(set(zip(rounds.op.tolist(), rounds.size_bytes.tolist(), strict=True))):
            kind = (OPS[op], size_bytes, len(rounds.ranks))
            if kind not in known and len(known) >= MAX_KINDS:
                continue
            chosen = (rounds.op == op) & (rounds.size_bytes == size_bytes) & np.isfinite(times_s)
            known.setdefault(kind, deque(maxlen=RECENT)).extend(times_s[chosen].tolist())

    def outliers(self, job: str, attempt: int, now_ns: int) -> list[GroupOutlier]:
        """Communicators above 1.1 x the median of their peers, the worst first (Falcon 4.3)."""
        groups = [
            GroupTransfer(
                group=communicator,
                kind=kind,
                transfer_s=float(np.median(times)) if len(times) >= MIN_ROUNDS else math.nan,
            )
            for communicator, kinds in sorted(self._recent.items())
            for kind, times in sorted(kinds.items())
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
