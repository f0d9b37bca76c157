"""What is wrong with a trace, by name and count, and what was done about it.

Rules, in the order in which they apply:

- operations of an unknown type: left out (the model has no place for them);
- durations that are negative or no number, and numbers that cannot be (a stage of -1): the row counts as missing;
- the same operation twice: the first one counts;
- steps of another shape (a batch-size ramp, a restart) and steps that miss more than 1 % of their operations: left out;
- the operations that are then still missing: filled with the median of the same operation in other steps and DP ranks;
- peers whose times cannot belong together, on a worker that misses operations (what is left was numbered anew): that
  step is left out;
- clocks that are more than 10 ms apart over the whole trace: the worker's times are moved;
- transfers that end 10 ms or more before the last peer has started: 0 s, as the published analysis has them.

A trace is refused where fewer than half of its steps are left, or where its operations have no consistent order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "unknown optype",
    "negative duration",
    "impossible row",
    "operation twice",
    "step of another shape",
    "missing operation",
    "unmatched peers",
    "clock skew",
    "negative transfer",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One kind of damage.

    Attributes
    ----------
    count
        Rows, operations, steps or workers, as `kind` says.
    where
        Some of the places, in words.
    repair
        What was done.

    """

    kind: Kind
    count: int
    where: str
    repair: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.count} ({self.where}); {self.repair}"
