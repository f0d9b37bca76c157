"""Answers of NCCL's RAS, as JSON and as text: launches by function and world rank, who gave none, what is mended."""

from __future__ import annotations

import json

import pytest

from collector.importers.recognise import read_call_files
from pacehound.model.events import UNTOLD, HostSample, Progress, Topology
from tests.fakes.call_files import ras_answer, ras_missing, ras_rank


def read(tmp_path, content):
    (tmp_path / "ras.out").write_text(content)
    found = read_call_files([tmp_path / "ras.out"])
    assert found.others == ()
    if found.refused:
        return found.refused[0].reason
    (calls,) = found.sets
    (file,) = calls.files
    return file


def counts(file):
    """Launched operations by communicator's name, and rank."""
    names = {one.communicator: one.name for one in file.events if isinstance(one, Topology)}
    return {
        names[one.communicator]: {
            rank.rank: rank.last_launched + 1 for rank in one.ranks if rank.last_launched != UNTOLD
        }
        for one in file.events
        if isinstance(one, Progress) and one.ranks
    }


def details(file):
    return {
        process.rank: (process.state, process.detail)
        for one in file.events
        if isinstance(one, HostSample)
        for process in one.processes
    }


WORLD = [ras_rank(place, {"AllReduce": 7, "AllGather": 3}) for place in range(4)]
# Places 0 and 1 of a smaller one are the processes 102 and 103.
PAIR = [
    ras_rank(0, {"AllReduce": 9}, pid=102) | {"nvml_dev": 2},
    ras_rank(1, {"AllReduce": 8}, pid=103) | {"nvml_dev": 3},
]


def test_each_function_is_counted_apart_by_world_rank(tmp_path):
    file = read(tmp_path, json.dumps(ras_answer(("0xb", PAIR, []), ("0xa", WORLD, [])), indent=2))
    assert (file.format, file.ranks, file.world_size) == ("nccl_ras_json", (0, 1, 2, 3), 4)
    assert counts(file) == {
        "0xa 0x1:0x2 AllReduce": dict.fromkeys(range(4), 7),
        "0xa 0x1:0x2 AllGather": dict.fromkeys(range(4), 3),
        "0xb 0x1:0x2 AllReduce": {2: 9, 3: 8},
    }
    assert {one.members for one in file.events if isinstance(one, Topology) and one.is_world} == {(0, 1, 2, 3)}
    assert not any(one.sees_completion for one in file.events if isinstance(one, Progress))
    assert all(one.time_ns == 1766149613 * 10**9 for one in file.events)
    assert any("symmetric" in said or "looks healthy" in said for said in file.cannot_know)


def test_ranks_that_gave_no_answer_are_members_whose_state_is_unknown(tmp_path):
    file = read(tmp_path, json.dumps(ras_answer(("0xa", WORLD[:3], [ras_missing(3, dead=True)]))))
    assert file.ranks == (0, 1, 2, 3)
    assert counts(file)["0xa 0x1:0x2 AllReduce"] == {0: 7, 1: 7, 2: 7}
    assert details(file) == {
        0: ("running", ""), 1: ("running", ""), 2: ("running", ""),
        3: ("unknown", "RAS considers it dead: it could not be reached for a minute"),
    }  # fmt: skip


def test_errors_of_a_rank_are_told(tmp_path):
    broken = ras_rank(1, {"AllReduce": 7}, async_error=2, abort_flag=True)
    file = read(tmp_path, json.dumps(ras_answer(("0xa", [ras_rank(0, {"AllReduce": 7}), broken], []))))
    assert details(file)[1] == ("running", "a call failed with NCCL's error 2; its communicator was aborted")


def test_without_a_communicator_of_all_processes_world_ranks_are_not_made_up(tmp_path):
    others = [ras_rank(0, {"AllReduce": 1}, pid=900), ras_rank(1, {"AllReduce": 1}, pid=901)]
    reason = read(tmp_path, json.dumps(ras_answer(("0xa", PAIR, []), ("0xb", others, []))))
    assert "world ranks cannot be told" in reason


MALFORMED = [
    lambda text: "NCCL version 2.28.7 compiled with CUDA 13.0\nCUDA runtime version 13000\n\n" + text,
    lambda text: text.replace('"status"', ',"status"', 1).replace(",,", ","),
    lambda text: text.replace("},\n        {", "}\n        {"),
    lambda text: text.replace("]\n    }", "],\n    }"),
    lambda text: text + "\nConnection closed.\n",
]


@pytest.mark.parametrize("damage", MALFORMED)
def test_the_malformed_variants_are_mended_and_that_is_said(tmp_path, damage):
    text = json.dumps(ras_answer(("0xa", WORLD, [])), indent=2)
    damaged = damage(text)
    file = read(tmp_path, damaged)
    assert counts(file)["0xa 0x1:0x2 AllReduce"] == dict.fromkeys(range(4), 7)
    if damaged != text:
        assert any("passed over" in note or "mended" in note for note in file.notes)


def test_an_answer_that_is_cut_is_refused(tmp_path):
    text = json.dumps(ras_answer(("0xa", WORLD, [])), indent=2)
    assert "JSON" in read(tmp_path, text[: len(text) // 2])


HEADER = """NCCL version 2.27.3 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes         GPUs
(total)   per node  per process    (total)      (total)
      4          8            1         32           32

Communicators... (0.12s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  {errors}
    1         8         1         4         4        32   RUNNING      OK

Errors
======

{first}
Warnings
========

{second}"""
MISMATCH = """#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  30 ranks have launched up to operation 640
  2 ranks have launched up to operation 639
  Rank 5 -- GPU 5 managed by process 507290 on node 172.16.64.210
  Rank 21 -- GPU 5 (NVML 7) managed by process 3487984 on node 172.16.64.213

  Communicator ranks have different Broadcast operation counts
  31 ranks have launched up to operation 2
  Rank 0 has not launched any operations -- GPU 0 managed by process 507285 on node 172.16.64.210

"""


def test_text_gives_the_others_the_count_that_is_left(tmp_path):
    file = read(tmp_path, HEADER.format(errors="MISMATCH", first="", second=MISMATCH))
    assert (file.format, file.world_size, len(file.ranks)) == ("nccl_ras_text", 32, 32)
    told = counts(file)
    reduced = told["cf264af53edbe986 AllReduce"]
    assert {rank: count for rank, count in reduced.items() if count != 640} == {5: 639, 21: 639}
    assert len(reduced) == 32
    assert told["cf264af53edbe986 Broadcast"] == {0: 0, **dict.fromkeys(range(1, 32), 2)}


def test_text_that_leaves_a_choice_gives_no_count_to_those_it_does_not_name(tmp_path):
    launched = "ranks have launched up to operation"
    halves = MISMATCH.replace(f"30 {launched} 640", f"20 {launched} 640\n  10 {launched} 638")
    file = read(tmp_path, HEADER.format(errors="MISMATCH", first="", second=halves))
    assert counts(file)["cf264af53edbe986 AllReduce"] == {5: 639, 21: 639}


INCOMPLETE = """INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  {missing}

"""


@pytest.mark.parametrize(
    "missing", ["The missing rank: 21", "Rank 21 -- GPU 5 managed by process 3487984 on node 172.16.64.213"]
)
def test_text_names_who_gave_no_answer(tmp_path, missing):
    file = read(tmp_path, HEADER.format(errors="INCOMPLETE", first=INCOMPLETE.format(missing=missing), second=""))
    assert details(file) == {21: ("unknown", "RAS got no answer from it")}


def test_text_without_its_table_is_refused(tmp_path):
    assert "cut short" in read(tmp_path, HEADER.split("Group ")[0])


def test_text_of_small_communicators_alone_is_refused(tmp_path):
    of_all = "    0         1         4         8        32        32   RUNNING  OK\n"
    text = HEADER.format(errors="OK", first="", second="").replace(of_all, "")
    assert "world ranks cannot be told" in read(tmp_path, text)
