"""`pacehound analyze`: a script gets the contract, a person a page of 80 columns, and what is refused says why."""

from __future__ import annotations

import gzip
import json
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from pacehound.cli import pacehound
from tests.fakes.evidence_words import words_of
from tests.fakes.profiler_traces import ranged, trace_of, written

FIELDS = {"id", "kind", "verdict", "cause", "culprits", "candidates", "victims", "links", "onset", "detected", "relief"}
FIELDS |= {"magnitude", "lasting", "pages", "evidence", "unseen", "source"}


def table(times_s, ranks=(None,)):
    header = "step,step_time_s" + (",rank" if ranks != (None,) else "")
    rows = [
        f"{step},{time_s[rank or 0] if np.ndim(time_s) else time_s:.6f}" + (f",{rank}" if rank is not None else "")
        for step, time_s in enumerate(times_s)
        for rank in ranks
    ]
    return "\n".join([header, *rows]) + "\n"


def slow_between(first, last, n=300, factor=1.4, seed=7):
    steps = np.arange(n)
    noise = 1 + 0.01 * np.random.default_rng(seed).standard_normal(n)
    return 0.1 * noise * np.where((steps >= first) & (steps < last), factor, 1.0)


def ask(*arguments):
    return CliRunner().invoke(pacehound, ["analyze", *map(str, arguments)])


def answer_to(*arguments):
    shown = ask(*arguments, "--json")
    assert shown.exit_code == 0, shown.output
    return json.loads(shown.stdout)


@pytest.fixture
def slow_log(tmp_path):
    file = tmp_path / "slow.csv"
    file.write_text(table(slow_between(100, 200)))
    return file


def test_the_json_answer_has_the_keys_of_the_design(slow_log):
    answer = answer_to(slow_log)
    assert answer["schema"] == 1
    assert {"sources", "findings", "refused", "planned"} <= set(answer)
    (source,) = answer["sources"]
    assert (source["path"], source["format"], source["ranks"], source["steps"]) == (str(slow_log), "csv", [], 300)
    assert source["notes"] == []
    (finding,) = answer["findings"]
    assert set(finding) >= FIELDS
    assert finding["source"] == str(slow_log)
    assert finding["onset"]["step"] == pytest.approx(100, abs=3)
    assert finding["relief"]["step"] == pytest.approx(200, abs=3)


def test_the_page_tells_the_whole_story_in_80_columns(slow_log):
    shown = ask(slow_log)
    assert shown.exit_code == 0
    for said in ("csv, 300 steps (0 to 299), median", "Steps take longer", "since", "until", "how much", "evidence",
                 "not seen", "S slow", "step 299", "█"):  # fmt: skip
        assert said in shown.stdout, said
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "\x1b" not in shown.stdout


def test_planned_steps_are_listed_apart_and_a_single_pause_is_drawn(tmp_path):
    times_s = slow_between(0, 0)
    times_s[9::10] *= 3.0
    times_s[150] = 2.0
    (tmp_path / "a.csv").write_text(table(times_s))
    answer = answer_to(tmp_path / "a.csv")
    assert answer["findings"] == []
    (planned,) = answer["planned"]
    assert planned["kind"] == "planned"
    assert "one step in 10 takes" in words_of(planned)[0]
    shown = ask(tmp_path / "a.csv").stdout
    assert "Nothing to report." in shown
    assert "Planned (nothing to do)" in shown
    assert "▲ single steps, up to 2.0 s at step 150" in shown


def test_a_directory_is_walked_and_what_cannot_be_read_is_told(tmp_path, slow_log):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.log").write_bytes(gzip.compress(table([0.1] * 50).encode()))
    (tmp_path / ".hidden").write_text("nothing")
    (tmp_path / "model.bin").write_bytes(bytes(range(256)) * 100)
    answer = answer_to(tmp_path, slow_log)
    assert [source["path"] for source in answer["sources"]] == [str(slow_log), str(tmp_path / "sub" / "b.log")]
    assert answer["refused"] == [{"path": str(tmp_path / "model.bin"), "reason": "the file is binary, no log"}]
    assert "Not read:" in ask(tmp_path).stdout


def test_nothing_readable_is_bad_input_and_still_an_answer(tmp_path):
    shown = ask(tmp_path / "missing.log", "--json")
    assert shown.exit_code == 2
    (refused,) = json.loads(shown.stdout)["refused"]
    assert "No such file" in refused["reason"]
    assert ask(tmp_path).exit_code == 2
    assert ask().exit_code == 2
    assert ask(tmp_path, "--set", "no.such=1").exit_code == 2


def test_the_bar_is_a_setting(tmp_path):
    (tmp_path / "a.csv").write_text(table(slow_between(100, 200, factor=1.2)))
    assert len(answer_to(tmp_path)["findings"]) == 1
    assert answer_to(tmp_path, "--set", "slow.min_change=0.3")["findings"] == []


def test_what_an_earlier_run_did_at_the_same_step_is_planned(tmp_path, slow_log):
    (tmp_path / "earlier.csv").write_text(table(slow_between(100, 200, seed=8)))
    answer = answer_to(slow_log, "--history", tmp_path / "earlier.csv")
    assert answer["findings"] == []
    assert [finding["onset"]["step"] for finding in answer["planned"]] == pytest.approx([100, 200], abs=3)
    assert all("so did" in words_of(finding)[0] for finding in answer["planned"])


def test_a_history_that_cannot_be_read_is_told(tmp_path, slow_log):
    answer = answer_to(slow_log, "--history", tmp_path / "missing")
    assert [refused["path"] for refused in answer["refused"]] == [str(tmp_path / "missing")]
    assert len(answer["sources"]) == len(answer["findings"]) == 1


def test_ranks_that_agree_are_one_finding_and_one_apart_is_suspected(tmp_path):
    n, ranks = 400, (0, 1, 2, 3)
    times_s = np.stack([slow_between(100, 180, n, seed=rank) for rank in ranks], axis=1)
    times_s[300:, 2] *= 1.5
    (tmp_path / "ranks.csv").write_text(table(times_s, ranks))
    answer = answer_to(tmp_path)
    assert answer["sources"][0]["ranks"] == [0, 1, 2, 3]
    together, apart = answer["findings"]
    assert (together["verdict"], together["culprits"], together["ranks"]) == ("unknown", [], [0, 1, 2, 3])
    assert any("all 4 ranks" in said for said in words_of(together))
    assert (apart["verdict"], apart["culprits"], apart["ranks"]) == ("suspected", [2], [2])
    shown = ask(tmp_path).stdout
    assert "Steps take longer on ranks 0-3" in shown
    assert "Probably rank 2 slows the job down" in shown


def test_of_two_ranks_none_is_suspected(tmp_path):
    times_s = np.stack([slow_between(0, 0), slow_between(150, 300)], axis=1)
    (tmp_path / "ranks.csv").write_text(table(times_s, (0, 1)))
    (finding,) = answer_to(tmp_path)["findings"]
    assert (finding["verdict"], finding["culprits"], finding["ranks"]) == ("unknown", [], [1])


def test_a_picture_is_drawn(tmp_path, slow_log):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "drawn.png"
    answer = ask(slow_log, "--png", picture)
    assert answer.exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    unwritable = ask(slow_log, "--png", tmp_path / "no" / "folder.png")
    assert unwritable.exit_code == 2
    assert "cannot write" in unwritable.stderr


def test_without_matplotlib_a_picture_says_what_to_install(tmp_path, slow_log, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    answer = ask(slow_log, "--png", tmp_path / "drawn.png")
    assert answer.exit_code == 2
    assert "pip install 'pacehound[draw]'" in answer.stderr


@pytest.mark.parametrize("times_s", [[0.1], [0.1, 0.2], [float("nan")] * 30, [0.0] * 30, [-1.0] * 30, [0.1] * 3000])
def test_odd_series_are_answered_and_drawn(tmp_path, times_s):
    pytest.importorskip("matplotlib")
    (tmp_path / "a.csv").write_text(table(times_s))
    answer = answer_to(tmp_path, "--png", tmp_path / "a.png")
    assert answer["findings"] == []
    assert ask(tmp_path / "a.csv").exit_code == 0


def test_a_log_with_one_step_of_a_minute_has_something_to_report(tmp_path):
    times_s = np.full(1000, 0.1)
    times_s[500] = 60.0
    file = tmp_path / "pause.csv"
    file.write_text(table(times_s))
    (finding,) = answer_to(file)["findings"]
    assert (finding["kind"], finding["onset"]["step"], finding["pages"]) == ("intermittent", 500, False)
    assert "Single steps took long" in ask(file).stdout


def profiled(rank, slow_rank):
    """Nine steps of a data-parallel rank: three times as long on the slow one, for which the others wait."""
    events = []
    for step in range(9):
        at_us, pass_us = 10_000.0 * step, 3000.0 if rank == slow_rank else 1000.0
        wait_us = (6500.0 if slow_rank is not None else 2500.0) - 2 * pass_us
        events += [
            ranged(f"ProfilerStep#{step}", at_us, 9900),
            ranged("autograd::engine::evaluate_function: MulBackward0", at_us + pass_us, pass_us / 2, "cpu_op"),
            ranged("autograd::engine::evaluate_function: AddBackward0", at_us + 1.5 * pass_us, pass_us / 2, "cpu_op"),
            ranged("gloo:all_reduce", at_us + 2 * pass_us - 20, wait_us + 20),
            ranged("Optimizer.step#SGD.step", at_us + 2 * pass_us + wait_us, 200),
        ]
    return trace_of(rank, 4, events)


@pytest.mark.parametrize("slow_rank", [1, None])
def test_of_profiler_traces_analyze_says_what_whatif_says(tmp_path, slow_rank):
    written(tmp_path, [profiled(rank, slow_rank) for rank in range(4)])
    simulated = CliRunner().invoke(pacehound, ["whatif", str(tmp_path), "--json"])
    causes = [pattern["name"] for pattern in json.loads(simulated.stdout)["patterns"]]
    found = [(finding["kind"], finding["culprits"]) for finding in answer_to(tmp_path)["findings"]]
    assert (causes, found) == ((["single worker"], [("slow", [1])]) if slow_rank else ([], []))
