"""Rounds: the same operation over all ranks of a communicator, as columns.

Stage one of the streams joins the calls of all ranks into rounds; stage two works on rounds alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pacehound.errors import InvalidEvent
from pacehound.model.calls import OPS, Sees
from pacehound.model.digests import is_of_digests
from pacehound.model.identity import event_id

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]

ALGORITHMS = ("", "ring", "tree")
"""What a round's transfer follows; the first one stands for unknown."""

Lines = slice | npt.NDArray[np.bool_] | Int64Array

COLUMNS = (
    "seq", "op", "size_bytes", "arrival_ns", "start_ns", "end_ns", "send_rate", "recv_rate", "algorithm",
)  # fmt: skip
"""Of rounds and of digests, however they lie; the last three may be `None`."""

_OP_CODES, _ALGORITHM_CODES = bytes(range(len(OPS))), bytes(range(len(ALGORITHMS)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Closed rounds of one communicator (or of one point-to-point pair in it), in order of `seq`.

    Attributes
    ----------
    ranks
        World ranks, shape `(n_ranks,)`; for a pair (`is_pair`) the sender and the receiver.
    seq, op, size_bytes
        Shape `(n_rounds,)`; `op` holds codes (positions in `pacehound.calls.OPS`).
    arrival_ns, start_ns, end_ns
        Shape `(n_rounds, n_ranks)`: when each rank launched, when its device started and ended; 0 where a rank's
        row is missing or its source cannot see the instant.
    send_rate, recv_rate
        Network chunks per sampling window of each rank (CCL-D 4.1.2), shape `(n_rounds, n_ranks)`; NaN where unseen.
        `None` where no rank of any of these rounds has one.
    algorithm
        Shape `(n_rounds,)`, codes (positions in `ALGORITHMS`); `None` where none is known.

    """

    job: str
    attempt: int
    communicator: str
    source: str
    sees: Sees
    is_pair: bool = False
    ranks: tuple[int, ...]
    seq: Int64Array = field(repr=False)
    op: npt.NDArray[np.int8] = field(repr=False)
    size_bytes: Int64Array = field(repr=False)
    arrival_ns: Int64Array = field(repr=False)
    start_ns: Int64Array = field(repr=False)
    end_ns: Int64Array = field(repr=False)
    send_rate: Float64Array | None = field(default=None, repr=False)
    recv_rate: Float64Array | None = field(default=None, repr=False)
    algorithm: npt.NDArray[np.int8] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_columns(self, len(self.ranks))

    def __len__(self) -> int:
        return len(self.seq)

    def chosen(self, lines: Lines) -> Rounds:
        """Some of the rounds; a slice copies nothing."""
        return Rounds(
            job=self.job,
            attempt=self.attempt,
            communicator=self.communicator,
            source=self.source,
            sees=self.sees,
            is_pair=self.is_pair,
            ranks=self.ranks,
            **columns_at(self, lines),
        )

    @property
    def is_digest(self) -> bool:
        """Each is all that the ranks called in an iteration (`pacehound.model.digests`)."""
        return is_of_digests(self.source)

    @property
    def times_ns(self) -> Int64Array:
        """Event time of each round, shape `(n_rounds,)`: its last end, else its last arrival."""
        last_end = self.end_ns.max(axis=1, initial=0)
        times_ns: Int64Array = np.where(last_end > 0, last_end, self.arrival_ns.max(axis=1, initial=0))
        return times_ns

    @property
    def time_ns(self) -> int:
        """Event time of its last round."""
        if self.end_ns.size and self.end_ns.min() > 0:  # as nearly always; a fifth of the time that the other way takes
            return int(self.end_ns.max())
        return int(self.times_ns.max(initial=0))

    def identity(self) -> str:
        """Names (job, attempt, communicator, source, pair, first and last round)."""
        edge = (int(self.seq[0]), int(self.seq[-1])) if len(self) else ()
        pair = self.ranks if self.is_pair else ()
        return event_id("rounds", self.job, self.attempt, self.communicator, self.source, pair, edge)


def joined_rounds(blocks: Sequence[Rounds]) -> list[Rounds]:
    """Rounds of the same ranks that have the same columns as one block, in order of `seq`; blocks as they first came.

    Parameters
    ----------
    blocks
        All of one attempt of one job.

    """
    alike: dict[tuple[object, ...], list[Rounds]] = {}
    for block in blocks:
        has = block.send_rate is not None, block.recv_rate is not None, block.algorithm is not None
        # The number of its ranks tells most communicators apart before all of them are compared.
        key = block.communicator, block.is_pair, len(block.ranks), block.source, block.sees, has, block.ranks
        alike.setdefault(key, []).append(block)
    return [some[0] if len(some) == 1 else _one_block(some) for some in alike.values()]


def _one_block(blocks: Sequence[Rounds]) -> Rounds:
    whole = replace(blocks[0], **joined_columns(blocks))
    is_in_order = (whole.seq[1:] >= whole.seq[:-1]).all()
    return whole if is_in_order else whole.chosen(np.argsort(whole.seq, kind="stable"))


def joined_columns(parts: Sequence[object]) -> dict[str, Any]:
    """`COLUMNS` of parts that have the same ones, one behind the other."""
    return {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in COLUMNS
        if getattr(parts[0], name) is not None
    }


def columns_at(of: object, lines: Lines) -> dict[str, Any]:
    """Some lines of `COLUMNS`, without those that are `None`."""
    columns = {name: getattr(of, name) for name in COLUMNS}
    return {name: column[lines] for name, column in columns.items() if column is not None}


def check_columns(of: Any, n_ranks: int) -> None:
    """That `COLUMNS` have a value for each round, or for each of its ranks, and hold known codes, or `InvalidEvent`."""
    line, cells = (len(of.seq),), (len(of.seq), n_ranks)
    shapes = (
        ("op", of.op, line), ("size_bytes", of.size_bytes, line), ("algorithm", of.algorithm, line),
        ("arrival_ns", of.arrival_ns, cells), ("start_ns", of.start_ns, cells), ("end_ns", of.end_ns, cells),
        ("send_rate", of.send_rate, cells), ("recv_rate", of.recv_rate, cells),
    )  # fmt: skip
    for name, column, shape in shapes:
        if column is not None and column.shape != shape:
            raise InvalidEvent(f"rounds column {name!r} has shape {column.shape}, not {shape}")
    if _any_besides(_OP_CODES, of.op):
        raise InvalidEvent(f"rounds have an operation code outside 0..{len(OPS) - 1}")
    if of.algorithm is not None and _any_besides(_ALGORITHM_CODES, of.algorithm):
        raise InvalidEvent(f"rounds have an algorithm code outside 0..{len(ALGORITHMS) - 1}")


def _any_besides(known: bytes, codes: npt.NDArray[np.int8]) -> bool:
    """Whether a code is none of these: of few rounds NumPy takes longer to begin than this takes in all."""
    return bool(codes.tobytes().translate(None, known))
