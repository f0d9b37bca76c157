"""In which order the stages of a pipeline compute: GPipe, 1F1B, and 1F1B with interleaved model chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Schedule = Literal["gpipe", "1f1b", "interleaved"]


@dataclass(frozen=True, slots=True)
class Compute:
    """One micro-batch through one model chunk of a stage."""

    is_forward: bool
    chunk: int
    micro_batch: int


def order_of(schedule: Schedule, stage: int, n_stages: int, n_chunks: int, n_micro_batches: int) -> list[Compute]:
    """What a stage computes, in order.

    Raises
    ------
    ValueError
        Interleaving needs micro-batches in whole groups of as many as there are stages; the others need one chunk.

    Examples
    --------
    >>> words = [("F" if c.is_forward else "B") + str(c.micro_batch) for c in order_of("1f1b", 0, 2, 1, 3)]
    >>> " ".join(words)
    'F0 F1 B0 F2 B1 B2'
    """
    if schedule != "interleaved":
        if n_chunks != 1:
            raise ValueError(f"{schedule} has one model chunk per stage, not {n_chunks}")
        forwards = [Compute(True, 0, i) for i in range(n_micro_batches)]
        backwards = [Compute(False, 0, i) for i in range(n_micro_batches)]
        ahead = n_micro_batches if schedule == "gpipe" else n_stages - stage - 1
    else:
        if n_micro_batches % n_stages:
            raise ValueError(f"{n_micro_batches} micro-batches are no multiple of {n_stages} stages")
        turns = [_turn(k, n_stages, n_chunks) for k in range(n_micro_batches * n_chunks)]
        forwards = [Compute(True, chunk, micro_batch) for chunk, micro_batch in turns]
        backwards = [Compute(False, n_chunks - 1 - chunk, micro_batch) for chunk, micro_batch in turns]
        ahead = 2 * (n_stages - stage - 1) + (n_chunks - 1) * n_stages
    ahead = min(ahead, len(forwards))
    order = forwards[:ahead]
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        order += [forward, backward]
    return order + backwards[len(forwards) - ahead :]


def _turn(k: int, n_stages: int, n_chunks: int) -> tuple[int, int]:
    """Chunk and micro-batch of the k-th forward: groups of micro-batches pass through one chunk after the other."""
    group, within = divmod(k, n_stages * n_chunks)
    chunk, position = divmod(within, n_stages)
    return chunk, group * n_stages + position
