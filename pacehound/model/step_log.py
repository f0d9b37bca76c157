"""Step times as a job's own log tells them: the columns that every reader of step-time logs gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepLog:
    """The step times of one series (a job, or one rank of it), in the order in which the steps were done.

    Attributes
    ----------
    path
        The file that they were read from.
    format
        Name of the log's format, for instance `megatron`.
    rank
        World rank, or `None` where the log speaks for the whole job.
    step
        Shape `(n,)`: the last step of each row, in the log's own count, strictly increasing.
    n_steps
        Shape `(n,)`: how many steps the row covers (a log may have a line every 50 steps), at least 1.
    time_ns
        Shape `(n,)`: when the step ended, nanoseconds since the epoch; 0 where the log does not say.
    step_time_s
        Shape `(n,)`: seconds per step, mean over the steps of the row. As logged: not necessarily finite or positive.
    work
        What the log says about the work of each step, by field name (`global_batch_size`, `sequence_length`), each
        of shape `(n,)`, NaN where a row does not say. A step time that changes with these has an explanation.
    planned
        What was announced within a row (`evaluation`, `checkpoint`), by the row's index; rows without are not in it.
    notes
        Sentences about rows that were left out or repaired, and why.

    """

    path: str
    format: str
    rank: int | None = None
    step: Int64Array
    n_steps: Int64Array
    time_ns: Int64Array
    step_time_s: FloatArray
    work: Mapping[str, FloatArray] = field(default_factory=dict)
    planned: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.step)
        columns = {"n_steps": self.n_steps, "time_ns": self.time_ns, "step_time_s": self.step_time_s, **self.work}
        for name, column in columns.items():
            if column.shape != (n,):
                raise ValueError(f"column {name} of {self.path} has shape {column.shape}, its steps have ({n},)")
        if n and (np.diff(self.step) <= 0).any():
            raise ValueError(f"the steps of {self.path} must increase")

    def __len__(self) -> int:
        return len(self.step)
