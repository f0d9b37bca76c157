"""Files that are damaged or made to harm: only a refusal comes out, in bounded time and memory, and nothing is run."""

from __future__ import annotations

import bz2
import copy
import gzip
import json
import pickle
import random
import resource
import time

import pytest

from collector.importers import recognise
from collector.importers.call_files import content, inspector_log, kineto_file, ras_json, ras_text, xpu_timer
from collector.importers.call_files.flight_recorder import dump as fr_dump
from collector.importers.recognise import CALL_FORMATS, read_call_files
from pacehound.model.call_file import CallFile
from tests.fakes.call_files import (
    as_json,
    call,
    dump,
    inspector_call,
    inspector_context,
    kineto_trace,
    lines,
    ras_answer,
    ras_missing,
    ras_rank,
)
from tests.fakes.examples import some, tries
from tests.fakes.recorded import RECORDED, needs_recordings

STRANGE = (None, True, -1, 0, 1 << 70, -(1 << 70), 1.5, float("nan"), float("inf"), "", "x" * 200, "[0, 1", "99999999",
           [], [[]], [None], {}, {"a": None}, ["0", 1], (1, 2), "\ud800")  # fmt: skip

GROUPS = {"0": ("default_pg", [0, 1, 2, 3]), "3": ("PP", [0, 2]), "9": ("PP", [0, 2])}
DUMP = dump(
    [
        call(1, 1),
        call(2, 1, group="3", desc="PP", name="send 0->1", p2p=3, state="scheduled"),
        call(3, 1, group="3", desc="PP", name="recv 0<-1", p2p=3, state="scheduled"),
        call(4, 1, group="3", desc="PP", name="coalesced", p2p=3, state="started"),
        call(5, 2, name="all_gather", state="started"),
        call(6, 3, name="broadcast", state="scheduled", retired=True),
    ],
    GROUPS,
    {"0": (3, -1, 1), "1": (3, -1, 2), "2": (0, -1, 0)},
)
TRACE = kineto_trace(calls=2)
RAS = ras_answer(("0xa", [ras_rank(place, {"AllReduce": place}) for place in range(3)], [ras_missing(3)]))
STATS = {"coll_records": 1, "coll_dropped_since_last_dump": 0, "p2p_records": 1, "proxy_records": 0}
INSPECTOR = [
    inspector_context(0, 1) | inspector_call(1, at_us=10**15),
    inspector_context(0, 1, version="v4.3") | {"dump_stats": STATS},
    inspector_call(2),
    {"p2p_perf": {"p2p": "Send"}},
]
TEXT = (
    "Job summary\n=====\n\n  Nodes  Processes  GPUs\n(total)  (total)  (total)\n   1   4   4\n\n"
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    "    0         1         1         4         4         4   RUNNING  MISMATCH\n\n"
    "#0-0 (cf26) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
    "  3 ranks have launched up to operation 640\n"
    "  Rank 1 has launched up to operation 9 -- GPU 1 managed by process 8 on node 10.0.0.1\n"
)
SCRAPE = "".join(
    f'XPU_TIMER_COMMON_HANG{{ip="1.2.3.4",job_name="j",local_rank="{r}",pod_name="p",rank="{r}"}} 1\n' for r in range(3)
)
MADE = {
    "flight_recorder": (DUMP, pickle.dumps),
    "flight_recorder_json": (
        DUMP,
        lambda value: as_json(value) if isinstance(value, dict) else json.dumps(value).encode(),
    ),
    "kineto": (TRACE, lambda value: json.dumps(value).encode()),
    "nccl_ras_json": (RAS, lambda value: json.dumps(value, indent=1).encode()),
    "nccl_inspector": (INSPECTOR, lambda value: lines(*value).encode()),
}


def survives(folder, contents):
    """Read it however it is recognised, and by every reader besides: call files or refusals, and nothing else."""
    path = folder / "rank_0"
    path.unlink(missing_ok=True)  # ext4 writes a file that is cut and written anew to the disk at once: 2 ms each
    path.write_bytes(contents)
    for kind in CALL_FORMATS:
        try:
            joined = kind.joined([kind.read(path)], "job")
        except recognise.RefusedFile as error:
            said = str(error)
            assert 0 < len(said) < 600
        else:
            assert all(isinstance(one, CallFile) for one in joined.files)
            assert joined.files or joined.refused
    found = read_call_files([path])
    assert len(found.sets) + len(found.refused) + len(found.others) == 1


@pytest.mark.parametrize("name", MADE)
def test_any_value_may_be_of_any_type(tmp_path, name):
    """Every place of a file takes a strange value: a refusal or a reading, never another error."""
    value, written = MADE[name]
    rng = random.Random(name)
    for place in some(list(walked(value)), 4):
        for strange in rng.sample(STRANGE, 1):
            damaged = replaced(value, place, strange)
            try:
                contents = written(damaged)
            except (TypeError, ValueError, AttributeError, UnicodeEncodeError, KeyError):
                continue  # it cannot even be written
            survives(tmp_path, contents)


@pytest.mark.parametrize("name", [*MADE, "nccl_ras_text", "xpu_timer"])
def test_any_byte_may_be_any_other(tmp_path, name):
    value, written = MADE.get(name, (TEXT if name == "nccl_ras_text" else SCRAPE, str.encode))
    whole = written(value)
    rng = random.Random(name)
    for _ in tries(40):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 1, 2, 8))):
            match rng.randrange(4):
                case 0:
                    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
                case 1:
                    del damaged[rng.randrange(len(damaged)) :]
                case 2:
                    at = rng.randrange(len(damaged))
                    damaged[at:at] = rng.randbytes(rng.randrange(1, 9))
                case _:
                    at = rng.randrange(len(damaged))
                    damaged += damaged[at : at + 60]
            if not damaged:
                break
        survives(tmp_path, bytes(damaged))


@needs_recordings
@pytest.mark.parametrize("name", ["fr/gpu_error_1st/_dump_14", "fr/lock_gil_1st/_dump_9", "xpu_timer/hang_all.prom"])
def test_any_byte_of_a_recording_may_be_any_other(tmp_path, name):
    whole = (RECORDED / name).read_bytes()
    rng = random.Random(name)
    for _ in tries(20):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 1, 3))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        survives(tmp_path, bytes(damaged))
        survives(tmp_path, whole[: rng.randrange(len(whole))])


def walked(value, path=()):
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    for key, inner in pairs:
        yield from walked(inner, (*path, key))


def replaced(value, path, strange):
    if not path:
        return strange
    value = list(value) if isinstance(value, tuple) else copy.copy(value)
    value[path[0]] = replaced(value[path[0]], path[1:], strange)
    return value


NESTED = 100_000


@pytest.mark.parametrize(
    "contents",
    [
        b'{"traceEvents": ' + b"[" * NESTED,
        b'{"pg_config": ' + b'{"a":' * NESTED,
        b'{"communicators_count": 1, "communicators": ' + b"[" * NESTED + b"]" * NESTED + b"}",
        b'{"inspector_output_format_version": ' + b"[" * NESTED + b"\n",
        b'{"pg_config": ' + b"9" * 100_000 + b"}",
        b'{"traceEvents": [{"ph": "X", "name": "nccl", "cat": "kernel", "args": ' + b"[" * NESTED,
        b"\x80\x02" + b"(" * NESTED,
        b"XPU_TIMER_COMMON_HANG{" + b'a="' * NESTED,
        b"Group     Comms     Nodes\n" + b" " * NESTED + b"\n" + b"1" * NESTED,
        b"#0-0 (" + b"a" * NESTED,
    ],
)
def test_nesting_and_repetition_are_refused_at_once(tmp_path, contents):
    began_s = time.process_time()
    survives(tmp_path, contents)
    assert time.process_time() - began_s < 5


@pytest.mark.parametrize(
    ("module", "head", "name"),
    [
        (fr_dump, b'{"pg_config": {}, "x": "', "MAX_BYTES"),
        (kineto_file, b'{"traceEvents": [], "x": "', "MAX_BYTES"),
        (ras_json, b'{"communicators_count": 0, "x": "', "MAX_BYTES"),
        (ras_text, b"\nJob summary\n", "MAX_BYTES"),
        (inspector_log, b'{"inspector_output_format_version": "', "MAX_BYTES"),
        (xpu_timer, b"XPU_TIMER_", "MAX_BYTES"),
    ],
)
@pytest.mark.parametrize("packed", [lambda raw: raw, gzip.compress, bz2.compress])
def test_a_file_beyond_its_limit_is_refused_and_the_limit_said(tmp_path, monkeypatch, module, head, name, packed):
    monkeypatch.setattr(module, name, 1 << 20)
    (tmp_path / "rank_0").write_bytes(packed(head + b"a" * (2 << 20)))
    (refused,) = read_call_files([tmp_path / "rank_0"]).refused
    assert "holds more than 1 MiB" in refused.reason


def test_what_unfolds_to_a_thousand_times_its_size_is_not_unfolded(tmp_path):
    head = b'{"traceEvents": [' + b" " * (1 << 20)
    bomb = gzip.compress(head + b" " * (63 << 20), compresslevel=1)
    path = tmp_path / "rank_0.json.gz"
    path.write_bytes(bomb)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(recognise.RefusedFile, match="more than 16 MiB"):
        content.whole_content(path, 16 << 20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 << 10  # KiB


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_cannot_be_opened_is_left_to_others(tmp_path, name):
    assert read_call_files([tmp_path / name]).others == (tmp_path / name,)


def test_a_file_that_is_empty_or_of_another_kind_is_left_to_others(tmp_path):
    for name, contents in {"a": b"", "b": b"step,step_time_s\n1,2\n", "c": b"{}", "d": bytes(range(3, 99))}.items():
        (tmp_path / name).write_bytes(contents)
    assert len(read_call_files(sorted(tmp_path.iterdir())).others) == 4
