"""Calls that reduce gradients, or what ranks that compute together have: which they are, and when a rank gets to one.

On a CPU a rank gets to a call when it launches it. On a GPU its host launches it ahead of the device, which gets there
when the call's kernel starts: the profiler plugin, and the shim while it times calls, see that. The hooks of
torch.distributed see launches of NCCL and no ends; of such a call it is not known when any device got to it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import OPS
from pacehound.model.rounds import Rounds

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_OPS = tuple(OPS.index(name) for name in ("all_reduce", "reduce_scatter"))
_LAUNCHED_AHEAD = frozenset({"profiler", "profiler_launches", "shim"})


def are_reductions(rounds: Rounds) -> BoolArray:
    """Shape `(n_rounds,)`."""
    found: BoolArray = np.isin(rounds.op, _OPS)
    return found


def are_untimed(rounds: Rounds) -> BoolArray:
    """Whether no rank's end is known, shape `(n_rounds,)`."""
    found: BoolArray = (rounds.end_ns == 0).all(axis=1)
    return found


def begins_ns(rounds: Rounds) -> Int64Array:
    """When each rank got to each call, shape `(n_rounds, n_ranks)`; 0 where that is not known."""
    begins = rounds.start_ns if rounds.source in _LAUNCHED_AHEAD else rounds.arrival_ns
    found: Int64Array = np.where(are_untimed(rounds)[:, None], 0, begins)
    return found
