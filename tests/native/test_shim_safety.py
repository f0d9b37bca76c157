"""Whatever goes wrong on our side, the job goes on."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.agent.control_block import Command, Phase
from collector.calls import rings
from tests.native import stub_jobs
from tests.native.stub_jobs import Built, Job
from tests.native.test_shim_calls import line, random_programs
from tests.native.trap_controller import Controller, blocks_of

NewJob = Callable[..., Job]

MAIN_RING_BYTES = rings.HEADER_BYTES + 16384 * rings.RECORD_BYTES
WORK = ["init w 1 0", "repeat 50", line("all_reduce", "w"), "again", "syncall", "destroy w"]


def notes(job: Job) -> list[str]:
    return [text for path in job.run_dir.glob("notes/*-shim.json") for text in json.loads(path.read_text())["notes"]]


def library(folder: Path, code: str) -> str:
    """A library with other people's ideas of what functions do, to be preloaded."""
    (folder / "other.c").write_text(code)
    stub_jobs.run(
        [str(stub_jobs.COMPILER), "-shared", "-fPIC", str(folder / "other.c"), "-o", str(folder / "other.so")]
    )
    return str(folder / "other.so")


def test_a_full_disk(new_job: NewJob, built: Built, tmp_path: Path) -> None:
    full = library(tmp_path, "int posix_fallocate(int fd, long at, long size) { return 28; }")
    job = new_job(1, LD_PRELOAD=f"{built.shim}:{full}")
    job.start(0, WORK)
    job.wait()
    assert list((job.run_dir / "rings").iterdir()) == []
    assert any("calls go unseen: no room for a ring: No space left on device" in note for note in notes(job))


@pytest.mark.parametrize("what", ["missing", "a file", "no memory to map"])
def test_no_shared_memory(new_job: NewJob, built: Built, tmp_path: Path, what: str) -> None:
    environ = {"PACEHOUND_RUN_DIR": str(tmp_path / "run")}
    if what == "a file":
        (tmp_path / "run").write_text("")
    elif what == "no memory to map":
        code = (
            "#define _GNU_SOURCE\n#include <sys/mman.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n"
            "void *mmap(void *a, size_t n, int p, int f, int fd, off_t o) {"
            f"  if (n == {MAIN_RING_BYTES}) return MAP_FAILED;"
            "  return (void *)syscall(SYS_mmap, a, n, p, f, fd, o); }"
        )
        (tmp_path / "run").mkdir()
        environ["LD_PRELOAD"] = f"{built.shim}:{library(tmp_path, code)}"
    job = new_job(1, **environ)
    job.start(0, WORK)
    job.wait()
    assert not list(tmp_path.glob("run/rings/*.ring"))


def test_a_fork_has_rings_of_its_own_and_leaves_the_parents_alone(new_job: NewJob) -> None:
    job = new_job(1)
    job.start(0, ["init w 1 0", line("all_reduce", "w"), "fork", line("all_gather", "w"), "syncall"])
    job.wait()
    (parents,) = job.records(0)
    assert [call["seq"] for call in parents.calls] == [0, 1]
    others = [
        path for path in (job.run_dir / "rings").glob("*.ring") if not path.name.startswith(f"{job.processes[0].pid}-")
    ]
    (childs,) = [stub_jobs.read_ring(path) for path in others]
    assert [call["count"] for call in childs.calls] == [7]
    assert childs.groups[0].handle != parents.groups[0].handle


@pytest.mark.parametrize("how", ["abort w", "destroy w"])
def test_an_abort_inside_a_group(new_job: NewJob, how: str) -> None:
    job = new_job(1)
    job.start(0, [
        "init v 1 0", "init w 1 0", "group", line("all_reduce", "w"), line("all_reduce", "v"),
        "abort w" if how == "abort w" else "sleep 0", "try end", *([how] if how != "abort w" else []),
        "init x 1 0", line("all_reduce", "x"), line("all_gather", "v"), "syncall",
    ])  # fmt: skip
    job.wait()
    (ring,) = job.records(0)
    gone = [] if how == "abort w" else ["w"]
    by_handle = {group.handle: name for group, name in zip(ring.groups, "vwx", strict=True)}
    assert sorted(by_handle[call["handle"]] for call in ring.calls) == sorted(["v", "v", "x", *gone])


def test_the_shim_survives_being_closed_and_so_does_nccl(new_job: NewJob, built: Built) -> None:
    """A thread that has called NCCL ends after somebody has closed the libraries."""
    code = """
import _ctypes, ctypes, sys, threading
private, shim, arguments = sys.argv[1], sys.argv[2], [b"job", *(word.encode() for word in sys.argv[3:])]
called, closed = threading.Event(), threading.Event()
def work():
    library = ctypes.CDLL(private)
    assert library.stub_main(len(arguments), (ctypes.c_char_p * len(arguments))(*arguments)) == 0
    _ctypes.dlclose(library._handle)
    called.set()
    closed.wait()
for _ in range(3):
    called.clear(); closed.clear()
    thread = threading.Thread(target=work)
    thread.start()
    called.wait()
    for _ in range(3):
        _ctypes.dlclose(ctypes.CDLL(shim)._handle)
    closed.set()
    thread.join()
"""
    job = new_job(1)
    program = [sys.executable, "-S", "-c", code, str(built.folder / "libjob.so"), str(built.shim)]
    job.start(0, ["init w 1 0", line("all_reduce", "w"), "syncall", "destroy w"], program=program)
    job.wait()
    # One call of each thread. A thread ends a little after Python's: the next takes over its ring, or has its own.
    assert sum(len(ring.calls) for ring in job.records(0)) == 3


BUSY = [
    "init w 1 0", "touch going", "repeat 20000", line("all_reduce", "w"), "group", line("all_gather", "w"), "end",
    "again", "syncall",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("what", ["control", "rings"])
def test_garbage_in_what_we_share_crashes_nobody(new_job: NewJob, what: str, seed: int) -> None:
    rng = random.Random(seed)
    job = new_job(1)
    process = job.start(0, BUSY)
    stub_jobs.until("the job is at work", (job.folder / "going").exists)
    (path,) = (job.run_dir / what).iterdir()
    size = path.stat().st_size
    deadline = time.monotonic() + 20
    with path.open("r+b", buffering=0) as file:
        while process.poll() is None and time.monotonic() < deadline:
            file.seek(rng.randrange(min(size, 8192) // 8) * 8)
            file.write(
                rng.randbytes(8 * rng.randrange(1, 64))
                if rng.random() < 0.7
                else (rng.randrange(8)).to_bytes(8, "little")
            )
    job.wait()
    if what == "rings":
        try:
            rings.RingReader(path).read()
        except rings.UnreadableRing:
            pass


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(sanitized: Callable[[str], Built], shared_folder: Path, sanitizer: str) -> None:
    built = sanitized(sanitizer)
    job = Job(built, shared_folder / "ranks", 3)
    for rank, program in enumerate(random_programs(5, 3, rounds=40)):
        job.start(rank, [*program.lines, "destroy world"])
    job.wait()
    alone = Job(built, shared_folder / "threads")
    threads = []
    for rank in range(3):
        right, left = (rank + 1) % 3, (rank + 2) % 3
        comm, own = f"g{rank}", f"own{rank}"
        pairs = [
            "group",
            line("send", comm, peer=right, stream=rank),
            line("recv", comm, peer=left, stream=rank),
            "end",
        ]
        short = [f"initconfig {own} 1 0", line("all_reduce", own, stream=rank), f"sync {rank}", f"destroy {own}"]
        calls = [line("all_reduce", comm, stream=rank), *pairs, *short]
        threads.append(["await made", "repeat 30", *calls, "again", f"sync {rank}"])
    process = alone.start(0, ["initall g 3", "touch ready", "await armed", "touch made"], *threads)
    stub_jobs.until("the job is ready", (alone.folder / "ready").exists)
    controller = Controller(blocks_of(alone.run_dir, [process.pid]))
    controller.arm(5)
    (alone.folder / "armed").touch()
    controller.gather(gather_ns=200_000_000)
    controller.command(Command.RELEASE)
    alone.wait()
    assert controller.answers()[0][0] == Phase.RELEASED
    assert len(alone.records(0)) == 4


OLD_NCCL = """
#include "nccl_abi.h"
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n, ncclUniqueId id, int rank) { *comm = (void *)64; return 0; }
ncclResult_t ncclAllReduce(void *a, void *b, size_t n, int t, int op, ncclComm_t c, void *s) { return ncclSuccess; }
ncclResult_t ncclNewInTheNextVersion(int what) { return what; }
"""
PROGRAM = """
#include <stdio.h>
#include "nccl_abi.h"
ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int), ncclNewInTheNextVersion(int);
ncclResult_t ncclAllReduce(void *, void *, size_t, int, int, ncclComm_t, void *);
ncclResult_t ncclCommShrink(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int) __attribute__((weak));
int main(void) {
    ncclComm_t comm, child;
    ncclUniqueId id = {{1}};
    int none = 0;
    printf("%d ", ncclCommInitRank(&comm, 1, id, 0));
    printf("%d ", ncclCommShrink(comm, &none, 1, &child, NULL, 0));
    printf("%d ", ncclNewInTheNextVersion(42));
    printf("%d", ncclAllReduce(NULL, NULL, 5, 7, 0, comm, NULL));
    return 0;
}
"""


def test_what_an_older_nccl_lacks_fails_alone_and_what_a_newer_one_adds_is_let_through(
    built: Built, new_job: NewJob, tmp_path: Path
) -> None:
    (tmp_path / "old.c").write_text(OLD_NCCL)
    (tmp_path / "program.c").write_text(PROGRAM)
    common = [str(stub_jobs.COMPILER), f"-I{stub_jobs.NATIVE}", "-w"]
    library, program = str(tmp_path / "libnccl.so.2"), str(tmp_path / "program")
    stub_jobs.run([*common, "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", str(tmp_path / "old.c"), "-o", library])
    stub_jobs.run([*common, str(tmp_path / "program.c"), library, "-Wl,-rpath,$ORIGIN", "-o", program])
    job = new_job(1)
    job.start(0, [], program=[program])
    (said,) = job.wait()
    assert "0 2 42 0" in said
    assert "there is no ncclCommShrink behind the NCCL shim" in said
    assert [call["count"] for call in job.records(0)[0].calls] == [5]
