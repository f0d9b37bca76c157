"""The figures of the published analysis on its own traces (../shared/data/whatif), number by number."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pacehound.model.whatif_result import STRAGGLING
from pacehound.pages.whatif.answer import whatif_answer
from pacehound.settings import IncidentSettings, Settings
from streams.job.incidents import IncidentTracker
from streams.whatif.analysis import analyse_table
from streams.whatif.reader import read_trace
from streams.whatif.trace_windows import straggling_in
from tests.fakes.evidence_words import words_of
from tests.fakes.recorded import RECORDED, needs_recordings

DATA = RECORDED / "whatif"
NAMES = sorted(path.stem.removeprefix("trace-") for path in DATA.glob("trace-*.parquet")) or ["none"]
CLOSE = 1e-6
HOUR_NS = 3_600_000_000_000
WINDOW_STEPS = Settings().ops.window_steps

pytestmark = needs_recordings


@pytest.fixture(scope="module", params=NAMES)
def published(request):
    path = DATA / f"trace-{request.param}.parquet"
    found, _ = analyse_table(read_trace(path), path)
    return request.param, found, whatif_answer(found)


def numbers(value, path=()):
    """Every leaf with its path; what has no number stands as it is."""
    if isinstance(value, dict):
        return [leaf for key, one in value.items() for leaf in numbers(one, (*path, key))]
    return [(path, value)]


def at(answer, path):
    for key in path:
        answer = answer[key]
    return answer


def test_every_number_of_the_published_result_is_ours(published):
    name, _, answer = published
    expected = numbers(json.loads((DATA / f"result-{name}.json").read_text()))
    assert len(expected) > 500
    far = [
        (path, at(answer, path), value)
        for path, value in expected
        if (
            at(answer, path) != pytest.approx(value, rel=CLOSE)
            if isinstance(value, float)
            else at(answer, path) != value
        )
    ]
    assert far == []


def test_what_is_told_has_the_nesting_of_the_published_result(published):
    name, _, answer = published
    result = json.loads((DATA / f"result-{name}.json").read_text())
    assert list(result) == [key for key in answer if key in result]
    for key, value in result.items():
        if isinstance(value, dict) and key != "job_meta":
            assert set(value) == set(answer[key]), key


@pytest.mark.parametrize("figure", ["ms", "mw"])
def test_the_shares_of_worker_and_last_stage_are_the_published_ones(published, figure):
    name, _, answer = published
    expected = json.loads((DATA / f"{figure}-{name}.json").read_text())
    assert answer[figure] == pytest.approx(expected, rel=CLOSE)
    top = {"ms": "Ms", "mw": "Mw"}[figure]
    assert answer[top] == pytest.approx(expected[top], rel=CLOSE)


def test_the_heat_map_has_the_published_cells(published):
    name, found, _ = published
    result = json.loads((DATA / f"result-{name}.json").read_text())
    stages, ranks = result["blocking_decompose_by_stage"], result["blocking_decompose_by_dp_rank"]
    cells = [[min(stages[str(s)], ranks[str(d)]) for d in range(len(ranks))] for s in range(len(stages))]
    assert np.allclose(found.cells, cells, rtol=CLOSE)


def test_a_worker_by_itself_is_the_job_with_everybody_else_ideal(published):
    """The companion lane of `alone` gives what simulating each worker on all lanes gives."""
    name, found, _ = published
    from streams.whatif.analysis import build

    path = DATA / f"trace-{name}.parquet"
    job = build(read_trace(path), path).job
    ideal_s = job.keeping(np.zeros(len(job.ops), dtype=bool)).optimizer_end_s
    for stage, dp in np.ndindex(*found.by_worker.shape):
        is_worker = np.zeros(found.by_worker.shape, dtype=bool)
        is_worker[stage, dp] = True
        steps_s = job.keeping_workers(is_worker).optimizer_end_s
        assert np.allclose(found.by_worker_per_step[:, stage, dp], steps_s / ideal_s, rtol=1e-12)


def test_the_known_causes_are_named(published):
    name, found, _ = published
    known = {"AR": "single worker", "ST": "last stage"}
    if name in known:
        assert found.patterns[0].name == known[name]
    assert found.is_trusted


def test_the_loss_layer_makes_the_last_stage_as_slow_as_the_paper_says():
    """Section 5.2: forward x2.07 and backward x1.41 of an average stage, before tuning."""
    path = DATA / "trace-ST.parquet"
    found, _ = analyse_table(read_trace(path), path)
    (evidence,) = (line for line in words_of(found.patterns[0]) if "forward takes" in line)
    assert "forward takes x2.08 and its backward x1.42" in evidence


def test_a_published_job_that_straggles_is_a_finding_with_the_cause_that_the_analysis_names(published):
    name, found, _ = published
    path = DATA / f"trace-{name}.parquet"
    said = straggling_in(read_trace(path), path, WINDOW_STEPS)
    assert len(said) == (found.slowdown >= STRAGGLING)
    for finding in said:
        assert f"the cause is: {found.patterns[0].name}" in words_of(finding)[0]
        assert set(finding.culprits or finding.candidates) == set(found.patterns[0].ranks)
        (incident,) = IncidentTracker("j", 0, IncidentSettings()).on_finding(finding, HOUR_NS, 600.0)
        assert incident.state == "open"
