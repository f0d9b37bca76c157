"""Root-cause cases: the same for a seed, true to what was injected, and marked by what their source can know."""

import numpy as np
import pytest

from pacehound.model.calls import CallBatch, Sees
from pacehound.model.codec import decode, encode
from simulator.faults import SlowCompute, SlowLink
from simulator.job import simulate
from simulator.suites.root_cause_jobs import SCENARIOS, SOURCES, case_of, cases, large_cases

N = len(SCENARIOS)


@pytest.fixture(scope="module")
def every_case():
    """One case of each scenario for each source."""
    return [case for source in SOURCES for case in cases(source, N)]


def test_a_seed_gives_the_same_case_and_the_next_one_another():
    assert case_of("MoE", 3) == case_of("MoE", 3)
    assert case_of("MoE", 3).spec != case_of("MoE", 3 + N).spec


def test_an_unknown_source_is_refused():
    with pytest.raises(ValueError, match="no source 'rumours'"):
        next(cases("rumours", 1))


def test_every_class_comes_up_and_most_sources_must_name_some_of_it(every_case):
    must = {(case.source, case.truth.cause) for case in every_case if case.truth.must_name}
    assert {cause for source, cause in must if source == "device times"} == {"H1", "H2", "H3", "S1", "S2", "S3"}
    assert {cause for source, cause in must if source == "Flight Recorder"} <= {"H1", "H2", "H3"}
    assert {source for source, _ in must} == set(SOURCES)


def test_without_device_times_nobody_must_name_slowness(every_case):
    for case in every_case:
        if Sees.END not in case.spec.source.sees:
            assert not (case.truth.must_name and case.truth.cause in ("S1", "S2", "S3"))


def test_every_mark_has_a_reason_and_only_what_can_be_named_must_be(every_case):
    for case in every_case:
        assert len(case.why) > 15
        assert case.truth.must_name or case.truth.words == {"unknown", "suspected"}
        assert 16 <= case.spec.layout.world_size <= 64


def test_what_is_injected_is_what_the_simulator_says_happened(every_case):
    """The simulator's own truth, per fault, names the same ranks and links; a hang stops the job, slowness does not.

    Some seconds: what must be named has to cost enough to be seen, in any layout.
    """
    for case in every_case:
        if case.source not in ("device times", "overlap", "MoE"):
            continue  # the same jobs, seen by others
        simulation = simulate(case.spec)
        found = simulation.truth.findings
        culprits = {rank for finding in found for rank in finding.culprits}
        links = {link for finding in found for link in finding.links}
        assert (culprits, links) == (set(case.truth.culprits), set(case.truth.links)), case
        assert simulation.observed.was_killed == (case.truth.cause in ("H1", "H2", "H3")), case
        slow = [f for f in case.spec.faults if isinstance(f, SlowCompute | SlowLink)]
        if slow and not simulation.observed.was_killed:
            times, onset = simulation.iteration_times_s, slow[0].from_step
            assert times[onset:].mean() > 1.1 * times[:onset].mean(), case


def test_half_of_the_jobs_lose_rows_and_half_have_clocks_apart():
    some = list(cases("device times", 10 * N))
    assert 0.4 < np.mean([case.spec.dropped_fraction > 0 for case in some]) < 0.6
    assert 0.4 < np.mean([bool(case.spec.clock_offsets_ms) for case in some]) < 0.6
    assert max(abs(o) for case in some for o in case.spec.clock_offsets_ms) <= 50.0


@pytest.mark.parametrize("source", SOURCES)
def test_the_events_of_a_case_survive_the_codec(source):
    for event in simulate(case_of(source, 7).spec).events():
        (read,) = decode(encode(event))
        assert isinstance(event, CallBatch) or read == event


def test_eleven_cases_have_four_thousand_ranks():
    large = list(large_cases())
    assert [case.spec.layout.world_size for case in large] == [4096] * 11
    assert {case.truth.cause for case in large if case.truth.must_name} == {"H1", "H2", "H3", "S1", "S2", "S3"}
    assert sum(case.truth.must_name for case in large) == 9
