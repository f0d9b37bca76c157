"""Jobs that are slow from their first step: who is named, and who is not, through the whole pipeline.

Hundreds of them are scored by `python -m bench always`; these few say what each kind of them shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bench.always import judge
from pacehound.model.events import Finding, HostVitals, Incident, Progress, RankProcessors
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import EveryNth, RandomPauses, SlowCompute, SlowLink
from simulator.job import JobSpec, simulate
from simulator.source import C10D_GLOO, DEVICE_TIMES, LAUNCH_ONLY, UNSEEN_TP, Source
from simulator.suites.always_slow_jobs import CONDITIONS, FAULTS, SMALL, case_of
from streams.pipeline import Pipeline
from streams.slow.always.always_slow import AlwaysSlowWatch
from streams.slow.always.standing_apart import excess_of
from streams.slow.thresholds import LOOKS
from streams.watching.watch import Said
from tests.fakes.evidence_words import words_of

S = 1_000_000_000
GRID = Layout(tp=2, dp=4, pp=2)
STEPS = 50
FEW = tuple(layout for layout in SMALL if layout.world_size <= 16)


def said(*faults: Any, extra: tuple[HostVitals, ...] = (), **changes: Any) -> list[Finding | Incident]:
    """Every finding of slowness and every incident, in all versions, of a job with these faults."""
    fields = {"layout": GRID, "iterations": STEPS, "micro_batches": 4, "tp_calls": 1, "ranks_per_host": 4, "seed": 3}
    spec = JobSpec(faults=faults, **(fields | changes))
    pipeline, heard = Pipeline(Settings()), []
    pending = list(extra)
    for event in simulate(spec).events():
        while pending and isinstance(event, Progress) and pending[0].time_ns <= event.time_ns:
            pipeline.on_event(pending.pop(0))
        heard += [out for out in pipeline.on_event(event) if isinstance(out, Finding | Incident)]
    return [out for out in heard if isinstance(out, Incident) or out.kind == "slow"]


def findings(*faults: Any, **changes: Any) -> list[Finding]:
    return [out for out in said(*faults, **changes) if isinstance(out, Finding)]


def ended_at(finding: Finding) -> int:
    assert finding.relief is not None
    assert finding.relief.step is not None
    return finding.relief.step


def always(*ranks: int, factor: float = 1.6, to_step: int | None = None) -> SlowCompute:
    return SlowCompute(ranks=ranks, factor=factor, from_step=0, to_step=to_step)


@pytest.mark.parametrize("name", FAULTS)
def test_who_is_slow_from_the_start_is_named_within_the_first_iterations(name: str) -> None:
    ended, step = judge(case_of(name, 2, FEW, steps=70))
    assert ended in ("named", "group")
    assert step is not None
    assert step <= 70


def test_the_end_of_a_long_iteration_does_not_wait_for_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of ranks it takes as long as all else: it is for the next second, with what was known at the end."""
    told: dict[str, list[Said]] = {"on_iteration": [], "on_tick": []}

    def noting(name: str) -> Callable[..., list[Said]]:
        asked = vars(AlwaysSlowWatch)[name]

        def noted(watch: AlwaysSlowWatch, *args: Any) -> list[Said]:
            said: list[Said] = asked(watch, *args)
            told[name] += said
            return said

        return noted

    for name in told:
        monkeypatch.setattr(AlwaysSlowWatch, name, noting(name))
    spec = JobSpec(layout=Layout(dp=4), iterations=33, micro_batches=2, tp_calls=1, faults=(always(2),))
    pipeline = Pipeline(Settings())
    for event in simulate(spec.with_longer_iterations(150)).events():
        pipeline.on_event(event)
    (finding,) = told["on_tick"]
    assert isinstance(finding, Finding)
    assert finding.culprits == (2,)
    assert finding.detected is not None
    assert finding.detected.step == LOOKS[0]
    assert told["on_iteration"] == []


def test_peers_are_told_with_their_spread_and_a_single_one_without() -> None:
    (first, *_) = findings(always(2), layout=Layout(dp=4))
    words = re.search(r"the median of its 3 peers is ([\d.]+) ms, their spread ([\d.]+) ms", words_of(first)[0])
    assert words is not None
    assert float(words[2]) < 0.1 * float(words[1])
    (first, *_) = findings(always(1), layout=Layout(dp=2, pp=2))
    assert re.search(r"since the first step seen; its only peer has [\d.]+ ms$", words_of(first)[0])


@pytest.mark.parametrize("seed", range(len(CONDITIONS)), ids=list(CONDITIONS))
def test_a_job_in_which_nobody_is_slow_has_no_finding(seed: int) -> None:
    assert judge(case_of("clean", seed, FEW, steps=STEPS)) == ("quiet", None)


def test_it_says_since_when_against_whom_and_at_what_price() -> None:
    quiet_s = simulate(JobSpec(layout=GRID, iterations=STEPS, micro_batches=4, tp_calls=1, seed=3)).iteration_times_s
    slow = always(5)
    took_s = simulate(
        JobSpec(layout=GRID, iterations=STEPS, micro_batches=4, tp_calls=1, seed=3, faults=(slow,))
    ).iteration_times_s
    found = said(slow, source=DEVICE_TIMES)
    (finding,) = [one for one in found if isinstance(one, Finding)]
    assert (finding.verdict, finding.cause, finding.culprits, finding.lasting) == ("culprit", "S1", (5,), True)
    assert finding.onset is not None
    assert finding.onset.step == 0
    assert finding.magnitude == pytest.approx(took_s.mean() / quiet_s.mean() - 1.0, abs=0.08)
    assert "since the first step seen; the median of its 7 peers is" in words_of(finding)[0]
    assert [out.state for out in found if isinstance(out, Incident)] == ["open", "closed"]
    (*_, closed) = [out for out in found if isinstance(out, Incident)]
    assert closed.cost.excess_s == pytest.approx((took_s - quiet_s).sum(), rel=0.2)


@pytest.mark.parametrize("from_step", [12, 16, 20, 23, 36])
def test_a_fault_that_comes_later_is_named_once_and_not_from_the_start(from_step: int) -> None:
    """Also where its level would be learnt: within as many iterations again, from when it began."""
    found = findings(SlowCompute(ranks=(5,), factor=1.6, from_step=from_step), iterations=90)
    assert {finding.culprits for finding in found} == {(5,)}
    assert len({finding.id for finding in found}) == 1
    assert {finding.onset.step for finding in found if finding.onset is not None} <= {from_step, from_step + 1}
    assert found[0].detected is not None
    assert found[0].detected.step is not None
    assert found[0].detected.step <= 60
    assert all("since the first step" not in words for finding in found for words in words_of(finding))


PIPELINE = {"layout": Layout(pp=4), "micro_batches": 8, "source": C10D_GLOO}


@pytest.mark.parametrize("from_step", [8, 14, 23])
def test_who_has_no_peers_is_held_against_its_own_first_iterations(from_step: int) -> None:
    (found, *_, last) = findings(
        SlowCompute(ranks=(2,), factor=1.3, from_step=from_step, to_step=75), iterations=110, **PIPELINE
    )
    assert (found.verdict, found.cause, found.culprits, last.id) == ("suspected", "S1", (2,), found.id)
    assert found.onset is not None
    assert found.onset.step in (from_step, from_step + 1)
    assert f"since step {found.onset.step}" in words_of(found)[0]
    assert any("no other rank does the same work" in words for words in found.unseen)
    assert 73 <= ended_at(last) <= 77


@pytest.mark.parametrize(
    "fault",
    [
        SlowCompute(ranks=(0, 1, 2, 3), factor=1.4, from_step=12),
        RandomPauses(probability=0.3, extra_s=0.05, from_step=12),
        SlowCompute(ranks=(2,), factor=1.3, from_step=12, to_step=46),
        SlowCompute(ranks=(2,), factor=1.3, from_step=4),
    ],
    ids=["all become slow", "all pause at random", "it is over", "too few before it"],
)
def test_without_peers_nobody_is_named_for(fault: SlowCompute | RandomPauses) -> None:
    assert [found for found in findings(fault, iterations=100, **PIPELINE) if found.culprits or found.candidates] == []


@pytest.mark.parametrize("from_step", [8, 12, 17, 22])
@pytest.mark.parametrize("job", [{"layout": Layout(dp=4), "source": C10D_GLOO}, PIPELINE], ids=["peers", "none"])
def test_who_is_slow_for_forty_steps_from_early_on_is_named_and_relieved(from_step: int, job: dict[str, Any]) -> None:
    slow = SlowCompute(ranks=(2,), factor=1.5, from_step=from_step, to_step=from_step + 40)
    (found, *_, last) = findings(slow, iterations=110, **job)
    assert (found.culprits, last.id) == ((2,), found.id)
    assert found.onset is not None
    assert found.onset.step in (from_step, from_step + 1)
    assert from_step + 38 <= ended_at(last) <= from_step + 41


@pytest.mark.parametrize("from_step", [8, 14, 22])
def test_where_half_of_the_peers_become_slow_their_own_first_iterations_tell(from_step: int) -> None:
    halves = {"layout": Layout(tp=2, dp=2), "ranks_per_host": 2, "source": C10D_GLOO}
    (found, *_, last) = findings(
        SlowCompute(ranks=(1, 3), factor=1.8, from_step=from_step, to_step=75), iterations=120, **halves
    )
    assert (found.verdict, found.cause, found.culprits, last.id) == ("suspected", "S1", (1, 3), found.id)
    assert found.onset is not None
    assert found.onset.step in (from_step, from_step + 1)
    assert any("do not tell which of them is slow" in words for words in found.unseen)
    assert 73 <= ended_at(last) <= 77


LONE = {"layout": Layout(dp=4), "ranks_per_host": 1, "source": DEVICE_TIMES}
UNKNOWN_RATES = {"layout": Layout(dp=4), "ranks_per_host": 1, "source": C10D_GLOO}


@pytest.mark.parametrize("from_step", [8, 14, 22])
@pytest.mark.parametrize("pauses", [0.0, 0.2])
def test_the_only_ring_that_becomes_slow_early_is_held_against_its_own_first_iterations(
    from_step: int, pauses: float
) -> None:
    link = SlowLink(link=(1, 2), bandwidth_factor=0.2, from_step=from_step, to_step=85)
    pausing = RandomPauses(probability=pauses, extra_s=0.05, from_step=0)
    (found, *_, last) = findings(link, pausing, iterations=130, **UNKNOWN_RATES)
    assert (found.verdict, found.cause, found.candidates, last.id) == ("unknown", "S2", (0, 1, 2, 3), found.id)
    assert found.onset is not None
    assert found.onset.step in (from_step, from_step + 1)
    assert any("iterations before it are few" in words for words in found.unseen)
    assert "it is no longer slower than it was before" in words_of(last)
    assert 83 <= ended_at(last) <= 87


@pytest.mark.parametrize("from_step", [8, 14, 22])
def test_the_only_link_of_two_stages_that_becomes_slow_early_is_suspected(from_step: int) -> None:
    link = SlowLink(link=(1, 2), bandwidth_factor=0.1, from_step=from_step, to_step=85)
    (found, *_, last) = findings(link, iterations=130, ranks_per_host=1, **PIPELINE)
    assert (found.verdict, found.cause, found.links, last.id) == ("suspected", "S2", ((1, 2),), found.id)
    assert found.onset is not None
    assert found.onset.step in (from_step, from_step + 1)
    assert 83 <= ended_at(last) <= 87


@pytest.mark.parametrize("from_step", [2, 4])
@pytest.mark.parametrize("source", [C10D_GLOO, LAUNCH_ONLY], ids=["calls", "launches"])
def test_fewer_than_five_iterations_before_it_are_no_measure(source: Source, from_step: int) -> None:
    all_of_it = SlowCompute(ranks=(0, 1, 2, 3), factor=1.6, from_step=from_step)
    assert findings(all_of_it, iterations=100, layout=Layout(dp=4), source=source) == []


@pytest.mark.parametrize("source", [C10D_GLOO, LAUNCH_ONLY], ids=["calls", "launches"])
def test_iterations_that_become_longer_early_are_told_where_nobody_can_be_named(source: Source) -> None:
    all_of_it = SlowCompute(ranks=(0, 1, 2, 3), factor=1.6, from_step=14, to_step=85)
    heard = said(all_of_it, iterations=130, layout=Layout(dp=4), source=source)
    (found, *_, last) = (out for out in heard if isinstance(out, Finding))
    assert (found.verdict, found.culprits, found.links, last.id) == ("unknown", (), (), found.id)
    assert found.onset is not None
    assert found.onset.step in (14, 15)
    assert 83 <= ended_at(last) <= 87
    assert any(isinstance(out, Incident) for out in heard)


@pytest.mark.parametrize(("from_step", "verdict"), [(0, "suspected"), (12, "suspected"), (40, "culprit")])
def test_a_slow_link_of_the_only_ring_is_told_by_what_the_others_send(from_step: int, verdict: str) -> None:
    link = SlowLink(link=(1, 2), bandwidth_factor=0.25, from_step=from_step, to_step=85)
    (found, *_, last) = findings(link, iterations=120, **LONE)
    assert (found.verdict, found.cause, found.links, last.id) == (verdict, "S2", ((1, 2),), found.id)
    assert found.onset is not None
    assert found.onset.step in (from_step, from_step + 1)
    assert 83 <= ended_at(last) <= 87
    if verdict == "suspected":
        assert "and one of its links is far slower than the others" in words_of(found)[0]
        assert any("was ever as fast" in words for words in found.unseen)


def test_a_ring_whose_links_are_alike_has_no_finding() -> None:
    assert findings(iterations=100, **LONE) == []
    assert findings(SlowLink(link=(1, 2), bandwidth_factor=0.7, from_step=0), iterations=100, **LONE) == []


@pytest.mark.parametrize("from_step", [0, 90])
def test_where_iterations_differ_by_more_than_a_slow_rank_its_peers_tell(from_step: int) -> None:
    """Sequences of a bucket, rollouts: twice as long here and half as long there, on all ranks alike."""
    slow = SlowCompute(ranks=(2,), factor=1.5, from_step=from_step)
    heard = findings(slow, layout=Layout(dp=4), iterations=230, step_spread=0.7)
    (found,) = [finding for finding in heard if finding.version == 0]
    assert found.onset is not None
    assert found.onset.step is not None
    assert (found.verdict, found.culprits) == ("culprit", (2,))
    assert abs(found.onset.step - from_step) <= 3
    assert f"since step {found.onset.step}" in words_of(found)[0] or from_step == 0


@pytest.mark.parametrize("seed", range(4))
def test_iterations_of_any_length_name_nobody(seed: int) -> None:
    job = {"layout": Layout(dp=4), "iterations": 230, "step_spread": 0.7, "sequence_spread": 0.3, "seed": seed}
    assert not any(finding.culprits or finding.links for finding in findings(**job))


def test_who_is_slow_for_long_has_one_finding() -> None:
    """Of most of the iterations since the first it would be found again, as slow from the start."""
    found = findings(SlowCompute(ranks=(5,), factor=1.6, from_step=26), iterations=260)
    assert len({finding.id for finding in found}) == 1


def test_what_goes_by_is_relieved() -> None:
    *_, last = findings(always(5, to_step=60), iterations=120)
    assert 58 <= ended_at(last) <= 62


def test_a_rank_that_gets_slower_still_has_one_incident() -> None:
    found = said(always(5), SlowCompute(ranks=(5,), factor=1.8, from_step=60), iterations=110)
    assert len({out.id for out in found if isinstance(out, Finding)}) == 2
    assert len({out.id for out in found if isinstance(out, Incident)}) == 1
    assert all(out.culprits == (5,) for out in found if isinstance(out, Finding))


@pytest.mark.parametrize(
    ("layout", "ranks"),
    [
        (GRID, tuple(range(8, 16))),
        (GRID, (0, 2, 4, 6, 8, 10, 12, 14)),
        (GRID, (2, 3, 10, 11)),
        (Layout(dp=8, pp=2), (3, 11)),
        (Layout(dp=8), (0, 1, 2, 3)),
    ],
    ids=["a stage", "a place in all groups", "sequences of a replica", "sequences of a pipeline", "half of the ranks"],
)
def test_what_is_no_ranks_own_names_nobody(layout: Layout, ranks: tuple[int, ...]) -> None:
    """A heavier stage, a place that does more, longer sequences for good; and where as many are slow as fast."""
    assert [f for f in findings(always(*ranks), layout=layout, ranks_per_host=8) if f.verdict != "unknown"] == []


def test_of_two_ranks_and_of_the_first_rank_no_more_than_a_suspicion() -> None:
    for layout, rank in ((Layout(dp=2, pp=2), 3), (Layout(dp=8), 0)):
        (finding,) = findings(always(rank), layout=layout, iterations=70)
        assert (finding.verdict, finding.culprits) == ("suspected", (rank,))


def test_a_first_rank_that_logs_now_and_then_is_not_slow() -> None:
    logs = EveryNth(every_steps=4, extra_s=0.05, ranks=(0,))
    assert findings(logs, iterations=100) == []


def test_pauses_of_others_that_hide_a_slow_rank_in_two_iterations_of_five_do_not_clear_it() -> None:
    """Rank 0 logs, and each of 32 ranks pauses in one step of a hundred: the path goes over them there."""
    slow, logs = (
        SlowCompute(ranks=(27,), factor=1.94, from_step=12),
        EveryNth(every_steps=5, extra_s=0.05, ranks=(0,)),
    )
    job = {
        "layout": Layout(dp=32), "iterations": 130, "micro_batches": 2, "tp_calls": 2, "seed": 1802000404,
        "device_spread": 0.02, "wandering": 0.03, "spike_probability": 0.01, "spike_s": 0.05, "source": DEVICE_TIMES,
    }  # fmt: skip
    assert {(one.verdict, one.culprits) for one in findings(logs, slow, **job)} == {("culprit", (27,))}
    assert findings(logs, **job) == []


def test_ranks_that_wait_for_each_other_in_calls_that_nobody_sees_are_no_culprits() -> None:
    """Rank 9 is slow; rank 8 comes as late, for it waits for it in a call that is not seen."""
    found = findings(always(9), source=UNSEEN_TP)
    assert all(finding.verdict != "culprit" for finding in found)


def test_two_pairs_that_wait_so_are_no_culprits_either() -> None:
    found = findings(always(9), always(2), source=UNSEEN_TP)
    assert {finding.culprits for finding in found} == {(2, 3, 8, 9)}
    assert {finding.verdict for finding in found} == {"suspected"}
    assert all(any("they move together" in words for words in finding.unseen) for finding in found)


def test_launches_alone_name_nobody() -> None:
    assert findings(always(9), source=LAUNCH_ONLY) == []


def processors(waited: dict[int, float], until_s: int = 12) -> tuple[HostVitals, ...]:
    """One host's readings, every two seconds: for what share of each second ranks wait for a processor."""
    return tuple(
        HostVitals(
            job="simulated", attempt=0, time_ns=JobSpec().start_unix_ns + second * S, host="host0",
            rank_processors=tuple(
                RankProcessors(rank=rank, pid=rank, ran_ns=second * S, waited_ns=int(share * second * S))
                for rank, share in waited.items()
            ),
        )
        for second in range(0, until_s, 2)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("waited", "verdict"),
    [
        (dict.fromkeys(range(8), 0.0), "culprit"),
        ({**dict.fromkeys(range(8), 0.0), 5: 0.4}, "culprit"),
        (dict.fromkeys(range(8), 0.4), "suspected"),
        ({**dict.fromkeys(range(8), 0.2), 5: 0.5}, None),
    ],
    ids=["all have a processor", "one lacks it", "all lack it alike", "one lacks it most"],
)
def test_on_a_busy_machine_nobody_is_a_culprit(waited: dict[int, float], verdict: str | None) -> None:
    found = findings(
        always(5), layout=Layout(dp=8), ranks_per_host=8, source=C10D_GLOO, iterations=100, extra=processors(waited)
    )
    assert [finding.verdict for finding in found] == ([verdict] if verdict else [])


def test_it_is_not_known_whether_a_machine_is_busy_that_was_read_once() -> None:
    once = processors(dict.fromkeys(range(8), 0.0), until_s=2)
    assert findings(always(5), layout=Layout(dp=8), ranks_per_host=8, iterations=80, extra=once) == []


@pytest.mark.parametrize("memory", [0.0, 0.6])
@pytest.mark.parametrize(("n_jobs", "n_ranks"), [(60, 4), (20, 64), (2, 1024)])
def test_noise_alone_makes_nobody_stand_apart(n_jobs: int, n_ranks: int, memory: float) -> None:
    """However small it is: here there is no share of the iteration below which nobody cares."""
    rng = np.random.default_rng(8)
    for _ in range(n_jobs):
        noise = rng.standard_normal((100, n_ranks))
        for step in range(1, 100):
            noise[step] = memory * noise[step - 1] + np.sqrt(1 - memory**2) * noise[step]
        for look in (30, 60, 100):
            assert not excess_of(noise[:look]).is_apart(n_ranks).any()
