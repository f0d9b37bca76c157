"""Gradients that are reduced by calls of which nobody has seen the end: steps with such calls have no price.

The hooks of torch.distributed see when calls of NCCL are launched, and no more. Without their ends a rank that waits
for the others' gradients would be taken for one that computes: all ranks would look equally slow, and the slow one
cheap. The profiler plugin sees ends. Its communicators are others than those of the hooks; two are taken for the same
where they have the same ranks, and their calls for the same where there are as many, in each step and in all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pacehound.model.operations import Operations
from pacehound.model.rounds import Rounds
from streams.whatif import optypes
from streams.whatif.live import reductions_of
from streams.whatif.reductions import are_reductions, are_untimed

Int64Array = npt.NDArray[np.int64]

_SYNCS = (optypes.PARAMS_GATHER, optypes.GRADS_SCATTER)


def untimed_reductions(operations: Sequence[Operations], rounds: Sequence[Rounds]) -> str:
    """Why the gradients of these steps cannot be told from computing; empty if they can.

    Calls count from a window's length before it: a host may launch that far ahead of its device.
    """
    rows = {
        name: np.concatenate([event.integers(name) for event in operations]).astype(np.int64)
        for name in ("rank", "stage", "step", "optype", "micro_batch", "start_ns", "end_ns")
    }
    stage_of = dict(zip(rows["rank"].tolist(), rows["stage"].tolist(), strict=True))
    sharded = set(rows["rank"][np.isin(rows["optype"], _SYNCS) & (rows["micro_batch"] >= 0)].tolist())
    last_ns = int(rows["end_ns"].max())
    first_ns = 2 * int(rows["start_ns"].min()) - last_ns
    ends = reductions_of(rounds, stage_of)
    for ranks, launches in _launches(rounds).items():
        is_of_one_stage = len({stage_of.get(rank, -1) for rank in ranks}) == 1
        # What holds up a sharded rank is recorded with its passes: its calls are not needed.
        if len(ranks) < 2 or not is_of_one_stage or sharded.issuperset(ranks):
            continue
        untimed_ns, timed_ns = (each[(each >= first_ns) & (each <= last_ns)] for each in launches)
        shown = f"the gradients of ranks {', '.join(map(str, ranks))}"
        if len(untimed_ns) and not len(timed_ns):
            return f"when {shown} were reduced on the device is not known; --nccl profiler would tell it"
        if not len(untimed_ns):
            continue
        if (n_missing := _more(untimed_ns, timed_ns)) > 0:
            return f"{n_missing} calls that reduce {shown} have no times of the device"
        if not all(_is_even(rows, rank, ends[rank][0]) for rank in ranks if rank in ends):
            return f"calls that reduce {shown} have no times of the device in some of the steps"
    return ""


def _launches(rounds: Sequence[Rounds]) -> dict[tuple[int, ...], tuple[Int64Array, Int64Array]]:
    """By ranks, when reductions were launched: those without an end, and those with one."""
    found: dict[tuple[int, ...], tuple[list[int], list[int]]] = {}
    for one in rounds:
        if one.is_pair:
            continue
        launched_ns = one.arrival_ns.max(axis=1, initial=0)
        is_reduction = are_reductions(one) & (launched_ns > 0)
        is_untimed = are_untimed(one)
        untimed, timed = found.setdefault(tuple(sorted(one.ranks)), ([], []))
        untimed += launched_ns[is_reduction & is_untimed].tolist()
        timed += launched_ns[is_reduction & ~is_untimed].tolist()
    return {
        ranks: (np.array(sorted(untimed), dtype=np.int64), np.array(sorted(timed), dtype=np.int64))
        for ranks, (untimed, timed) in found.items()
    }


def _more(untimed_ns: Int64Array, timed_ns: Int64Array) -> int:
    """How many more of the ones than of the others; counted where both are seen, after the first launch."""
    first_ns, last_ns = timed_ns[0], timed_ns[-1]
    return int(((untimed_ns > first_ns) & (untimed_ns <= last_ns)).sum() - (timed_ns > first_ns).sum())


def _is_even(rows: dict[str, Int64Array], rank: int, begins_ns: Int64Array) -> bool:
    """Whether a rank's reductions between its last backward pass and its optimizer are as many in each step."""
    counts = set()
    is_rank = rows["rank"] == rank
    for step in np.unique(rows["step"][is_rank]).tolist():
        is_step = is_rank & (rows["step"] == step)
        passes_ns = rows["start_ns"][is_step & (rows["optype"] == optypes.BACKWARD_COMPUTE)]
        optimizers_ns = rows["start_ns"][is_step & (rows["optype"] == optypes.OPTIMIZER)]
        if len(passes_ns) and len(optimizers_ns):
            counts.add(int(((begins_ns >= passes_ns.max()) & (begins_ns <= optimizers_ns[0])).sum()))
    return len(counts) <= 1
