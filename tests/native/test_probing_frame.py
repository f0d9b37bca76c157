"""The probing frame: CCL-D's layout, right counts through each interface, and what happens beyond eight of anything."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from collector.calls import frames
from collector.calls.frames import Counts, FrameLook, FrameReader, Operation, UnreadableFrame
from collector.calls.transfer_rates import TransferSampler
from pacehound.model.identity import round_trace_id
from tests.native import plugin_jobs, stub_jobs
from tests.native.plugin_jobs import NewPluginJob
from tests.native.test_shim_safety import library

APIS = [4, 5, 6]
INIT = "init c abcdef12 2 0 world"
NATIVE = Path(__file__).resolve().parents[2] / "collector" / "native"
NO_CHANNEL = (-1, -1)

PROBE = r"""
#include <stdio.h>
#include "frame.h"
#define AT(field) printf(#field "=%zu\n", offsetof(struct ph_frame_header, field))
int main(void) {
    printf("magic=%llu\nversion=%u\n", (unsigned long long)PH_FRAME_MAGIC, PH_FRAME_VERSION);
    printf("header=%zu\nblock=%zu\nframe=%zu\n", sizeof(struct ph_frame_header), sizeof(struct ph_frame_block),
           sizeof(struct ph_frame));
    printf("blocks=%u\nchannels=%u\n", PH_FRAME_BLOCKS, PH_FRAME_CHANNELS);
    printf("seq bits=%d\npeer bits=%d\nuntold=%d\n", PH_FRAME_SEQ_BITS, PH_FRAME_PEER_BITS, (int)PH_FRAME_UNTOLD);
    AT(n_channels); AT(rank); AT(counter); AT(unkept); AT(kernel_index); AT(running); AT(mode);
    return 0;
}
"""


def done(look: FrameLook) -> dict[Operation, Counts]:
    """Transfers that are done, of all running calls."""
    return {operation: moved.done for operation, moved in look.running.items()}


def reduce(name: str, seq: int, communicator: str = "c") -> list[str]:
    """A collective is enqueued and its kernel begins."""
    c = communicator
    lines = [f"group g{name} {c}", f"coll {name} {c} g{name} AllReduce 64 ncclInt8 1 {seq} 0 RING SIMPLE"]
    return [*lines, f"stop {name}", f"kernel k{name} {c} {name} 0 n"]


def moved(name: str, channel: int, *, steps: int, done: int, sends: bool = True, communicator: str = "c") -> list[str]:
    """Transfers of a collective on one channel, of which some are done."""
    c, op = communicator, f"{name}{channel}{int(sends)}"
    lines = [f"op {op} {c} {name} {channel} 1 {steps} {int(sends)}"]
    for step in range(done):
        lines += [f"step s{op} {c} {op} {step}", f"stop s{op}"]
    return lines


def test_the_trace_id_of_a_running_collective_is_the_one_its_spans_have(new_plugin_job: NewPluginJob) -> None:
    job = new_plugin_job()
    job.play([INIT, *reduce("a", 0), "kstop ka n", *reduce("b", 1)])
    (path,) = (job.run_dir / "frames").glob("*.frame")
    blocks = path.read_bytes()[frames.HEADER_BYTES :]
    traces = [blocks[at : at + 16] for at in range(0, len(blocks), frames.BLOCK_BYTES)]
    communicator = bytes(job.launches()[0]["handle"]).hex()
    assert traces[:2] == [round_trace_id(communicator, 0), round_trace_id(communicator, 1)]


def test_the_layout_is_the_papers_and_python_reads_what_c_writes(tmp_path: Path) -> None:
    if stub_jobs.COMPILER is None:
        pytest.skip("no C compiler")
    (tmp_path / "probe.c").write_text(PROBE)
    command = [str(stub_jobs.COMPILER), "-std=c11", "-Wall", "-Werror", f"-I{NATIVE}", "probe.c", "-o", "probe"]
    subprocess.run(command, cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "probe"], capture_output=True, text=True, check=True).stdout
    from_c = {name: int(value) for name, _, value in (line.partition("=") for line in printed.splitlines())}
    assert (from_c["header"], from_c["blocks"], from_c["block"], from_c["frame"]) == (32, 8, 144, 1184)
    assert (frames.HEADER.size, frames.BLOCKS, frames.BLOCK_BYTES, frames.FRAME_BYTES) == (32, 8, 144, 1184)
    assert (from_c["magic"], from_c["version"]) == (frames.FRAME_MAGIC, frames.FRAME_VERSION)
    assert (from_c["seq bits"], from_c["peer bits"]) == (frames.SEQ_BITS, frames.PEER_BITS)
    assert (from_c["channels"], from_c["untold"]) == (frames.CHANNELS, frames.UNTOLD)
    names = ("n_channels", "rank", "counter", "unkept", "kernel_index", "running", "mode")
    packed = frames.HEADER.pack(0, 0, 0x1111, 0x22222222, 0x3333333333333333, 0x44444444, 0x55, 0x66, 0x77, 0)
    assert [packed.index(mark) for mark in b"\x11\x22\x33\x44\x55\x66\x77"] == [from_c[name] for name in names]


@pytest.mark.parametrize("api", APIS)
def test_a_running_call_has_its_counts_by_channel_and_direction(new_plugin_job: NewPluginJob, api: int) -> None:
    job = new_plugin_job()
    script = [INIT, *reduce("x", 0), *moved("x", 0, steps=8, done=3), *moved("x", 0, steps=8, done=2, sends=False)]
    script += [*moved("x", 5, steps=8, done=8), "stop x51", *moved("x", 2, steps=4, done=0)]
    job.play(script, api=api)
    (look,) = job.frames()
    (launch,) = job.launches()
    assert (look.rank, look.is_measured, look.n_channels, look.begun, look.unkept) == (0, True, 6, 1, 0)
    expected = [NO_CHANNEL] * 8
    expected[0], expected[2], expected[5] = (3, 2), (0, -1), (8, -1)
    assert done(look) == {Operation(int(launch["handle_high"]), 0, 0): tuple(expected)}
    (one,) = look.running.values()
    assert [one.announced[channel] for channel in (0, 2, 5, 7)] == [(8, 8), (4, -1), (8, -1), NO_CHANNEL]


@pytest.mark.parametrize("api", APIS)
def test_sends_and_receives_are_told_apart_by_peer_and_direction(new_plugin_job: NewPluginJob, api: int) -> None:
    job = new_plugin_job()
    script = ["init c abcdef12 4 0 world", "group g c"]
    for n, (func, peer) in enumerate([("Send", 3), ("Send", 3), ("Recv", 3), ("Send", 1)]):
        script += [f"p2p p{n} c g {func} 8 ncclInt8 {peer} 1", f"stop p{n}", f"kernel k{n} c p{n} {n} n"]
        script += moved(f"p{n}", n, steps=9, done=n + 1, sends=func == "Send")
    job.play(script, api=api)
    (look,) = job.frames()
    counted = {
        (one.seq, one.peer, one.direction): next(count for count in counts if count != NO_CHANNEL)
        for one, counts in done(look).items()
    }
    assert counted == {(0, 3, 1): (1, -1), (1, 3, 1): (2, -1), (0, 3, 2): (-1, 3), (0, 1, 1): (4, -1)}


@pytest.mark.parametrize("api", APIS)
def test_rates_follow_the_counts_and_a_channel_that_stands_still_says_so(
    new_plugin_job: NewPluginJob, api: int
) -> None:
    job, sampler, second_ns = new_plugin_job(), TransferSampler(), 1_000_000_000
    script = [INIT, *reduce("x", 0), *moved("x", 0, steps=50, done=10), *moved("x", 1, steps=50, done=10)]
    job.play(script, api=api)
    for step in range(10, 40):
        script += [f"step s c x01 {step}", "stop s"]
    job.play(script, api=api)  # the same again, further on: what a later look at one process would have found
    earlier, later = sorted(job.frames(), key=lambda look: max(done(look).values()))
    sampler.look([earlier], second_ns)
    (first,) = sampler.running.values()
    assert first.rates[0] == (None, None)
    sampler.look([later], second_ns + 200_000_000)
    (second,) = sampler.running.values()
    assert second.counts[:2] == ((40, -1), (10, -1))
    assert second.rates[:3] == ((0.15, None), (0.0, None), (None, None))
    assert second.still_since_ns[:2] == (second_ns + 200_000_000, second_ns)


@pytest.mark.parametrize("api", APIS)
def test_a_ninth_call_that_runs_at_once_is_counted_and_a_block_is_free_when_its_call_is_over(
    new_plugin_job: NewPluginJob, api: int
) -> None:
    job = new_plugin_job()
    script = [INIT]
    for n in range(9):
        script += [*reduce(f"x{n}.", n), *moved(f"x{n}.", 0, steps=20, done=n + 1)]
    job.play(script, api=api)
    (look,) = job.frames()
    assert (look.begun, look.unkept) == (9, 1)
    assert {one.seq: counts[0][0] for one, counts in done(look).items()} == {n: n + 1 for n in range(8)}

    job.play([*script, "kstop kx0. n", "stop x0.01", *reduce("y", 9), *moved("y", 0, steps=20, done=11)], api=api)
    look = job.frames()[-1]
    assert (look.begun, look.unkept) == (10, 1)
    assert {one.seq for one in look.running} == {1, 2, 3, 4, 5, 6, 7, 9}


def test_a_call_that_hangs_keeps_its_block_while_others_come_and_go(new_plugin_job: NewPluginJob) -> None:
    job = new_plugin_job()
    script = [INIT, "init d 77 1 0 other", *reduce("h", 0), *moved("h", 0, steps=20, done=5)]
    for n in range(50):
        name = f"y{n}."
        script += [*reduce(name, n, "d"), *moved(name, 0, steps=1, done=1, communicator="d"), f"stop {name}01"]
        script += [f"kstop k{name} n"]
    job.play(script)
    (look,) = job.frames()
    assert (look.begun, look.unkept) == (51, 0)
    assert [(one.seq, counts[0]) for one, counts in done(look).items()] == [(0, (5, -1))]


def test_channels_beyond_eight_are_added_to_those_that_are_equal_modulo_eight(new_plugin_job: NewPluginJob) -> None:
    job = new_plugin_job()
    script = [INIT, *reduce("x", 0)]
    for channel in (1, 9, 17, 33):
        script += moved("x", channel, steps=20, done=channel % 7)
    job.play(script)
    (look,) = job.frames()
    (counts,) = done(look).values()
    assert look.n_channels == 34
    assert counts == (NO_CHANNEL, (1 + 2 + 3 + 5, -1), *[NO_CHANNEL] * 6)


@pytest.mark.parametrize("end", ["final c", "kstop kx n\nstop x01"])
def test_nothing_runs_after_the_end_of_a_call_or_of_its_communicator(new_plugin_job: NewPluginJob, end: str) -> None:
    job = new_plugin_job()
    job.play([INIT, *reduce("x", 0), *moved("x", 0, steps=3, done=1), end])
    (look,) = job.frames()
    assert (look.begun, look.running) == (1, {})


def test_the_counts_of_a_process_that_was_killed_can_be_read(new_plugin_job: NewPluginJob) -> None:
    job = new_plugin_job(rank=1)
    job.play(["init c abcdef12 2 1 world", *reduce("x", 0), *moved("x", 3, steps=9, done=4), "kill"], dies=True)
    (look,) = job.frames()
    assert look.rank == 1
    assert [counts[3] for counts in done(look).values()] == [(4, -1)]


def test_a_fork_leaves_its_parents_frame_alone(new_plugin_job: NewPluginJob) -> None:
    job = new_plugin_job()
    job.play([INIT, *reduce("x", 0), *moved("x", 0, steps=9, done=4), "step s c x01 4", "fork"])
    (look,) = job.frames()
    assert [counts[0] for counts in done(look).values()] == [(4, -1)]


def test_without_room_for_a_frame_calls_are_written_all_the_same(new_plugin_job: NewPluginJob, tmp_path: Path) -> None:
    code = (
        "#define _GNU_SOURCE\n#include <sys/syscall.h>\n#include <unistd.h>\n"
        f"int posix_fallocate(int fd, long at, long size) {{ return size == {frames.FRAME_BYTES} ? 28"
        "  : syscall(SYS_fallocate, fd, 0, at, size) ? 28 : 0; }"
    )
    full = library(tmp_path, code)
    job = new_plugin_job()
    script = [INIT, "init d 77 1 0 other", *reduce("x", 0), *moved("x", 0, steps=1, done=1), "stop x01", "kstop kx n"]
    job.play(script, LD_PRELOAD=full)
    assert list((job.run_dir / "frames").iterdir()) == []
    assert job.completes()["send_count"].tolist() == [1]
    assert [note for note in job.notes() if "probing frame" in note] == [
        "no probing frame: how far a call has come is not seen while it runs: No space left on device"
    ]


def test_a_plugin_that_switches_itself_off_says_that_it_counts_no_more(
    new_plugin_job: NewPluginJob, tmp_path: Path
) -> None:
    code = (
        "#define _GNU_SOURCE\n#include <sys/syscall.h>\n#include <unistd.h>\n"
        "int posix_fallocate(int fd, long at, long size) { static int n;"
        f"  return size != {frames.FRAME_BYTES} && n++ ? 28 : syscall(SYS_fallocate, fd, 0, at, size) ? 28 : 0; }}"
    )
    job = new_plugin_job()
    # The first thread is still there when the second one needs a ring: it would take over that of one that has ended.
    begun = [INIT, *reduce("x", 0), *moved("x", 0, steps=9, done=4), "tell begun", "wait over"]
    job.play(begun, ["wait begun", "op y c x 1 1 9 1", "tell over"], LD_PRELOAD=library(tmp_path, code))
    (look,) = job.frames()
    assert any("no room for a ring" in note for note in job.notes())
    assert not look.is_measured


def test_a_file_that_is_no_frame_is_refused_with_what_is_wrong(new_plugin_job: NewPluginJob) -> None:
    job = new_plugin_job()
    job.play([INIT, *reduce("x", 0)])
    (path,) = job.run_dir.glob("frames/*.frame")
    whole = path.read_bytes()
    for damage, words in (
        (whole[:1000], "1000 bytes, not 1184"),
        (b"\0" * 1184, "no probing frame"),
        (whole[:8] + b"\x07" + whole[9:], "version 7; this build reads version 1"),
        (whole[:12] + b"\x05" + whole[13:], "named after rank 0 and says that it is rank 5's"),
    ):
        path.write_bytes(damage)
        with pytest.raises(UnreadableFrame, match=words):
            FrameReader(path)


def changing_hands(n_calls: int, communicators: str) -> list[list[str]]:
    """A thread per communicator; call n has n % 5 + 1 transfers, all of them on channel n % 8."""
    scripts = []
    for c in communicators:
        script = [f"init {c} {ord(c):x} 2 0 {c}"]
        for n in range(n_calls):
            name = f"{c}{n}."
            script += [*reduce(name, n, c), *moved(name, n % 8, steps=9, done=n % 5 + 1, communicator=c)]
            script += [f"stop {name}{n % 8}1", f"kstop k{name} n"]
        scripts.append(script)
    return scripts


def test_a_reader_never_takes_one_calls_counts_for_anothers(new_plugin_job: NewPluginJob) -> None:
    job = new_plugin_job()
    is_over = threading.Event()
    scripts = changing_hands(100, "cdefgh")

    def play() -> None:
        try:
            job.play(*scripts)
        finally:
            is_over.set()

    playing = threading.Thread(target=play)
    playing.start()
    reader = None
    while not is_over.is_set():
        if reader is None:
            reader = next((FrameReader(path) for path in job.run_dir.glob("frames/*.frame")), None)
            continue
        for operation, counts in done(reader.look()).items():
            told = {channel: count for channel, count in enumerate(counts) if count != NO_CHANNEL}
            assert told.keys() <= {operation.seq % 8}
            assert all(0 <= sent <= 9 and received == -1 for sent, received in told.values())
    playing.join()
    (look,) = job.frames()
    assert (look.begun, look.unkept, look.running) == (600, 0, {})
    if reader is not None:
        reader.close()


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing_in_blocks_that_change_hands(
    new_plugin_job: NewPluginJob, tmp_path_factory: pytest.TempPathFactory, sanitizer: str
) -> None:
    try:
        built = plugin_jobs.build(tmp_path_factory.mktemp("sanitized"), sanitizer)
    except AssertionError as error:
        pytest.skip(f"this compiler has no such sanitizer: {str(error)[-200:]}")
    job = new_plugin_job(of=built)
    job.play(*changing_hands(100, "cdefgh"))
    (look,) = job.frames()
    assert (look.begun, look.unkept, look.running) == (600, 0, {})
