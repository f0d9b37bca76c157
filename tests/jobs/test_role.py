"""Work that one rank does for all is told as that, and makes no culprit of it."""

from __future__ import annotations

import itertools

import pytest

from pacehound.model.events import Finding, RankStack
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import EveryNth, Spike
from simulator.job import JobSpec, simulate
from simulator.source import C10D_GLOO, DEVICE_TIMES
from streams.pipeline import Pipeline
from streams.slow.role import busy_in
from tests.fakes.evidence_words import words_of

BY_THE_CLOCK = (40, 42, 39, 41, 40, 38, 41)
"""Steps between two spells: as even as whole steps can be for what is done every few seconds."""
UNEVEN = (40, 12, 67, 25, 8, 51, 33)


def last_said(rank: int, gaps: tuple[int, ...]) -> Finding:
    """The last version of what is said of a rank that takes longer again and again."""
    spikes = tuple(Spike(ranks=(rank,), step=step, extra_s=0.4) for step in itertools.accumulate(gaps, initial=60))
    spec = JobSpec(layout=Layout(dp=4), ranks_per_host=4, iterations=380, source=C10D_GLOO, seed=3, faults=spikes)
    pipeline = Pipeline(Settings())
    said = [out for event in simulate(spec).events() for out in pipeline.on_event(event) if isinstance(out, Finding)]
    return said[-1]


def test_what_rank_0_does_alone_in_a_rhythm_is_planned() -> None:
    said = last_said(0, BY_THE_CLOCK)
    assert (said.kind, said.verdict, said.culprits, said.candidates) == ("planned", "unknown", (), (0,))
    assert words_of(said)[-1].startswith("rank 0 alone, every ")


@pytest.mark.parametrize("every_steps", [5, 10])
@pytest.mark.parametrize("seed", range(6))
def test_a_rhythm_among_pauses_of_all_ranks_is_one(every_steps: int, seed: int) -> None:
    """Rank 0 logs, and every rank pauses in one step of a hundred: these lie between, and some of them are its own."""
    spec = JobSpec(
        layout=Layout(dp=4), ranks_per_host=4, iterations=130, source=C10D_GLOO, seed=seed,
        faults=(EveryNth(every_steps=every_steps, extra_s=0.05, ranks=(0,)),), spike_probability=0.01, spike_s=0.05,
    )  # fmt: skip
    pipeline = Pipeline(Settings())
    said = [out for event in simulate(spec).events() for out in pipeline.on_event(event) if isinstance(out, Finding)]
    assert [finding.culprits for finding in said if finding.culprits] == []


def test_of_a_first_rank_it_is_not_said_before_a_rhythm_could_be_seen_that_it_is_slow_now_and_then() -> None:
    """Four episodes since a quiet stretch, for a pause of its own follows one of its logs at once."""
    spec = JobSpec(
        layout=Layout(tp=8, dp=4), ranks_per_host=4, micro_batches=4, iterations=130, seed=1801000223,
        forward_s=0.012, optimizer_s=0.018, tp_calls=1, tp_bytes=8 << 20, dp_bytes=256 << 20, dp_buckets=4,
        is_sharded=True, ep=2, ep_bytes=4 << 20, expert_s=0.002, between_hosts_bytes_per_s=25e9, device_spread=0.02,
        wandering=0.03, spike_probability=0.01, spike_s=0.05, source=DEVICE_TIMES,
        faults=(EveryNth(every_steps=5, extra_s=0.05, ranks=(0,)),),
    )  # fmt: skip
    pipeline = Pipeline(Settings())
    said = [out for event in simulate(spec).events() for out in pipeline.on_event(event) if isinstance(out, Finding)]
    assert [finding.culprits for finding in said if finding.culprits] == []


@pytest.mark.parametrize(("rank", "gaps"), [(2, BY_THE_CLOCK), (0, UNEVEN)])
def test_another_rank_and_what_has_no_rhythm_are_named(rank: int, gaps: tuple[int, ...]) -> None:
    said = last_said(rank, gaps)
    assert (said.kind, said.culprits) == ("intermittent", (rank,))


@pytest.mark.parametrize(
    ("doing", "words"),
    [
        ("storage", "rank 0 is busy: it reads or writes storage (py-spy): save (torch/serialization.py:944) < main"),
        ("in_call", None),
        ("unknown", None),
        ("stopped", None),
    ],
)
def test_a_stack_tells_what_a_rank_is_busy_in(doing, words) -> None:  # type: ignore[no-untyped-def]
    frames = ("save (torch/serialization.py:944)", "main")
    stacks = busy_in(RankStack(rank=0, pid=1, taken_by="py-spy", frames=frames, doing=doing))
    assert [stack.words for stack in stacks] == ([] if words is None else [words])
