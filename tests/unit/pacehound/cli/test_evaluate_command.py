"""`pacehound evaluate`: suites and logs become rows of one form, and what is asked wrongly is said."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from pacehound import cli
from pacehound.model.topology import Layout
from simulator.suites.call_jobs import CALL_JOBS

COLUMNS = {
    "suite",
    "case",
    "expected",
    "found",
    "precision",
    "recall",
    "delay_iterations",
    "false_alarms",
    "culprit_accuracy",
}


def evaluate(*arguments):
    return CliRunner().invoke(cli.pacehound, ["evaluate", *map(str, arguments)])


def rows_of(*arguments):
    answer = evaluate(*arguments, "--json")
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert told["schema"] == 1
    assert all(set(row) == COLUMNS for row in told["rows"])
    return told["rows"]


@pytest.fixture
def log(tmp_path):
    """120 steps, slower from step 60 on."""
    lines = ["step,step_time_s", *(f"{step},{0.1 if step < 60 else 0.15}" for step in range(120))]
    path = tmp_path / "run.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def answers(tmp_path, *changes, name="run.csv", **more):
    path = tmp_path / "answers.json"
    path.write_text(json.dumps({"schema": 1, "logs": [{"path": name, "changes": changes}], **more}))
    return path


def test_a_suite_gives_one_row_per_seed(monkeypatch):
    monkeypatch.setattr("simulator.suites.step_times.POPULATIONS", _small("delay_20", 5))
    rows = rows_of("--suite", "delay_20", "--seeds", 2)
    assert [(row["suite"], row["case"], row["expected"], row["found"]) for row in rows] == [
        ("delay_20", "seed 0", 5, 5),
        ("delay_20", "seed 1", 5, 5),
    ]
    assert all(row["recall"] == row["precision"] == 1.0 and row["delay_iterations"] <= 12 for row in rows)
    assert all(row["culprit_accuracy"] is None for row in rows)


def _small(name, count):
    import dataclasses

    from simulator.suites.step_times import POPULATIONS

    return {name: dataclasses.replace(POPULATIONS[name], count=count)}


def _in_replicas(make):
    """The same job without pipelines and tensor parallelism: a third of the calls."""
    return lambda seed: replace(make(seed), layout=Layout(dp=8))


def test_whole_jobs_are_scored_with_their_culprits(monkeypatch):
    some = {name: _in_replicas(CALL_JOBS[name]) for name in ("clean", "slow_rank", "killed_rank")}
    monkeypatch.setattr("simulator.suites.call_jobs.CALL_JOBS", some)
    clean, slow, killed = rows_of("--suite", "calls")
    assert (clean["case"], clean["expected"], clean["false_alarms"], clean["recall"]) == ("clean", 0, 0, None)
    assert (slow["recall"], slow["precision"], slow["culprit_accuracy"]) == (1.0, 1.0, 1.0)
    assert (killed["recall"], killed["culprit_accuracy"], killed["delay_iterations"]) == (1.0, 1.0, None)


def test_root_causes_have_a_row_per_source(monkeypatch):
    from simulator.suites.root_cause_jobs import SCENARIOS, SOURCES

    monkeypatch.setattr("simulator.suites.root_cause_jobs.SOURCES", {"counts only": SOURCES["counts only"]})
    monkeypatch.setattr("simulator.suites.root_cause_jobs.SCENARIOS", {"stopped": SCENARIOS["stopped"]})
    (row,) = rows_of("--suite", "root_cause", "--seeds", 2)
    assert (row["suite"], row["case"], row["expected"], row["found"]) == ("root_cause", "counts only", 2, 2)
    assert row["false_alarms"] == 0


def test_a_log_is_held_against_its_answer(tmp_path, log):
    truth = answers(tmp_path, {"kind": "slow", "onset": 60, "magnitude": 0.5})
    (row,) = rows_of("--truth", truth, log)
    assert (row["suite"], row["case"], row["found"], row["false_alarms"]) == ("logs", str(log), 1, 0)
    (row,) = rows_of("--truth", answers(tmp_path), log)
    assert (row["found"], row["expected"], row["false_alarms"]) == (0, 0, 1)


def test_without_paths_all_logs_beside_the_answers_are_scored(tmp_path, log):
    assert [row["case"] for row in rows_of("--truth", answers(tmp_path))] == [str(log)]


def test_people_get_a_table(tmp_path, log):
    answer = evaluate("--truth", answers(tmp_path), log)
    assert answer.exit_code == 0
    assert answer.stdout.splitlines()[0].split() == [
        "suite",
        "case",
        "found",
        "false",
        "precision",
        "recall",
        "delay",
        "culprits",
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is no file of answers"),
        ('{"schema": 2, "logs": []}', "has schema 2"),
        ('{"schema": 1, "logs": []}', "there are 0 answers"),
        ('{"schema": 1, "logs": [{"path": "run.csv", "changes": [{"kind": "sluggish", "onset": 3}]}]}', "sluggish"),
        ('{"schema": 1, "logs": [{"path": "run.csv", "changes": [{"kind": "slow", "onset": 9, "end": 3}]}]}', "ends"),
        (
            '{"schema": 1, "logs": [{"path": "run.csv", "changes":'
            ' [{"kind": "slow", "onset": 9}, {"kind": "slow", "onset": 3}]}]}',
            "in order",
        ),
        ('{"schema": 1, "logs": [{"path": "run.csv", "chanegs": []}]}', "chanegs"),
    ],
)
def test_a_bad_file_of_answers_is_refused(tmp_path, log, content, words):
    (tmp_path / "answers.json").write_text(content)
    answer = evaluate("--truth", tmp_path / "answers.json", log)
    assert answer.exit_code == 2
    assert words in answer.stderr
    assert "Traceback" not in answer.output


def test_what_is_asked_wrongly_is_said(tmp_path, log):
    assert "give --truth FILE" in evaluate(log).stderr
    assert "there is no suite nonsense" in evaluate("--suite", "nonsense").stderr
    assert evaluate("--suite", "nonsense").exit_code == evaluate(log).exit_code == 2
    assert evaluate("--truth", tmp_path / "none.json").exit_code == 2
