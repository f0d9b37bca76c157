"""Flight Recorder dumps: every incomplete call, counters that mean the same on all ranks, groups matched over ranks."""

from __future__ import annotations

import pickle

import pytest

from collector.importers.call_files.flight_recorder.dump import checked
from collector.importers.recognise import read_call_files
from pacehound.model.calls import OPS, CallBatch, Sees
from pacehound.model.events import NEVER, UNTOLD, PairProgress, Progress, Topology
from tests.fakes.call_files import SECOND_NS, as_json, call, dump, write_dumps

PP = ("PIPELINE", [0, 4])


def read(folder, refused=0):
    found = read_call_files(sorted(folder.iterdir()))
    assert len(found.refused) == refused, found.refused
    (calls,) = found.sets
    return {file.ranks[0]: file for file in calls.files}


def of(file, kind, name=None):
    ids = {one.communicator for one in file.events if isinstance(one, Topology) and name in (None, one.name)}
    return [one for one in file.events if isinstance(one, kind) and one.communicator in ids]


def standing(file, name="default_pg"):
    (progress,) = of(file, Progress, name)
    (rank,) = progress.ranks
    return rank


def test_every_incomplete_call_is_open_the_oldest_first(tmp_path):
    entries = [call(n, n, state="completed" if n < 3 else "scheduled") for n in range(1, 11)]
    write_dumps(tmp_path, {0: dump(reversed(entries))})
    ours = standing(read(tmp_path)[0])
    assert [one.seq for one in ours.open] == list(range(3, 11))
    first = ours.open[0]
    assert (first.op, first.count, first.dtype, first.launch_ns) == ("all_reduce", 32, "float32", 1003 * SECOND_NS)
    assert (ours.last_launched, ours.last_completed) == (10, 2)


def test_a_call_that_was_given_up_was_waited_in(tmp_path):
    write_dumps(tmp_path, {0: dump([call(1, 1, state="scheduled", retired=True)])})
    file = read(tmp_path)[0]
    assert [one.seq for one in standing(file).open] == [1]
    assert any("given up" in note for note in file.notes)


@pytest.mark.parametrize(("states", "expected"), [
    (("scheduled", "scheduled"), [None, None]), (("started", "scheduled"), [True, False]),
])  # fmt: skip
def test_a_start_is_known_only_where_starts_are_recorded(tmp_path, states, expected):
    write_dumps(tmp_path, {0: dump([call(n, n, state=state) for n, state in enumerate(states, 1)])})
    assert [one.has_started for one in standing(read(tmp_path)[0]).open] == expected


def test_completed_calls_become_rows_with_the_end_that_was_noticed(tmp_path):
    write_dumps(tmp_path, {0: dump([call(1, 1), call(2, 2, name="_all_gather_base"), call(3, 3, state="started")])})
    (batch,) = of(read(tmp_path)[0], CallBatch)
    assert batch.source == "flight_recorder"
    assert batch.sees == Sees.LAUNCH | Sees.END
    assert batch.integers("seq").tolist() == [1, 2]
    assert [OPS[code] for code in batch.codes("op")] == ["all_reduce", "all_gather"]
    assert batch.integers("launch_ns").tolist() == [1001 * SECOND_NS, 1002 * SECOND_NS]
    assert batch.integers("start_ns").tolist() == [0, 0]
    assert batch.integers("end_ns").tolist() == [1001 * SECOND_NS + SECOND_NS // 2, 1002 * SECOND_NS + SECOND_NS // 2]


def test_an_empty_dump_still_says_how_far_its_rank_was(tmp_path):
    status = {"0": (7, -1, 7), "2": (3, -1, 3)}
    groups = {"0": ("default_pg", [0, 1]), "5": ("TP", [0, 1])}
    write_dumps(tmp_path, {0: dump((), groups, status), 1: dump([call(1, 8, state="scheduled")], groups)})
    files = read(tmp_path)
    assert (standing(files[0]).last_launched, standing(files[0]).last_completed) == (7, 7)
    assert (standing(files[0], "TP").last_launched, standing(files[0], "TP").open) == (3, ())
    assert files[0].world_size == 2
    (world,) = [one for one in of(files[0], Topology) if one.is_world]
    assert (world.members, world.host_ranks, world.host) == ((0, 1), (0,), "nccl_trace_rank_0")
    (progress,) = of(files[0], Progress, "default_pg")
    assert len(progress.announced) == 2


def test_counters_that_mix_point_to_point_calls_are_not_taken_for_collectives(tmp_path):
    groups = {"0": ("default_pg", [0, 4]), "3": PP}
    pair = call(1, 26, group="3", desc="PIPELINE", name="send 0->1", state="scheduled", p2p=900, pg_id=1)
    status = {"0": (5, -1, 5), "1": (900, -1, 899)}
    write_dumps(tmp_path, {0: dump([pair], groups, status), 4: dump((), groups, status)})
    files = read(tmp_path)
    assert (standing(files[0], "PIPELINE").last_launched, standing(files[0], "PIPELINE").last_completed) == (26, 26)
    # Its own dump has no entry, the others' say that the counter is that of point-to-point calls.
    assert standing(files[4], "PIPELINE").last_launched == UNTOLD
    assert standing(files[4]).last_launched == 5


def test_counters_without_a_name_stay_untold(tmp_path):
    groups = {"0": ("default_pg", [0, 1]), "a9f": ("TP", [0, 1])}  # one name is a hash: nothing says which is which
    write_dumps(tmp_path, {0: dump((), groups, {"0": (7, -1, 7), "2": (3, -1, 3)})})
    assert standing(read(tmp_path)[0], "TP").last_launched == UNTOLD
    write_dumps(tmp_path, {0: dump((), None, {"0": (-1, -1, -1)})})
    assert standing(read(tmp_path)[0]).last_launched == NEVER


def test_counters_that_contradict_the_calls_are_not_used(tmp_path):
    write_dumps(tmp_path, {0: dump([call(1, 9, state="scheduled")], None, {"0": (4, -1, 4)})})
    file = read(tmp_path)[0]
    assert (standing(file).last_launched, standing(file).last_completed) == (9, 8)
    assert any("contradict" in note for note in file.notes)


def test_pairs_are_numbered_alike_on_both_ends_however_much_each_rank_has_counted(tmp_path):
    groups = {"0": ("default_pg", range(8)), "3": PP}
    there = [call(n, 1, group="3", desc="PIPELINE", name="send 0->1", state="scheduled", p2p=700 + n) for n in (1, 3)]
    back = call(2, 1, group="3", desc="PIPELINE", name="recv 0<-1", state="scheduled", p2p=702)
    here = [call(n, 1, group="3", desc="PIPELINE", name="recv 1<-0", state="scheduled", p2p=40 + n) for n in (5, 6)]
    write_dumps(tmp_path, {0: dump([*there, back], groups), 4: dump(here, groups)})
    files = read(tmp_path)
    sender, receiver = standing(files[0], "PIPELINE"), standing(files[4], "PIPELINE")
    assert [(one.op, one.seq, one.peer, one.direction) for one in sender.open] == [
        ("send", 0, 4, "send"), ("recv", 0, 4, "recv"), ("send", 1, 4, "send"),
    ]  # fmt: skip
    assert [(one.seq, one.peer, one.direction) for one in receiver.open] == [(0, 0, "recv"), (1, 0, "recv")]
    assert PairProgress(peer=4, direction="send", last_launched=1) in sender.pairs


def batch(state, *, with_end=True):
    names = ("send 0->1", "recv 0<-1", "coalesced") if with_end else ("send 0->1", "recv 0<-1")
    return [
        call(n, 1, group="3", desc="PIPELINE", name=name, p2p=50, state=state if name == "coalesced" else "scheduled")
        for n, name in enumerate(names, 1)
    ]


@pytest.mark.parametrize(("entries", "still_open"), [
    (batch("completed"), 0), (batch("started"), 2), (batch("", with_end=False), 0),
])  # fmt: skip
def test_the_calls_of_a_batch_are_as_far_as_the_batch(tmp_path, entries, still_open):
    write_dumps(tmp_path, {0: dump(entries, {"0": ("default_pg", range(8)), "3": PP})})
    file = read(tmp_path)[0]
    found = standing(file, "PIPELINE").open
    assert len(found) == still_open
    assert all(one.has_started for one in found)
    assert any("do not count as open" in note for note in file.notes) == (len(entries) == 2)


def test_a_batch_of_collectives_without_its_calls_is_one_call_of_unknown_kind(tmp_path):
    write_dumps(tmp_path, {0: dump([call(1, 4, name="coalesced", state="scheduled")])})
    (found,) = standing(read(tmp_path)[0]).open
    assert (found.op, found.seq, found.direction) == ("unknown", 4, "none")


def ids(file):
    return {one.name: one.communicator for one in of(file, Topology)}


def test_groups_are_matched_by_description_and_ranks_whatever_their_numbers(tmp_path):
    one = {"0": ("default_pg", [0, 1]), "4": ("TP", [0, 1])}
    other = {"0": ("default_pg", [0, 1]), "9": ("TP", [1, 0])}
    write_dumps(tmp_path, {0: dump((), one), 1: dump((), other)})
    files = read(tmp_path)
    assert ids(files[0]) == ids(files[1])
    assert len(set(ids(files[0]).values())) == 2


def test_groups_that_are_alike_are_kept_apart_by_their_order(tmp_path):
    names = {"10": ("DP", [0, 1]), "9": ("DP", [0, 1])}
    write_dumps(tmp_path, {0: dump((), names), 1: dump((), {"10": ("DP", [0, 1])})})
    files = read(tmp_path)
    ninth, tenth = sorted(files[0].events[:2], key=lambda one: one.communicator)
    assert ninth.communicator != tenth.communicator
    # The second rank has not used the ninth yet: it must not take the tenth for it.
    by_place = [one.communicator for one in of(files[0], Topology)]
    assert of(files[1], Topology)[0].communicator == by_place[0]


@pytest.mark.parametrize("name", ["_dump_4", "nccl_trace_rank_4", "trace_rank4.json", "x.rank-4.pkl.gz"])
def test_the_rank_is_in_the_name(tmp_path, name):
    content = pickle.dumps(dump((), {"3": PP}))
    if name.endswith(".gz"):
        import gzip

        content = gzip.compress(content)
    (tmp_path / name).write_bytes(content)
    assert list(read(tmp_path)) == [4]


def test_the_rank_is_in_the_calls_where_the_name_is_silent(tmp_path):
    groups = {"0": ("default_pg", range(8)), "3": PP}
    entry = call(1, 1, group="3", desc="PIPELINE", name="recv 1<-0", state="scheduled", p2p=3)
    (tmp_path / "dump.pkl").write_bytes(pickle.dumps(dump([entry], groups)))
    assert list(read(tmp_path)) == [4]


def test_a_name_that_contradicts_the_contents_is_refused(tmp_path):
    (tmp_path / "_dump_3").write_bytes(pickle.dumps(dump((), {"0": ("default_pg", range(8)), "3": PP})))
    (tmp_path / "dump").write_bytes(pickle.dumps(dump((), {"0": ("default_pg", range(8))})))
    found = read_call_files(sorted(tmp_path.iterdir()))
    assert found.sets == ()
    contradicts, silent = (one.reason for one in found.refused)
    assert "the file's name says rank 3, its groups and calls are those of one of ranks [0, 4]" in contradicts
    assert "put the rank into the file's name" in silent


def test_dumps_of_another_job_or_of_one_rank_twice_are_refused(tmp_path):
    write_dumps(tmp_path, {0: dump(), 1: dump(), 2: dump((), {"0": ("default_pg", range(8))})})
    (tmp_path / "other_rank_1").write_bytes(pickle.dumps(dump()))
    found = read_call_files(sorted(tmp_path.iterdir()))
    assert [file.ranks for file in found.sets[0].files] == [(0,), (1,)]
    reasons = sorted(one.reason for one in found.refused)
    assert "its job has 8 ranks, that of the other dumps 2: they are not of one job" in reasons[0]
    assert "nccl_trace_rank_1 is the dump of rank 1 already" in reasons[1]


def test_json_says_the_same_as_the_pickle(tmp_path):
    made = dump([call(1, 1), call(2, 2, state="scheduled")], None, {"0": (2, -1, 1)})
    for name, content in (("a", pickle.dumps(made)), ("b", as_json(made))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t_rank_0").write_bytes(content)
    one, other = read(tmp_path / "a")[0], read(tmp_path / "b")[0]
    assert standing(one) == standing(other)
    assert as_json(dump()).find(b"entries") < 0
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "t_rank_0.json").write_bytes(as_json(dump(status={"0": (2, -1, 2)})))
    assert standing(read(tmp_path / "c")[0]).last_launched == 2


@pytest.mark.parametrize("version", [f"2.{minor}" for minor in range(1, 11)])
def test_every_format_from_2_1_on_is_read(tmp_path, version):
    write_dumps(tmp_path, {0: dump([call(1, 1, state="scheduled")], version=version)})
    assert len(standing(read(tmp_path)[0]).open) == 1


def test_what_older_formats_lack_is_made_do_without(tmp_path):
    old = call(1, 1, state="scheduled")
    for name in ("p2p_seq_id", "is_p2p", "timeout_ms", "retired", "collective_seq_id", "thread_id"):
        old.pop(name, None)
    write_dumps(tmp_path, {0: dump([{**old, "seq_id": 6, "process_group": "0"}], version="2.1")})
    assert [one.seq for one in standing(read(tmp_path)[0]).open] == [6]


@pytest.mark.parametrize(
    ("version", "said"), [("1.5", "2.1 to 2.10 are"), ("3.0", "2.1 to 2.10 are"), (2.9, "version is")]
)
def test_other_formats_are_refused_by_name(version, said, tmp_path):
    with pytest.raises(Exception, match=said):
        checked(dump(version=version), tmp_path / "_dump_0")


def test_a_newer_minor_format_is_read_and_noted(tmp_path):
    write_dumps(tmp_path, {0: dump(version="2.14")})
    assert any("newer" in note for note in read(tmp_path)[0].notes)


def test_what_is_no_call_is_left_out(tmp_path):
    write_dumps(tmp_path, {0: dump([call(1, 1, name="split", state="scheduled")])})
    assert standing(read(tmp_path)[0]).open == ()


def test_gloo_describes_no_group_and_retires_what_has_ended(tmp_path):
    """As torch 2.15 writes them: one nameless group with other ranks' members, every call `scheduled` for ever."""

    def gloo(seq: int, group: str, desc: str, *, retired: bool = True) -> dict:
        pg_id = 0 if group == "0" else 1
        fields = {"state": "scheduled", "retired": retired, "pg_id": pg_id, "process_group": (group, desc)}
        return {**call(10 * seq + pg_id, seq), **fields, "profiling_name": "gloo:all_reduce"}

    dumps = {}
    for rank in range(4):
        entries = [gloo(1, "0", "default_pg"), gloo(1, "1" if rank < 2 else "2", "undefined")]
        if rank != 2:
            entries.append(gloo(2, "0", "default_pg", retired=False))
        dumps[rank] = {**dump(entries), "pg_config": {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}}
    write_dumps(tmp_path, dumps)
    files = read(tmp_path)
    assert sorted(files) == [0, 1, 2, 3]
    members = {
        event.name: event.members for file in files.values() for event in file.events if isinstance(event, Topology)
    }
    assert members["default_pg"] == (0, 1, 2, 3)
    assert [len(standing(files[rank]).open) for rank in range(4)] == [1, 1, 0, 1]
    assert standing(files[2]).last_launched == 1
    assert any("does not say who is in groups" in note for note in files[0].notes)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"record_id": "x"}, r"entries\[0\].record_id is the text 'x', not a whole number"),
        ({"input_sizes": [[1 << 40, 1 << 40]]}, "more elements than fit"),
        ({"input_sizes": 3}, "not a list"),
        ({"state": "gone"}, "state is 'gone'"),
        ({"process_group": ()}, "process_group is empty"),
        ({"profiling_name": "nccl:send 0-3"}, "who sends to whom"),
        ({"retired": 1}, "not true or false"),
        ({"collective_seq_id": 1 << 63}, "does not fit"),
    ],
)
def test_wrong_types_are_refused_with_their_place(damage, said, tmp_path):
    with pytest.raises(Exception, match=said):
        checked(dump([{**call(1, 1), **damage}]), tmp_path / "_dump_0")


def test_one_long_list_said_a_thousand_times_is_refused(tmp_path):
    entries = [call(n, n, input_sizes=[[1] * 10_000] * 10) for n in range(11)]
    with pytest.raises(Exception, match="dimensions"):
        checked(dump(entries), tmp_path / "_dump_0")
