"""`pacehound validate` on real processes: the one that is slow is found, and of healthy ones nobody is named."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from actuators.validation import process as measuring_process
from actuators.validation.outcome import answer_of, judged_of, outcome_of, read_measured
from bench.rig import realjob
from tests.integration import netns

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
]
CGROUPS = Path("/sys/fs/cgroup")
WITHIN_S = 240
PROVED = 20

# What happens to one rank as soon as it is in its group: before that it only starts. Torchrun starts it, or a fork.
FAULT = """
import os, sys, threading, time
def when_joined():
    while not getattr(sys.modules.get("torch.distributed"), "is_initialized", lambda: False)():
        time.sleep(0.01)
    if os.environ.get("RANK") == "{rank}":
        {what}
def begin():
    threading.Thread(target=when_joined, daemon=True).start()
if "validation" in " ".join(sys.orig_argv) and "validate" not in sys.orig_argv:
    os.register_at_fork(after_in_child=begin)
    if os.environ.get("RANK") == "{rank}":
        begin()
"""
NEIGHBOURS = """
        import subprocess
        os.sched_setaffinity(0, {{0}})
        for task in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(task), {{0}})
        work = "n=0; while [ $n -lt 9999 ]; do n=$((n+1)); done"
        for _ in range(3):
            subprocess.Popen(["sh", "-c", f"while kill -0 {{os.getpid()}}; do {{work}}; done"], stderr=-3)
"""


@contextlib.contextmanager
def quota(share: float) -> Iterator[Path]:
    """A group of processes that get so much of one processor; its file that takes their numbers."""
    is_second = (CGROUPS / "cgroup.controllers").exists()
    folder = (CGROUPS if is_second else CGROUPS / "cpu") / f"pacehound-test-{os.getpid()}"
    try:
        folder.mkdir()
        if is_second:
            (folder / "cpu.max").write_text(f"{round(100_000 * share)} 100000")
        else:
            (folder / "cpu.cfs_quota_us").write_text(str(round(100_000 * share)))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no quota can be set here: {error}")
    try:
        yield folder / "cgroup.procs"
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def validated(ranks: int, folder: Path | None = None) -> tuple[int, dict[str, Any]]:
    """Exit status and answer, of a preflight of so many ranks on this host."""
    environ = {**os.environ, **({"PYTHONPATH": str(folder)} if folder is not None else {})}
    command = [sys.executable, "-m", "pacehound", "validate", "--json", "--check", "--", "torchrun"]
    done = subprocess.run(
        [*command, "--standalone", "--nproc-per-node", str(ranks), "train.py"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert done.stdout, done.stderr[-2000:]
    return done.returncode, json.loads(done.stdout)


def measured(ranks: int, folder: Path | None = None) -> dict[str, Any]:
    """The same by forks of one process that has loaded torch, which takes a third of the time."""
    with tempfile.TemporaryDirectory() as scratch:
        forks = start_forks(Path(scratch), ranks, {"PYTHONPATH": str(folder)} if folder is not None else {})
        assert forks.wait(WITHIN_S) == 0
        return answer_in(Path(scratch))


def start_forks(out: Path, ranks: int, environ: dict[str, str], prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [environ.get("PYTHONPATH"), str(realjob.REPOSITORY)]))
    return subprocess.Popen(
        [
            *prefix,
            sys.executable,
            str(realjob.FORKED),
            str(ranks),
            measuring_process.__file__,
            str(out / "measured.json"),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environ, "PYTHONPATH": path},
    )


def answer_in(out: Path) -> dict[str, Any]:
    return answer_of(judged_of(outcome_of(read_measured((out / "measured.json").read_bytes()))))


def with_fault(folder: Path, what: str, rank: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(FAULT.format(what=what.replace("{{", "{").replace("}}", "}"), rank=rank))
    return folder


@contextlib.contextmanager
def half_of_a_share(folder: Path, ranks: int, rank: int) -> Iterator[Path]:
    """A fault: half of what each would have of two processors, or of what they need."""
    with quota(0.5 * min((os.cpu_count() or 1) / ranks, 1.0)) as members:
        yield with_fault(folder, f"open({str(members)!r}, 'w').write(str(os.getpid()))", rank)


@pytest.mark.prove
@pytest.mark.timed
def test_a_rank_that_gets_half_of_its_processor_is_found(tmp_path: Path) -> None:
    with half_of_a_share(tmp_path / "fault", 4, 2) as fault:
        status, answer = validated(4, fault)
    assert [one["rank"] for one in answer["culprits"]] == [2], answer
    assert status == 1


@pytest.mark.prove
def test_twenty_times_of_eight_ranks_the_one_with_a_quota_is_found(tmp_path: Path) -> None:
    for run in range(PROVED):
        with half_of_a_share(tmp_path / str(run), 8, run % 8) as fault:
            answer = measured(8, fault)
        assert [one["rank"] for one in answer["culprits"]] == [run % 8], answer


@pytest.mark.prove
def test_twenty_times_of_eight_ranks_the_one_with_a_busy_neighbour_is_found(tmp_path: Path) -> None:
    ratios = []
    for run in range(PROVED):
        answer = measured(8, with_fault(tmp_path / str(run), NEIGHBOURS, run % 8))
        assert [one["rank"] for one in answer["culprits"]] == [run % 8], answer
        ratios.append(answer["culprits"][0]["ratio"])
    print(f"with a busy neighbour: {min(ratios):.2f} to {max(ratios):.2f} of the peers' time")


@pytest.mark.prove
def test_twenty_times_of_eight_healthy_ranks_nobody_is_named() -> None:
    ratios = []
    for _ in range(PROVED):
        answer = measured(8)
        assert answer["culprits"] == [], answer
        assert answer["links"] == [], "links within a host are not judged"
        ratios.append(max(one["ratio"] for one in answer["ranks"]))
    print(f"healthy: the slowest rank of each run took {min(ratios):.2f} to {max(ratios):.2f} of its peers' time")


def links_of(hosts: list[netns.Host], out: Path) -> dict[str, Any]:
    """One rank on each host, by forks."""
    meet = {"FORKED_WORLD": str(len(hosts)), "FORKED_MEET": f"{hosts[0].address}:29512"}
    forks = [
        start_forks(out, 1, meet | environment_on(host) | {"FORKED_FIRST": str(number)}, host.prefix)
        for number, host in enumerate(hosts)
    ]
    assert [one.wait(WITHIN_S) for one in forks] == [0] * len(hosts)
    return answer_in(out)


def environment_on(host: netns.Host) -> dict[str, str]:
    return {"GLOO_SOCKET_IFNAME": host.interface, "PACEHOUND_HOST_NAME": host.name}


def links_before_a_job(hosts: list[netns.Host], folder: Path) -> dict[str, Any]:
    """As a person would measure them; what the host of rank 0 says."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    processes = []
    for number, host in enumerate(hosts):
        command = [sys.executable, "-m", "pacehound", "validate", "--json", "--", "torchrun", "--nproc-per-node", "1"]
        command += ["--nnodes", str(len(hosts)), "--node-rank", str(number), "--master-addr", hosts[0].address]
        environ = {**os.environ, **environment_on(host)}
        with (folder / f"{host.name}.out").open("w") as output, (folder / f"{host.name}.err").open("w") as errors:
            processes.append(
                subprocess.Popen(
                    [*host.prefix, *command, "--master-port", str(port), "train.py"],
                    env=environ,
                    stdout=output,
                    stderr=errors,
                )
            )
    for host, process in zip(hosts, processes, strict=True):
        assert process.wait(WITHIN_S) in (0, 1), (folder / f"{host.name}.err").read_text()[-2000:]
    answer: dict[str, Any] = json.loads((folder / f"{hosts[0].name}.out").read_text())
    return answer


@pytest.mark.prove
@pytest.mark.skipif(bool(netns.why_not()), reason=netns.why_not())
def test_twenty_times_a_slow_link_between_hosts_is_found_and_of_healthy_ones_none(tmp_path: Path) -> None:
    ratios = []
    with netns.hosts_on_a_bridge(4) as hosts:
        for run in range(PROVED):
            slow, links = run % 4, links_of if run else links_before_a_job
            folder = tmp_path / str(run)
            folder.mkdir()
            healthy = links(hosts, folder)
            assert healthy["culprits"] == [], healthy
            limit = ["tbf", "rate", "500mbit", "burst", "256kb", "latency", "400ms"]
            tc = [*hosts[slow].prefix, "tc", "qdisc"]
            subprocess.run([*tc, "add", "dev", hosts[slow].interface, "root", *limit], check=True)
            found = links(hosts, folder)
            subprocess.run([*tc, "del", "dev", hosts[slow].interface, "root"], check=True)
            assert [one.get("pair") for one in found["culprits"]] == [[slow, (slow + 1) % 4]], (run, found["culprits"])
            ratios.append(found["culprits"][0]["ratio"])
    print(f"over a link of 500 Mbit/s: {min(ratios):.2f} to {max(ratios):.2f} of the peers' time")


@pytest.mark.prove
@pytest.mark.skipif(bool(netns.why_not()), reason=netns.why_not())
def test_a_link_of_a_hundredth_is_measured_in_the_time_that_there_is(tmp_path: Path) -> None:
    """Over 8 Mbit/s the four megabytes that others are measured with take longer than ranks are held."""
    with netns.hosts_on_a_bridge(4) as hosts:
        limit = ["tbf", "rate", "8mbit", "burst", "32kb", "latency", "2000ms"]
        tc = [*hosts[2].prefix, "tc", "qdisc"]
        subprocess.run([*tc, "add", "dev", hosts[2].interface, "root", *limit], check=True)
        began_s = time.monotonic()
        found = links_of(hosts, tmp_path)
        took_s = time.monotonic() - began_s
    assert [one.get("pair") for one in found["culprits"]] == [[2, 3]], found["culprits"]
    print(f"over a link of 8 Mbit/s: {found['culprits'][0]['ratio']:.0f} times the peers' time, in {took_s:.0f} s")
