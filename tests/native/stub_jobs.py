"""Jobs of the stub NCCL: compiled once, run as processes, and what their rings say afterwards.

A rank's script has one command per line (tests/native/stub/stub_job.c):

    init NAME SIZE RANK          also initconfig, initlater (without blocking), initscalable
    initall PREFIX N             split NEW PARENT COLOR KEY         shrink NEW PARENT A,B
    group | end | simulate       finalize|destroy|abort NAME        try COMMAND (whatever it gives)
    OP NAME COUNT TYPE REDOP PEER STREAM                            sync STREAM | syncall | kernel STREAM US
    capture STREAM 0|1           fork                               sleep MS | await FILE | touch FILE
    repeat N … again                                                eventcalls
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from collector.calls import rings
from collector.calls.rings import RingReader
from pacehound.instrument import shim

HERE = Path(__file__).resolve().parent / "stub"
NATIVE = Path(__file__).resolve().parents[2] / "collector" / "native"
STUB = [HERE / name for name in ("stub_nccl.c", "stub_device.c", "stub_events.c")]
COMPILER = shim.compiler()
JOB = "stub-job"

Script = Sequence[str]


@dataclass(frozen=True)
class Built:
    """A stub NCCL, a job that is linked with it, and the shim; `sanitized`: all in one, the shim linked before it."""

    folder: Path
    shim: Path
    sanitized: str = ""

    @property
    def program(self) -> Path:
        return self.folder / "stub_job"


def build(folder: Path, sanitizer: str = "") -> Built:
    """Compile everything; with a sanitizer the shim is linked, not preloaded: its runtime must come first."""
    assert COMPILER is not None
    extra = [f"-fsanitize={sanitizer}", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"] if sanitizer else []
    common = [COMPILER, "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", f"-I{NATIVE}", f"-I{HERE}", *extra]
    nccl, library = folder / "libnccl.so.2", folder / shim.NAME
    run([*common, "-fPIC", "-shared", "-Wl,-soname,libnccl.so.2", *map(str, STUB), "-o", str(nccl), "-lpthread"])
    links = [str(nccl), "-Wl,-rpath,$ORIGIN", "-lpthread"]
    if sanitizer:
        flags = [flag for flag in shim.FLAGS if not flag.startswith(("-O", "-std"))]
        run([*common, *flags, *map(str, shim.sources()), "-o", str(library), "-ldl", "-lpthread"])
        links = [str(library), *links]
    else:
        library = shim.build()
        run([*common, "-fPIC", "-shared", "-DSTUB_LIBRARY", str(HERE / "stub_job.c"), "-o",
             str(folder / "libjob.so"), *links])  # fmt: skip
    run([*common, str(HERE / "stub_job.c"), "-o", str(folder / "stub_job"), *links])
    return Built(folder, library, sanitizer)


def run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@dataclass
class Job:
    """A folder for one job; `start` its ranks, then `wait`."""

    built: Built
    folder: Path
    world: int | None = None
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.run_dir.mkdir(parents=True)
        (self.folder / "nccl").mkdir()

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def environment(self, rank: int) -> dict[str, str]:
        env = {
            **os.environ,
            "PACEHOUND_RUN_DIR": str(self.run_dir),
            "PACEHOUND_JOB": JOB,
            "STUB_NCCL_DIR": str(self.folder / "nccl"),
            "TSAN_OPTIONS": "halt_on_error=1:exitcode=66",
            "ASAN_OPTIONS": "detect_leaks=0",
        }
        if self.world is not None:
            env |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(self.world)}
        if not self.built.sanitized:
            env = shim.preloaded(env, self.built.shim)
        return env | self.environ

    def scripts(self, rank: int, threads: Sequence[Script]) -> list[str]:
        paths = []
        for number, lines in enumerate(threads):
            path = self.folder / f"{rank}.{number}.txt"
            path.write_text("".join(f"{line}\n" for line in lines))
            paths.append(str(path))
        return paths

    def start(self, rank: int, *threads: Script, program: Sequence[str] = ()) -> subprocess.Popen[str]:
        command = [*(program or [str(self.built.program)]), str(self.folder), *self.scripts(rank, threads)]
        process = subprocess.Popen(
            command, env=self.environment(rank), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.processes.append(process)
        return process

    def wait(self, timeout_s: float = 30.0) -> list[str]:
        """What each rank printed; all must leave with 0."""
        deadline = time.monotonic() + timeout_s
        try:
            said = [p.communicate(timeout=max(deadline - time.monotonic(), 0.1))[0] for p in self.processes]
        finally:
            self.stop()
        assert [p.returncode for p in self.processes] == [0] * len(self.processes), said
        return said

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.communicate()

    def records(self, rank: int) -> list[Ring]:
        """What the rings of one rank's process hold, in the order in which they were opened."""
        return read_rings(self.run_dir, self.processes[rank].pid)


@dataclass(frozen=True)
class GroupRecord:
    handle: bytes
    name: str
    size: int
    is_world: bool
    rank: int
    place: int | None
    members: tuple[int, ...]


@dataclass
class Ring:
    """One ring, taken apart."""

    groups: list[GroupRecord] = field(default_factory=list)
    calls: list[dict[str, int]] = field(default_factory=list)
    completed: list[dict[str, int]] = field(default_factory=list)
    destroyed: list[bytes] = field(default_factory=list)


def read_rings(run_dir: Path, pid: int) -> list[Ring]:
    paths = sorted((run_dir / "rings").glob(f"{pid}-*-s*.ring"), key=lambda path: int(path.stem.rpartition("-s")[2]))
    return [read_ring(path) for path in paths]


FIELDS = (
    "op", "dtype", "redop", "direction", "flags", "source", "peer", "seq", "count", "launch_ns", "start_ns", "end_ns",
    "stream", "group",
)  # fmt: skip


def read_ring(path: Path) -> Ring:
    reader = RingReader(path)
    read = reader.read()
    reader.close()
    assert read.lost == 0
    ring = Ring()
    for at in range(len(read.records)):
        record = read.records[at : at + 1]
        prefix = record.view(rings.CALL)[0]
        kind, handle = int(prefix["kind"]), bytes(prefix["handle"])
        if kind == rings.GROUP:
            body = record.view(rings.GROUP_BODY)[0]
            name = bytes(body["name"]).split(b"\0", 1)[0].decode()
            ring.groups.append(
                GroupRecord(handle, name, int(body["n_members"]), bool(body["is_world"]), int(prefix["rank"]), None, ())
            )
        elif kind == rings.PLACE:
            last = ring.groups[-1]
            index = int(record.view(rings.PLACE_BODY)[0]["index"])
            ring.groups[-1] = GroupRecord(handle, last.name, last.size, last.is_world, last.rank, index, ())
        elif kind == rings.MEMBERS:
            last, body = ring.groups[-1], record.view(rings.MEMBERS_BODY)[0]
            more = tuple(int(member) for member in body["members"][: int(body["n_members"])])
            ring.groups[-1] = GroupRecord(
                handle, last.name, last.size, last.is_world, last.rank, last.place, last.members + more
            )
        elif kind == rings.DESTROY:
            ring.destroyed.append(handle)
        elif kind in (rings.LAUNCH, rings.COMPLETE):
            call = {name: int(prefix[name]) for name in FIELDS}
            of_kind = ring.calls if kind == rings.LAUNCH else ring.completed
            of_kind.append(call | {"handle": handle, "rank": int(prefix["rank"])})  # type: ignore[dict-item]
    return ring


def tmpfs() -> Iterator[Path]:
    """A folder in shared memory where there is one: the jobs' counters live in files."""
    import tempfile

    parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="pacehound-stub-", dir=parent))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def until(what: str, is_so: object, timeout_s: float = 20.0) -> object:
    """Poll a function until it gives something true."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = is_so()  # type: ignore[operator]
        if found:
            return found
        time.sleep(0.002)
    raise AssertionError(f"{what}: not within {timeout_s} s")
