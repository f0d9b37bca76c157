"""Operations of sampled training steps, as columns: what the what-if analysis simulates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pacehound.errors import InvalidEvent
from pacehound.model.columns import values_of
from pacehound.model.identity import event_id

OPTYPES: Final = (
    "forward-compute",
    "backward-compute",
    "forward-send",
    "forward-recv",
    "backward-send",
    "backward-recv",
    "params-all-gather",
    "grads-reduce-scatter",
    "separate-grads-all-reduce",
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
    "optimizer-clip-main-grad",
    "optimizer",
    "gc",
)
"""By code. The names are those of NDTimeline, which writes them into its traces."""

LARGEST_NUMBER: Final = 1 << 20
"""No pipeline has more stages, nor a step more micro-batches or operations of a type."""

OPERATION_SCHEMA: Final = pa.schema(
    [
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("optype", pa.int8()),
        ("stage", pa.int32()),
        ("chunk", pa.int32()),
        ("micro_batch", pa.int32()),
        ("pipeline", pa.int32()),
        ("seq", pa.int32()),
        ("start_ns", pa.int64()),
        ("end_ns", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Operations that the ranks of one host have done; the optimizer is the last of a rank's step.

    Attributes
    ----------
    rows
        Columns of `OPERATION_SCHEMA`, none of them null. `stage` is the rank's in its pipeline and `chunk` the stage as
        the model counts (they differ with virtual stages); `micro_batch` is -1 for operations of a whole step, and
        for gathers and scatters the micro-batch that they hold up, if any;
        `pipeline` is the lowest world rank of the pipeline; `seq` counts the operations of a type in a rank's step.
        Times are Unix nanoseconds; the end of a send is when somebody had waited for it, an upper bound.

    """

    job: str
    attempt: int
    host: str
    rows: pa.RecordBatch = field(repr=False)

    def __post_init__(self) -> None:
        if not self.rows.schema.equals(OPERATION_SCHEMA):
            raise InvalidEvent(f"operations have the columns {self.rows.schema.names}, not {OPERATION_SCHEMA.names}")
        if any(column.null_count for column in self.rows.columns):
            raise InvalidEvent("operations have nulls")
        if not len(self):
            raise InvalidEvent("operations without any row")
        codes = self.integers("optype")
        if codes.min() < 0 or codes.max() >= len(OPTYPES):
            raise InvalidEvent(f"operations have a type outside 0..{len(OPTYPES) - 1}")
        for name in ("rank", "step", "stage", "chunk", "pipeline", "seq"):
            if self.integers(name).min() < 0:
                raise InvalidEvent(f"operations have a negative {name}")
        for name in ("stage", "chunk", "micro_batch", "seq"):
            if self.integers(name).max() >= LARGEST_NUMBER:
                raise InvalidEvent(f"operations have a {name} of {self.integers(name).max()}; that is none")
        if self.integers("micro_batch").min() < -1:
            raise InvalidEvent("operations have a micro-batch below -1")

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def integers(self, name: str) -> npt.NDArray[np.signedinteger[Any]]:
        """A column, shape `(n_rows,)`."""
        found: npt.NDArray[np.signedinteger[Any]] = values_of(self.rows.column(name))
        return found

    @property
    def time_ns(self) -> int:
        """The end of the last one."""
        return int(self.integers("end_ns").max())

    def identity(self) -> str:
        """Names (job, attempt, host, first operation, how many): an operation is in one event alone."""
        first = tuple(int(self.integers(name)[0]) for name in ("rank", "step", "optype", "chunk", "seq"))
        return event_id("operations", self.job, self.attempt, self.host, first, len(self))
