"""The scoreboard's page, and the answers about the recordings."""

import pytest

from bench import detection
from bench.baselines import PlainBocd, SlidingWindow
from bench.exactness import Exactness
from bench.recordings import ANSWERS, FOLDER, read, recordings
from bench.scoreboard_page import Recorded, Unseen, Wrong, page
from pacehound.model.truth.file import TruthFile
from simulator.suites.step_times import POPULATIONS
from streams.scoring.evaluate import Score

BASELINES = {"sliding window": lambda job: SlidingWindow(job=job), "BOCD": lambda job: PlainBocd(job=job)}

WRONG = [
    Wrong(method="BOCD", name="clean/003", seed=1, missed=0, false_alarms=2),
    Wrong(method="sliding window", name="clean/004", seed=1, missed=0, false_alarms=2),
]
ANSWERED = [Recorded(name="run", n_steps=2_000, expected="slow from 5 to 9 (+10 %)", said="")]
EXACTNESS = Exactness(series=5, changes=7, different=("clean/003 (seed 1)",))


def test_every_method_is_scored_over_the_same_series(monkeypatch):
    monkeypatch.setattr(detection, "METHODS", BASELINES)
    scores, wrong = detection._score_series(detection._Task("delay_20", 0, 0, 3, tuple(BASELINES)))
    assert set(scores) == {("delay_20", "sliding window"), ("delay_20", "BOCD")}
    assert all((score.series, score.iterations, score.expected) == (3, 4_500, 3) for score in scores.values())
    assert all(one.name.startswith("delay_20/") and one.missed + one.false_alarms for one in wrong)


def test_the_tasks_cover_every_series_once():
    tasks = list(detection._tasks((0, 1), None))
    for name, population in POPULATIONS.items():
        for seed in (0, 1):
            numbers = [n for t in tasks if (t.suite, t.seed) == (name, seed) for n in range(t.first, t.end)]
            assert numbers == list(range(population.count))


def test_the_page_has_a_table_for_every_suite_and_falcons_figures():
    score = Score(series=2, iterations=20_000, expected=1, found=1, series_with_fault=1, delays=(10,), false_alarms=1)
    methods = ["sliding window", "BOCD"]
    synthetic = {(name, method): score for name in POPULATIONS for method in methods}
    recorded = {("run", method): score for method in methods}
    unseen = Unseen(
        4711, {"drift": score}, [Wrong(method="ours", name="drift/007", seed=4711, missed=1, false_alarms=0)]
    )
    text = page(synthetic, recorded, methods, (0, 1), ANSWERED, WRONG, EXACTNESS, unseen)
    assert "| run | 2,000 | slow from 5 to 9 (+10 %) | nothing |" in text
    assert "| clean/003 | 1 | 0 | 2 |" in text
    assert "clean/004" not in text
    assert "| 5 | 7 | 1 (clean/003 (seed 1)) |" in text
    assert all(f"### {name}: 2 series" in text for name in POPULATIONS)
    assert "Drawn when this page was written: 4711." in text
    assert "| drift | 1/1 | 1.000 | 1 |" in text
    assert "| drift/007 | 4711 | 1 | 0 |" in text
    assert "| computation | BOCD | 77.8 (305/392) | 18.4 (87/473) | 0.0 (0/6) | Falcon |" in text
    assert "| computation | BOCD | 100.0 (2/2) | 0.0 (0/1) | 0.0 (0/1) | ours |" in text
    assert "| BOCD | 1/1 | – | 1 |" not in text
    assert "| run, BOCD | 1/1 | 1.000 | 1 | 0.0500 |" in text
    tables = [block for block in text.split("\n\n") if block.startswith("|")]
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_the_answers_can_be_read():
    answers = TruthFile.read(ANSWERS)
    assert len({log.path for log in answers.logs}) == len(answers.logs) == 14


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the recordings are not at {FOLDER}")
def test_every_recording_has_an_answer_that_speaks_of_its_own_steps():
    found = recordings()
    assert {path.name for _, path in found} == {path.name for path in FOLDER.iterdir()}
    for answer, path in found:
        truth = answer.of(read(path))
        assert all(change.onset <= truth.last_step for change in truth.changes)
