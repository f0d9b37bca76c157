"""How far the ranks of a host are, from their sequences of calls."""

from __future__ import annotations

from collections.abc import Mapping

from collector.calls import rows as call_rows
from collector.calls.communicator_table import CommunicatorTable
from collector.calls.communicators import CallSequence
from pacehound.model.calls import DIRECTIONS
from pacehound.model.events import OpenCall, PairProgress, RankProgress


def pair_progress(
    table: CommunicatorTable, sequences: Mapping[int, CallSequence]
) -> dict[tuple[int, int], list[PairProgress]]:
    """How far each sequence of point-to-point calls is, by (communicator, rank)."""
    pairs: dict[tuple[int, int], list[PairProgress]] = {}
    for key, sequence in sorted(sequences.items()):
        communicator, rank, peer, direction = call_rows.sequence_parts(key)
        if direction:
            pairs.setdefault((communicator, rank), []).append(
                PairProgress(
                    peer=table.known[communicator].named(peer),
                    direction=DIRECTIONS[direction],
                    last_launched=sequence.last_launched,
                    last_completed=sequence.last_completed,
                )
            )
    return pairs


def rank_progress(
    sequences: Mapping[int, CallSequence],
    communicator: int,
    rank: int,
    shown: Mapping[tuple[int, int], list[OpenCall]],
    pairs: Mapping[tuple[int, int], list[PairProgress]],
) -> RankProgress:
    """How far a rank is on a communicator: its collectives, its open calls, its point-to-point calls."""
    sequence = sequences.get(call_rows.collective_sequence(communicator, rank)) or CallSequence()
    return RankProgress(
        rank=rank,
        last_launched=sequence.last_launched,
        last_completed=sequence.last_completed,
        open=tuple(shown.get((communicator, rank), ())),
        pairs=tuple(pairs.get((communicator, rank), ())),
    )
