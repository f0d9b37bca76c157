"""Every cause is named from its signature, with evidence and a remedy that helps, and not from another's."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from simulator.operations.job import OpFaults, OpJob
from simulator.operations.trace import generate
from streams.whatif.analysis import analyse, build
from streams.whatif.patterns.case import Case
from streams.whatif.patterns.changes import dealt_out
from streams.whatif.reader import table_of
from tests.fakes.evidence_words import words_of
from tests.fakes.examples import tries

DP8 = {"n_dp": 8, "n_steps": 12}
CASES = {
    "single worker": OpJob(n_dp=4, faults=OpFaults(slow_workers={(1, 2): 1.5})),
    "single worker, last stage": OpJob(n_dp=4, faults=OpFaults(slow_workers={(2, 3): 1.5})),
    "single worker, virtual stages": OpJob(
        n_dp=4, schedule="interleaved", n_chunks=2, faults=OpFaults(slow_workers={(3, 0): 1.4})
    ),
    "last stage": OpJob(faults=OpFaults(last_stage=(2.0, 1.4))),
    "last stage, GPipe": OpJob(schedule="gpipe", faults=OpFaults(last_stage=(2.0, 1.4))),
    "last stage, virtual stages": OpJob(schedule="interleaved", n_chunks=2, faults=OpFaults(last_stage=(3.0, 1.8))),
    "sequence length": OpJob(**DP8, faults=OpFaults(sequence_spread=0.4)),
    "sequence length, virtual stages": OpJob(
        **DP8, schedule="interleaved", n_chunks=2, faults=OpFaults(sequence_spread=0.4)
    ),
    "garbage collection": OpJob(**DP8, faults=OpFaults(collections_per_step=0.3, collection_s=0.25)),
    "garbage collection, one stage": OpJob(
        n_dp=16, n_stages=1, n_steps=12, faults=OpFaults(collections_per_step=0.3, collection_s=0.25)
    ),
    "memory fragmentation": OpJob(**DP8, faults=OpFaults(retries_per_step=0.5, retry_s=0.25)),
    "false kernel dependency": OpJob(
        schedule="interleaved", n_chunks=4, overlaps_grads=True, scatter_s=0.3, faults=OpFaults(holds_computes=True)
    ),
    "none of these": OpJob(n_dp=4, faults=OpFaults(slow_workers={(1, stage): 1.3 for stage in range(4)})),
    "none of these, noise": OpJob(n_dp=8, jitter=0.25),
}


@cache
def analysed(case, seed=0, **options):
    table, truth = generate(replace(CASES[case], seed=seed))
    built = build(table_of(table, case), Path(case))
    return analyse(built, layers_per_stage=options.get("layers")), truth


BOTH = {
    "a slow worker among unequal sequences": (
        OpJob(**DP8, faults=OpFaults(sequence_spread=0.3, slow_workers={(2, 1): 1.6})),
        {"sequence length", "single worker"},
    ),
    "a heavy loss layer, and garbage collection": (
        OpJob(**DP8, faults=OpFaults(last_stage=(2.0, 1.4), collections_per_step=0.3, collection_s=0.2)),
        {"last stage", "garbage collection"},
    ),
}


@pytest.mark.parametrize("case", BOTH)
def test_two_causes_at_once_are_both_named(case):
    job, names = BOTH[case]
    found = analyse(build(table_of(generate(job)[0], case), Path(case)))
    assert {pattern.name for pattern in found.patterns} == names


@pytest.mark.parametrize("seed", tries(1, deep=2))
@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_named_first(case, seed):
    found, _ = analysed(case, seed)
    assert found.slowdown > 1.1
    assert found.patterns[0].name == case.split(",")[0]
    assert words_of(found.patterns[0])


@pytest.mark.parametrize("case", CASES)
def test_no_other_cause_is_named(case):
    assert [pattern.name for pattern in analysed(case)[0].patterns] == [case.split(",")[0]]


@pytest.mark.parametrize(
    "case", ["single worker", "last stage", "sequence length", "garbage collection", "memory fragmentation"]
)
def test_the_remedy_would_give_back_most_of_what_the_fault_took(case):
    found, truth = analysed(case)
    remedy = found.patterns[0].remedies[0]
    lost = 1 - truth.healthy_step_s.mean() / truth.step_s.mean()
    assert 0.4 * lost < remedy.gain < 1.1 * lost


def test_micro_batches_dealt_out_anew_stay_the_same_ones():
    """What each step computes in all does not change, and ranks become more alike."""
    job = CASES["sequence length"]
    built = build(table_of(generate(replace(job, jitter=0.0))[0], "t"), Path("t"))
    case = Case.of(analyse(built), built.trace, built.job)
    is_compute = built.job.ops.optype <= 1
    before_s, after_s = case.job.own_s[is_compute], dealt_out(case, case.job.own_s, 1)[is_compute]
    at_stage = built.job.ops.stage[is_compute] == 1
    assert after_s.sum(axis=(0, 2)) == pytest.approx(before_s.sum(axis=(0, 2)), rel=0.05)
    uneven = [np.ptp(one[at_stage].sum(axis=0), axis=1).mean() for one in (before_s, after_s)]
    assert uneven[1] < 0.5 * uneven[0]


def test_dealing_out_micro_batches_helps_and_balance_helps_more():
    balance, deal = analysed("sequence length")[0].patterns[0].remedies
    assert "micro-batches among" in deal.action
    assert 0.02 < deal.gain < balance.gain


def test_a_job_that_does_not_straggle_has_no_cause():
    table, _ = generate(OpJob())
    assert analyse(build(table_of(table, "t"), Path("t"))).patterns == ()


def test_the_slow_worker_is_named_with_its_coordinates_and_how_much_slower_it_is():
    (first, *_) = words_of(analysed("single worker")[0].patterns[0])
    assert "dp 1 stage 2 (rank 9)" in first
    assert "forward takes x1.50" in first


def test_layers_to_move_are_whole_where_their_number_is_known():
    """The last stage has 1.57 stages' work: of 8 layers 3 go, one to each other stage, or one more."""
    found, _ = analysed("last stage", layers=8)
    (remedy,) = found.patterns[0].remedies
    assert remedy.action.startswith(("move 3 of its 8", "move 4 of its 8"))
    assert remedy.gain > 0.15


def test_planned_collection_is_as_frequent_as_collection_is_now():
    """0.3 of a worker's steps have a collection: every third step or so."""
    (remedy,) = analysed("garbage collection")[0].patterns[0].remedies
    assert any(f"every {interval} steps" in remedy.action for interval in (3, 4))


def test_what_cannot_be_simulated_says_so():
    for pattern in analysed("none of these")[0].patterns:
        assert pattern.remedies == ()
        assert math.isnan(pattern.score)
