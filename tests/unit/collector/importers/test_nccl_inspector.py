"""Inspector logs: both forms say the same, ranks are world ranks, a cut last line is noted."""

from __future__ import annotations

import pytest

from pacehound.model.calls import CallBatch, Sees
from pacehound.model.events import UNTOLD, Progress, Topology
from tests.fakes.call_files import inspector_call, inspector_context, lines, read_job


def self_contained(rank, size, calls, **context):
    return lines(*(inspector_context(rank, size, **context) | call for call in calls))


def marker_stream(rank, size, calls, **context):
    stats = {"coll_records": len(calls), "coll_dropped_since_last_dump": 0, "p2p_records": 0, "proxy_records": 0}
    return lines(inspector_context(rank, size, version="v4.3", **context) | {"dump_stats": stats}, *calls)


def read(folder, contents):
    for rank, content in contents.items():
        (folder / f"node-pid{100 + rank}.log").write_text(content)
    return read_job(folder)


def rows(file):
    names = {one.communicator: one.name for one in file.events if isinstance(one, Topology)}
    return {
        names[one.communicator]: list(zip(one.integers("rank"), one.integers("seq"), strict=True))
        for one in file.events
        if isinstance(one, CallBatch)
    }


CALLS = [inspector_call(4), inspector_call(5), inspector_call(5, "AllGather")]


@pytest.mark.parametrize("form", [self_contained, marker_stream])
def test_both_forms_say_the_same(tmp_path, form):
    files = read(tmp_path, {rank: form(rank, 2, CALLS) for rank in (0, 1)})
    assert rows(files[1]) == {"0xabc AllReduce": [(1, 4), (1, 5)], "0xabc AllGather": [(1, 5)]}
    assert files[1].world_size == 2
    told = [one for one in files[1].events if isinstance(one, Progress)]
    assert {(one.ranks[0].last_launched, one.ranks[0].last_completed) for one in told} == {(UNTOLD, 5)}
    of = {
        file.ranks[0]: {one.communicator for one in file.events if isinstance(one, Topology)} for file in files.values()
    }
    assert of[0] == of[1]


def of_two_pairs(rank):
    """A call on the world of four ranks, and one on the pair of ranks that this one is in."""
    in_pair = self_contained(rank % 2, 2, CALLS[1:2], key=f"0x{rank // 2}", pid=100 + rank)
    return self_contained(rank, 4, CALLS[:1]) + in_pair


def test_places_in_a_smaller_communicator_become_world_ranks(tmp_path):
    files = read(tmp_path, {rank: of_two_pairs(rank) for rank in range(4)})
    assert rows(files[3]) == {"0xabc AllReduce": [(3, 4)], "0x1 AllReduce": [(3, 5)]}
    members = {one.name: one.members for one in files[3].events if isinstance(one, Topology)}
    assert members["0x1 AllReduce"] == (2, 3)


def test_a_communicator_of_whose_members_some_left_no_log_is_left_out(tmp_path):
    files = read(tmp_path, {rank: of_two_pairs(rank) for rank in (0, 1, 2)})
    assert set(rows(files[2])) == {"0xabc AllReduce"}
    assert any("0x1" in note and "missing" in note for note in files[2].notes)


def test_without_a_communicator_of_all_processes_ranks_are_not_made_up(tmp_path):
    reasons = read(tmp_path, {r: self_contained(r % 2, 2, CALLS, key=f"0x{r // 2}", pid=100 + r) for r in range(4)})
    assert len(reasons) == 4
    assert "world ranks cannot be told" in reasons[0]


def test_times_are_there_in_verbose_mode_alone(tmp_path):
    (tmp_path / "a").mkdir()
    file = read(tmp_path / "a", {0: self_contained(0, 1, [inspector_call(1, at_us=10**15)])})[0]
    (batch,) = [one for one in file.events if isinstance(one, CallBatch)]
    assert batch.sees == Sees.ALL
    assert batch.integers("launch_ns").tolist() == [10**18]
    assert batch.integers("start_ns").tolist() == [10**18 + 5_000]
    assert batch.integers("end_ns").tolist() == [10**18 + 41_000]
    (tmp_path / "b").mkdir()
    file = read(tmp_path / "b", {0: self_contained(0, 1, CALLS)})[0]
    assert {one.sees for one in file.events if isinstance(one, CallBatch)} == {Sees.NOTHING}
    assert any("VERBOSE" in said for said in file.cannot_know)


@pytest.mark.parametrize("form", [self_contained, marker_stream])
def test_a_cut_last_line_is_noted_and_the_rest_used(tmp_path, form):
    file = read(tmp_path, {0: form(0, 1, CALLS)[:-20]})[0]
    assert sum(len(found) for found in rows(file).values()) == 2
    assert any("is cut and was left out" in note for note in file.notes)


def test_a_line_cut_in_the_middle_is_refused_with_its_number(tmp_path):
    first, second, third, _ = self_contained(0, 1, CALLS).split("\n")
    (reason,) = read(tmp_path, {0: "\n".join((first, second[:40], third, ""))})
    assert "line 2" in reason


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (marker_stream(0, 1, CALLS) + lines(CALLS[0]), "line 5 is one call more than its part has"),
        (
            marker_stream(0, 1, CALLS[:2]).rsplit("\n", 2)[0] + "\n" + marker_stream(0, 1, CALLS),
            "begins a part 1 calls",
        ),
        (self_contained(0, 1, CALLS) + lines(CALLS[0]), "does not say whose call it is"),
        (self_contained(0, 1, CALLS) + self_contained(1, 2, CALLS), "others of another one"),
        (self_contained(3, 2, CALLS), "rank 3 of 2 cannot be"),
        (lines(inspector_context(0, 1) | {"coll_perf": {"coll": "AllReduce", "coll_sn": "x"}}), "coll_sn"),
        (lines(inspector_context(0, 1) | {"other": 1}), "has none of"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(tmp_path, content, said):
    (reason,) = read(tmp_path, {0: content})
    assert said in reason


def test_drops_and_gaps_travel_with_the_rows(tmp_path):
    stats = {"coll_records": 2, "coll_dropped_since_last_dump": 6, "p2p_records": 1}
    pair = {"p2p_perf": {"p2p": "Send", "p2p_sn": 1, "p2p_peer": 0}}
    content = lines(inspector_context(0, 1, version="v4.3", comm_name="DP Group 0") | {"dump_stats": stats},
                    inspector_call(1), inspector_call(9), pair)  # fmt: skip
    file = read(tmp_path, {0: content})[0]
    (batch,) = [one for one in file.events if isinstance(one, CallBatch)]
    assert batch.dropped == 6
    assert any("7 calls are missing" in note for note in file.notes)
    assert any("1 point-to-point" in note for note in file.notes)
    assert {one.name for one in file.events if isinstance(one, Topology)} == {"DP Group 0", "DP Group 0 AllReduce"}
