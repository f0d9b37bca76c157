"""Ranks that compute together are told from those that only share gradients or a log, and count as one worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from pacehound.model.operations import OPERATION_SCHEMA, OPTYPES, Operations
from pacehound.model.rounds import Rounds
from streams.whatif import optypes
from streams.whatif.live import live_trace
from streams.whatif.tensor_groups import NO_GROUPS, tensor_groups
from tests.fakes.hand_made_rounds import rounds_at

MS = 1_000_000
N_MB, FORWARD_MS, BACKWARD_MS = 3, 10, 20
STEP_MS = N_MB * (FORWARD_MS + BACKWARD_MS) + 20
STEPS = (2, 4, 6)


def operations(ranks: Sequence[int], stage_of: dict[int, int], pipeline_of: dict[int, int]) -> Operations:
    """Each rank computes its micro-batches one after the other, then the gradients, then the optimizer."""
    rows = []
    for rank in ranks:
        place = {"rank": rank, "stage": stage_of[rank], "chunk": stage_of[rank], "pipeline": pipeline_of[rank]}
        for step in STEPS:
            now = step * STEP_MS
            for mb in range(N_MB):
                for kind, length in (("forward-compute", FORWARD_MS), ("backward-compute", BACKWARD_MS)):
                    rows.append(place | {"step": step, "optype": kind, "micro_batch": mb, "seq": mb, "start_ns": now})
                    now += length
                    rows[-1]["end_ns"] = now
            rows.append(
                place | {"step": step, "optype": "optimizer", "micro_batch": -1, "seq": 0, "start_ns": now + 15}
            )
            rows[-1]["end_ns"] = now + 16
    columns = {name: [row[name] for row in rows] for name in OPERATION_SCHEMA.names}
    columns["optype"] = [OPTYPES.index(name) for name in columns["optype"]]
    for name in ("start_ns", "end_ns"):
        columns[name] = [at * MS for at in columns[name]]
    arrays = [pa.array(columns[field.name], field.type) for field in OPERATION_SCHEMA]
    return Operations(job="j", attempt=0, host="h", rows=pa.RecordBatch.from_arrays(arrays, schema=OPERATION_SCHEMA))


def reductions(communicator: str, ranks: Sequence[int], at_ms: Sequence[float]) -> Rounds:
    arrival_ns = np.repeat(np.array(at_ms)[:, None] * MS, len(ranks), axis=1).astype(np.int64)
    return rounds_at(communicator, ranks, arrival_ns, arrival_ns + MS)


def in_passes(at: float) -> list[float]:
    """A reduction at a share of each pass of each step."""
    firsts = [step * STEP_MS + mb * (FORWARD_MS + BACKWARD_MS) for step in STEPS for mb in range(N_MB)]
    return sorted(first + offset for first in firsts for offset in (at * FORWARD_MS, FORWARD_MS + at * BACKWARD_MS))


def gradients(ranks: Sequence[int], communicator: str = "dp") -> Rounds:
    """In the last backward pass, as DistributedDataParallel has them, and once before the optimizer."""
    ends = [step * STEP_MS + N_MB * (FORWARD_MS + BACKWARD_MS) for step in STEPS]
    return reductions(communicator, ranks, sorted(end + after for end in ends for after in (-12, -4, 2)))


def flat(ranks: Sequence[int]) -> Operations:
    return operations(ranks, dict.fromkeys(ranks, 0), {rank: rank for rank in ranks})


def test_ranks_that_reduce_within_every_pass_are_one_worker() -> None:
    rounds = [reductions("a", (0, 1), in_passes(0.9)), reductions("b", (2, 3), in_passes(0.9))]
    rounds += [gradients((0, 2), "x"), gradients((1, 3), "y")]
    groups = tensor_groups([flat(range(4))], rounds)
    assert groups.of_rank == {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    assert groups.communicators == {"a", "b"}
    table = live_trace([flat(range(4))], rounds, "t", groups)
    assert sorted(set(table.rank.tolist())) == [0, 2]
    assert sorted(set(table.dp_rank.tolist())) == [0, 1]
    assert int((table.optype == optypes.GRADS_SCATTER).sum()) == 2 * 3 * len(STEPS)  # and none of a or b


@pytest.mark.parametrize("one_micro_batch", [False, True])
def test_gradients_and_a_mean_for_the_log_make_no_group(one_micro_batch: bool) -> None:
    """Both on one communicator; with a single micro-batch every backward pass has gradients."""
    event = flat((0, 1))
    if one_micro_batch:
        chosen = event.integers("micro_batch") != 0
        chosen &= event.integers("micro_batch") != 1
        event = Operations(job="j", attempt=0, host="h", rows=event.rows.take(np.flatnonzero(chosen)))
    first_pass = (N_MB - 1) * (FORWARD_MS + BACKWARD_MS) if one_micro_batch else 0
    log_ms = [step * STEP_MS + first_pass + 1 for step in STEPS]
    both = sorted([*(gradients((0, 1)).arrival_ns[:, 0] / MS).tolist(), *log_ms])
    assert tensor_groups([event], [reductions("world", (0, 1), both)]) == NO_GROUPS


def test_with_stages_a_reduction_anywhere_in_a_pass_counts_and_pipelines_are_joined() -> None:
    """Stage 0 is ranks 0 and 1, stage 1 is 2 and 3; the pipelines are 0-2 and 1-3."""
    event = operations(range(4), {0: 0, 1: 0, 2: 1, 3: 1}, {0: 0, 1: 1, 2: 0, 3: 1})
    rounds = [reductions("a", (0, 1), in_passes(0.1)), reductions("b", (2, 3), in_passes(0.1))]
    groups = tensor_groups([event], rounds)
    assert groups.of_rank == {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    table = live_trace([event], rounds, "t", groups)
    assert set(zip(table.rank.tolist(), table.stage.tolist(), table.dp_rank.tolist(), strict=True)) == {
        (0, 0, 0),
        (2, 1, 0),
    }


def test_a_group_of_two_communicators_is_one_worker_and_a_lost_round_does_not_part_it() -> None:
    rounds = [reductions("tp", (0, 1), in_passes(0.8)[1:]), reductions("cp", (1, 2), in_passes(0.7))]
    groups = tensor_groups([flat(range(4))], rounds)
    assert groups.of_rank == {0: (0, 1, 2), 1: (0, 1, 2), 2: (0, 1, 2)}
    assert groups.ranks(3) == (3,)


def test_a_communicator_of_two_stages_or_of_strangers_is_no_group() -> None:
    event = operations(range(2), {0: 0, 1: 1}, {0: 0, 1: 0})
    assert tensor_groups([event], [reductions("world", (0, 1), in_passes(0.5))]) == NO_GROUPS
    assert tensor_groups([event], [reductions("more", (0, 7), in_passes(0.5))]) == NO_GROUPS


def test_on_a_device_a_pass_has_the_calls_whose_kernels_start_in_it_and_not_those_launched_then() -> None:
    """A host far ahead launches gradients of some later step whenever it likes: here within each pass."""
    seen = operations((0, 1), {0: 0, 1: 0}, {0: 0, 1: 1})
    launched = reductions("dp", (0, 1), in_passes(0.7))
    hooks = replace(launched, start_ns=np.zeros_like(launched.end_ns), end_ns=np.zeros_like(launched.end_ns))
    later_ns = launched.arrival_ns + STEP_MS * len(STEPS) * MS
    plugin = replace(launched, source="profiler", start_ns=later_ns, end_ns=later_ns + MS)
    assert tensor_groups([seen], [hooks, plugin]) == NO_GROUPS
    in_step = replace(plugin, arrival_ns=launched.arrival_ns - STEP_MS * MS, start_ns=launched.arrival_ns)
    assert tensor_groups([seen], [hooks, in_step]).ranks(0) == (0, 1)
