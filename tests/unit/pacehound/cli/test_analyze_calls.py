"""`pacehound analyze` on call files: one job per directory, who and why at the top, or what is missing to say it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pacehound.cli import pacehound
from tests.fakes.call_files import (
    call,
    dump,
    inspector_call,
    inspector_context,
    lines,
    ras_answer,
    ras_missing,
    ras_rank,
    write_dumps,
)
from tests.fakes.evidence_words import words_of
from tests.fakes.recorded import RECORDED, needs_recordings

GROUPS = {"0": ("default_pg", [0, 1, 2])}


def ask(*arguments):
    return CliRunner().invoke(pacehound, ["analyze", *map(str, arguments)])


def answer_to(*arguments, exit_code=0):
    shown = ask(*arguments, "--json")
    assert shown.exit_code == exit_code, shown.output
    return json.loads(shown.stdout)


@pytest.fixture
def hung(tmp_path):
    """Ranks 0 and 2 wait in the fourth call, which rank 1 has not entered."""
    folder = tmp_path / "dumps"
    folder.mkdir()
    waits = dump([*(call(n, n) for n in (1, 2, 3)), call(4, 4, state="started")], GROUPS, {"0": (4, 4, 3)})
    away = dump([call(n, n) for n in (1, 2, 3)], GROUPS, {"0": (3, 3, 3)})
    write_dumps(folder, {0: waits, 1: away, 2: waits})
    return folder


def test_the_dumps_of_a_directory_are_one_job(hung):
    answer = answer_to(hung)
    assert answer["schema"] == 1
    (source,) = answer["sources"]
    assert (source["path"], source["format"], source["ranks"]) == (str(hung), "flight_recorder", [0, 1, 2])
    assert (source["world_size"], source["missing_ranks"], len(source["files"])) == (3, [], 3)
    assert source["cannot_know"]
    (finding,) = answer["findings"]
    assert (finding["kind"], finding["culprits"], finding["victims"]) == ("hang", [1], [0, 2])
    assert finding["source"] == str(hung)
    assert answer["refused"] == []


def test_files_that_are_given_one_by_one_are_the_same_job(hung):
    answer = answer_to(*sorted(hung.iterdir()))
    assert [source["path"] for source in answer["sources"]] == [str(hung)]
    assert answer["findings"][0]["culprits"] == [1]


def test_one_file_alone_is_named_by_itself_and_says_who_is_missing(hung):
    one = hung / "nccl_trace_rank_0"
    answer = answer_to(one)
    assert answer["sources"][0]["path"] == str(one)
    assert answer["sources"][0]["missing_ranks"] == [1, 2]
    shown = ask(one).stdout
    assert "missing: the files of ranks 1-2" in shown


def test_the_page_says_the_verdict_first_in_80_columns(hung):
    shown = ask(hung).stdout
    order = ["rank 1 holds the job up", "waiting", "evidence", "not seen", "flight_recorder, 3 files, ranks 0-2 of 3"]
    places = [shown.lower().index(said) for said in order]
    assert places == sorted(places)
    assert max(map(len, shown.splitlines())) <= 80


def test_without_a_finding_it_says_what_the_files_cannot_know(tmp_path):
    for rank in (0, 1):
        content = lines(inspector_context(rank, 2) | inspector_call(1))
        (tmp_path / f"{rank}.log").write_text(content)
    shown = ask(tmp_path)
    assert shown.exit_code == 0
    assert "No rank is seen to hold the job up" in shown.stdout
    assert "cannot tell calls that have begun and not ended" in " ".join(shown.stdout.split())


def test_directories_and_formats_are_jobs_of_their_own(hung, tmp_path):
    (tmp_path / "other").mkdir()
    write_dumps(tmp_path / "other", {0: dump([call(1, 1)], GROUPS)})
    (tmp_path / "other" / "node.log").write_text(lines(inspector_context(0, 1) | inspector_call(1)))
    (tmp_path / "steps.csv").write_text("step,step_time_s\n" + "".join(f"{n},0.5\n" for n in range(60)))
    answer = answer_to(tmp_path)
    assert {(source["path"], source["format"]) for source in answer["sources"]} == {
        (str(tmp_path / "steps.csv"), "csv"),
        (str(hung), "flight_recorder"),
        (str(tmp_path / "other" / "nccl_trace_rank_0"), "flight_recorder"),
        (str(tmp_path / "other" / "node.log"), "nccl_inspector"),
    }


def test_a_file_that_would_harm_is_refused_and_the_others_are_read(hung):
    (hung / "nccl_trace_rank_7").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    (hung / "nccl_trace_rank_8").write_bytes(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.")
    answer = answer_to(hung)
    assert answer["findings"][0]["culprits"] == [1]
    reasons = {Path(one["path"]).name: one["reason"] for one in answer["refused"]}
    assert "more than data: at byte 2 it has GLOBAL 'os system'" in reasons["nccl_trace_rank_8"]
    assert set(reasons) == {"nccl_trace_rank_7", "nccl_trace_rank_8"}


def test_names_in_a_file_do_not_steer_the_terminal(tmp_path):
    groups = {"0": ("default_pg\x1b[2J\ud800", [0, 1])}
    waits = call(1, 1, desc=groups["0"][0], state="started")
    for rank, entries in ((0, [waits]), (1, [])):
        made = dump(entries, groups, {"0": (1 - rank, -1, 0)})
        (tmp_path / f"rank_{rank}.json").write_text(json.dumps(made))
    shown = ask(tmp_path)
    assert shown.exit_code == 0
    assert "default_pg?[2J?" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert answer_to(tmp_path)["findings"][0]["culprits"] == [1]


def test_nothing_readable_is_bad_input(tmp_path):
    (tmp_path / "rank_0").write_bytes(b"\x80\x02}q\x00")
    (refused,) = answer_to(tmp_path, exit_code=2)["refused"]
    assert "ends early" in refused["reason"]


def ras(folder, *communicator):
    (folder / "ras.json").write_text(json.dumps(ras_answer(("0xa", *communicator))))
    return answer_to(folder)["findings"]


def test_who_has_launched_less_than_the_others_is_suspected(tmp_path):
    (finding,) = ras(tmp_path, [ras_rank(place, {"AllReduce": 7 - (place == 2)}) for place in range(4)], [])
    assert (finding["verdict"], finding["cause"], finding["culprits"]) == ("suspected", "H1", [2])


def test_who_gave_no_answer_is_not_said_to_have_launched_less(tmp_path):
    (finding,) = ras(tmp_path, [ras_rank(place, {"AllReduce": 7}) for place in range(3)], [ras_missing(3, dead=True)])
    assert (finding["verdict"], finding["culprits"], finding["candidates"]) == ("unknown", [], [3])
    assert "RAS considers it dead" in words_of(finding)[0]


def test_an_answer_in_which_all_are_alike_accuses_nobody(tmp_path):
    assert ras(tmp_path, [ras_rank(place, {"AllReduce": 7}) for place in range(3)], []) == []


@needs_recordings
@pytest.mark.parametrize(("name", "guilty"), [("gpu_error_1st", [12, 14]), ("lock_gil_1st", [9, 14])])
def test_the_recorded_faults_are_found_and_no_other(name, guilty):
    answer = answer_to(RECORDED / "fr" / name)
    assert [finding["culprits"] for finding in answer["findings"]] == [guilty]
    assert {Path(one["path"]).name for one in answer["refused"]} == {"fault_injection.log", "nvrx_reference.txt"}
