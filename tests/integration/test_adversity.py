"""What becomes of the job, the data and the verdict where the machine fails: a table, under `make prove`.

The same job each time: four ranks, of which rank 2 becomes slow. Whatever happens to us, it must run as it does alone.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from small_disk import fill, needs_root, small_disk

from bench.rig import realjob
from pacehound.instrument import native_build
from pacehound.runtime.head.client import live_owner

pytestmark = [
    pytest.mark.integration,
    pytest.mark.prove,
    pytest.mark.timeout(1800),
    needs_root,
]

ITERATIONS, SLOW_FROM, STRIKES_AT = 260, 130, 60
MOST_SLOWDOWN = 1.05

CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
typedef int (*clock_fn)(clockid_t, struct timespec *);
static clock_fn real;
int clock_gettime(clockid_t id, struct timespec *now) {
    struct timespec up;
    if (!real) real = (clock_fn)dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    if (id == CLOCK_REALTIME && real(CLOCK_MONOTONIC, &up) == 0) now->tv_sec += up.tv_sec / 7 % 3 * 3600 - 3600;
    return result;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec at;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &at);
    now->tv_sec = at.tv_sec;
    now->tv_usec = at.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *where) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (where) *where = at.tv_sec;
    return at.tv_sec;
}
"""
"""The time of day goes an hour forth and back every seven seconds; monotonic clocks go on."""


@dataclass
class Scene:
    """A folder for one run, and what is done to it."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    prefix: list[str] = field(default_factory=list)
    strike: Callable[[realjob.Run], None] | None = None

    def in_namespace(self, script: str) -> None:
        """`pacehound run` begins after these commands, in a mount namespace of its own."""
        self.prefix = ["unshare", "--mount", "sh", "-c", f'set -e; {script}; exec "$@"', "sh"]


@contextmanager
def nothing(scene: Scene) -> Iterator[None]:
    yield


@contextmanager
def full_disk_of_the_store(scene: Scene) -> Iterator[None]:
    """From the first second on."""
    with small_disk(scene.folder / "store", 1):
        fill(scene.folder / "store")
        yield


@contextmanager
def disk_of_the_store_fills(scene: Scene) -> Iterator[None]:
    with small_disk(scene.folder / "store", 256):
        scene.strike = lambda run: fill(scene.folder / "store")
        yield


@contextmanager
def full_disk_of_the_outbox_and_the_head_away(scene: Scene) -> Iterator[None]:
    scene.env["XDG_STATE_HOME"] = str(scene.folder / "state")
    scene.options += ["--endpoint", "http://127.0.0.1:9"]
    with small_disk(scene.folder / "state", 1):
        fill(scene.folder / "state")
        yield


@contextmanager
def full_shared_memory(scene: Scene) -> Iterator[None]:
    scene.in_namespace("mount -t tmpfs -o size=64k none /dev/shm; dd if=/dev/zero of=/dev/shm/full 2>/dev/null || true")
    yield


@contextmanager
def shared_memory_of_a_container(scene: Scene) -> Iterator[None]:
    scene.in_namespace("mount -t tmpfs -o size=64m none /dev/shm")
    yield


def _ours(run: realjob.Run) -> list[int]:
    """The head's process and the agents'."""
    owner = live_owner(run.store)
    return [*realjob.agents(run), *([owner[0].pid] if owner else [])]


@contextmanager
def no_descriptors_left(scene: Scene) -> Iterator[None]:
    def strike(run: realjob.Run) -> None:
        for pid in _ours(run):
            highest = max(int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir())
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 1, highest + 1))

    scene.strike = strike
    yield


@contextmanager
def no_memory_left(scene: Scene) -> Iterator[None]:
    """A limit of the memory of head and agents a little above what they have."""
    group = Path("/sys/fs/cgroup/memory") / f"adversity-{os.getpid()}"

    def strike(run: realjob.Run) -> None:
        pids = _ours(run)
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        (group / "memory.limit_in_bytes").write_text(str(pages * 4096 // 4))

    if not group.parent.is_dir():
        pytest.skip("no memory controller to set a limit with")
    group.mkdir()
    scene.strike = strike
    try:
        yield
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            (group.parent / "cgroup.procs").write_text(pid)
        group.rmdir()


@contextmanager
def read_only_folders(scene: Scene) -> Iterator[None]:
    homes = {name: scene.folder / name.lower() for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")}
    for home in (*homes.values(), scene.folder / "store"):
        home.mkdir()
    scene.env |= {name: str(home) for name, home in homes.items()}
    read_only = "; ".join(f"mount -t tmpfs -o ro none {home}" for home in (*homes.values(), scene.folder / "store"))
    scene.in_namespace(f"{read_only}; mount -t tmpfs -o ro none /dev/shm")
    yield


@contextmanager
def clock_set_back_and_forth_by_an_hour(scene: Scene) -> Iterator[None]:
    compiler = native_build.program(os.environ.get("CC"), "cc", "gcc", "clang")
    if compiler is None:
        pytest.skip("no C compiler")
    source, library = scene.folder / "clock.c", scene.folder / "clock.so"
    source.write_text(CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"], check=True)
    scene.env["LD_PRELOAD"] = str(library)
    yield


@contextmanager
def names_are_not_resolved(scene: Scene) -> Iterator[None]:
    scene.options += ["--endpoint", "http://head.invalid:4318"]
    yield


SCENES = (
    nothing,
    full_disk_of_the_store,
    disk_of_the_store_fills,
    full_disk_of_the_outbox_and_the_head_away,
    full_shared_memory,
    shared_memory_of_a_container,
    no_descriptors_left,
    no_memory_left,
    read_only_folders,
    clock_set_back_and_forth_by_an_hour,
    names_are_not_resolved,
)


@dataclass(frozen=True)
class Row:
    """What became of one run.

    `step_s`: a quarter of the steps before the fault took less. Where the clock is set, a step takes twice as long in a
    third of the time, of ranks that nobody watches, too.
    """

    scene: str
    step_s: float
    calls: str
    verdict: str
    said: tuple[str, ...]


def _played(scene_of: Callable[[Scene], AbstractContextManager[None]], folder: Path) -> Row:
    folder.mkdir()
    scene, csv = Scene(folder), folder / "steps.csv"
    with scene_of(scene):
        fault = ("--slow-rank", 2, "--slow-from", SLOW_FROM, "--slow-by", 0.4)
        command = realjob.forked("--iterations", ITERATIONS, *fault, "--csv", csv)
        run = realjob.start(folder, command, *scene.options, prefix=scene.prefix, env=scene.env)
        if scene.strike is not None:
            realjob.until("iterations", lambda: run.iterations_seen() >= STRIKES_AT, 60)
            scene.strike(run)
        assert run.wait(240) == 0, run.text()
        steps = realjob.script_steps(csv)
        assert len(steps) == ITERATIONS
        calls, verdict = _kept(run)
    said = tuple(line for line in run.text().splitlines() if line.startswith("pacehound"))
    name = getattr(scene_of, "__name__", "").replace("_", " ")
    return Row(name, statistics.quantiles(steps[20:SLOW_FROM])[0], calls, verdict, said)


def _kept(run: realjob.Run) -> tuple[str, str]:
    """What the store knows: rounds of the job that have a call of each rank, and who was named."""
    try:
        rows = run.sql("SELECT count() AS n FROM (SELECT 1 FROM calls GROUP BY rank, communicator, seq)")
        findings = [finding for incident in run.incidents() for finding in incident["findings"]]
    except AssertionError as error:
        return "no store", str(error).splitlines()[-1][:80]
    named = [f"{finding['kind']}, {finding['verdict']} {finding['culprits']}" for finding in findings]
    return str(rows[0]["n"]), "; ".join(named) or "none"


def _check(rows: Sequence[Row]) -> None:
    """The job never notices, nobody innocent is ever named, and whoever reads is told where nothing was kept."""
    control = rows[0]
    for row in rows:
        assert row.step_s <= MOST_SLOWDOWN * control.step_s, row
        named = [words for words in row.verdict.split("; ") if "culprit" in words]
        assert all(words.endswith("[2]") for words in named), row
        if row.calls != control.calls:
            assert "no incident" not in " ".join(row.said).lower() or "not watched" in " ".join(row.said), row


def test_what_becomes_of_job_data_and_verdict(tmp_path: Path) -> None:
    rows = []
    for number, scene_of in enumerate(SCENES):
        row = _played(scene_of, tmp_path / str(number))
        rows.append(row)
        print(f"| {row.scene} | exit 0, {row.step_s * 1e3:.1f} ms a step | {row.calls} | {row.verdict} |", flush=True)
        print(textwrap.indent("\n".join(row.said), "    "), flush=True)
    _check(rows)
