"""A real job of two replicas and two stages on four hosts: a link becomes slow, and ranks change places because of it.

Each host is a network namespace with a `pacehound run` of its own; the slow link is a token bucket between two of them
that exchange gradients. Stages exchange a hundredth of that. The losses are those of a job that nobody touched: where a
rank computes does not change what it computes, so they are equal to the last bit.
"""

from __future__ import annotations

import json
import secrets
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import netns
import pytest

from bench.rig import realjob
from pacehound.bus.otlp_headers import with_pin
from tests.integration.asked_job import AskedJob

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timed,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
    pytest.mark.skipif(bool(netns.why_not()), reason=netns.why_not() or "possible"),
]
SCRIPT = Path(__file__).parents[2] / "examples" / "train_hybrid.py"
SHAPE = ["--dp", "2", "--pp", "2", "--layers", "8", "--batch", "8", "--width", "128"]
SLOW = (2, 3)
"""The ends of the slow link: the two replicas of the second stage."""
LIMIT = ("rate", "8mbit", "burst", "32kb", "latency", "2000ms")
WITHIN_S = 300
BEFORE = "0 1 2 3"


class HybridJob(AskedJob):
    """The example over four hosts, and a head on a fifth."""

    def __init__(self, folder: Path, hosts: list[netns.Host], mode: str) -> None:
        self.folder, self.store, self.hosts = folder, folder / "store", hosts
        head, token = hosts[4], secrets.token_hex(16)
        self.log = (folder / "log").open("ab")
        listen = ["--listen", f"{head.address}:4318", "--page", f"{head.address}:4319", "--store", str(self.store)]
        self.head = subprocess.Popen(
            [*head.prefix, *realjob.PACEHOUND, "up", *listen, "--set", f"actuators.mode={mode}"],
            env=realjob.environment({"PACEHOUND_TOKEN": token}), stdout=self.log, stderr=self.log, cwd="/",
        )  # fmt: skip
        realjob.until("the head", lambda: (self.store / "head.json").exists(), 90)
        pin = json.loads((self.store / "head.json").read_text())["pin"]
        key = (self.store / "control.pub").read_text().strip()
        launch = folder / "on"
        tag = hosts[0].namespace[:-1]
        launch.write_text(
            "#!/bin/sh\nnode=$1; shift\n"
            f"export GLOO_SOCKET_IFNAME={hosts[0].interface[:-1]}$node OMP_NUM_THREADS=1\n"
            f"exec ip netns exec {tag}$node {' '.join(realjob.PACEHOUND)} run --job hybrid "
            f'--endpoint https://{head.address}:4318 --set host.name=h$node --set actuators.keys={key} -- "$@"\n'
        )
        launch.chmod(0o755)
        words = [sys.executable, str(SCRIPT), *SHAPE, "--steps", "1000000", "--address", head.address]
        words += [
            "--launch",
            f"{launch} {{node}}",
            "--csv",
            str(folder / "csv"),
            "--stop",
            str(folder / "stop"),
            "--json",
        ]
        self.process = subprocess.Popen(
            [*head.prefix, *words], env=realjob.environment({"PACEHOUND_TOKEN": with_pin(token, pin)}),
            stdout=subprocess.PIPE, stderr=self.log, cwd="/",
        )  # fmt: skip

    def times(self) -> list[tuple[str, float]]:
        """Who is where, and what the step took."""
        path = self.folder / "csv"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(places, float(took)) for _, took, places in (line.split(",") for line in lines)]

    def until(self, done: Callable[[], bool], what: str) -> None:
        def say() -> str:
            return f"{self.rows('SELECT action, taken, reason FROM decisions')}; {self.said()}"

        realjob.until(what, done, WITHIN_S, 0.3, say, self.process)

    def said(self) -> str:
        return (self.folder / "log").read_text()[-3000:]

    def goes_on(self, steps: int) -> list[float]:
        """Times of so many steps more."""
        before = len(self.times())
        self.until(lambda: len(self.times()) >= before + steps, "it goes on")
        return [took for _, took in self.times()[before:]]

    def becomes_slow(self) -> None:
        """What two hosts send to each other goes over a narrow link from now on; all else goes as before."""
        one, other = (self.hosts[number] for number in SLOW)
        ends = [(one, other, f"{one.interface}n"), (other, one, f"{other.interface}n")]
        _run("ip", "-n", one.namespace, "link", "add", ends[0][2], "type", "veth",
             "peer", "name", ends[1][2], "netns", other.namespace)  # fmt: skip
        for host, _, interface in ends:
            _run("ip", "-n", host.namespace, "link", "set", interface, "up")
            _run("tc", "-n", host.namespace, "qdisc", "add", "dev", interface, "root", "tbf", *LIMIT)
        for host, to, interface in ends:
            _run("ip", "-n", host.namespace, "route", "add", f"{to.address}/32", "dev", interface, "src", host.address)

    def end(self) -> dict[str, Any]:
        """What the job says of itself."""
        (self.folder / "stop").touch()
        said, _ = self.process.communicate(timeout=WITHIN_S)
        found: dict[str, Any] = json.loads(said)
        return found

    def close(self) -> None:
        for process in (self.process, self.head):
            if process.poll() is None:
                process.terminate()
                process.wait(60)
        self.log.close()


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"


@contextmanager
def hybrid_job(folder: Path, mode: str = "observe") -> Iterator[HybridJob]:
    with netns.hosts_on_a_bridge(5) as hosts:
        job = HybridJob(folder, hosts, mode)
        try:
            yield job
        finally:
            job.close()


def assert_losses_are_those_of_a_job_that_nobody_touched(found: dict[str, Any]) -> None:
    steps = len(found["losses"])
    words = [sys.executable, str(SCRIPT), *SHAPE, "--steps", str(steps), "--pace-ms", "0", "--json"]
    alone = json.loads(subprocess.run(words, check=True, capture_output=True, timeout=WITHIN_S).stdout)
    assert found["losses"] == alone["losses"]


@pytest.mark.prove
def test_ranks_change_places_by_an_order_and_the_gradients_leave_the_slow_link(tmp_path: Path) -> None:
    with hybrid_job(tmp_path) as job:
        job.until(lambda: len(job.times()) > 20, "it begins")
        before_s = statistics.median(job.goes_on(20))
        job.becomes_slow()
        job.goes_on(3)
        slow_s = statistics.median(job.goes_on(12))
        words = ["order", "topology", "--payload", "[0, 2, 1, 3]", "--job", "hybrid", "--store", str(job.store)]
        subprocess.run([*realjob.PACEHOUND, *words], check=True, capture_output=True, timeout=120)
        job.until(lambda: job.times()[-1][0] == "0 2 1 3", "they have changed places")
        moved = [took for places, took in job.times() if places != BEFORE]
        moved += job.goes_on(20)
        found = job.end()
    after_s = statistics.median(moved[2:])
    line = f"before {before_s:.3f} s, slow {slow_s:.3f} s, moved {after_s:.3f} s; the step of the move {moved[0]:.3f} s"
    print(line)
    assert slow_s > 1.5 * before_s, line
    assert after_s < slow_s - 0.6 * (slow_s - before_s), line
    assert_losses_are_those_of_a_job_that_nobody_touched(found)


@pytest.mark.prove
@pytest.mark.parametrize("number", range(10))
def test_ten_times_a_slow_link_is_found_and_ranks_change_places_by_itself(tmp_path: Path, number: int) -> None:
    with hybrid_job(tmp_path, "auto") as job:
        job.until(lambda: len(job.times()) > 120, "it begins")
        before_s = statistics.median(job.goes_on(20))
        job.becomes_slow()
        job.goes_on(3)
        slow_s = statistics.median(job.goes_on(12))
        job.until(
            lambda: any(one["action"] == "keep_topology" for one in job.rows("SELECT action FROM decisions")), "S3"
        )
        after_s = statistics.median(job.goes_on(20))
        found = job.end()
    line = f"{number}: before {before_s:.3f} s, slow {slow_s:.3f} s, moved {after_s:.3f} s"
    print(line)
    assert after_s < slow_s - 0.5 * (slow_s - before_s), line
    assert_losses_are_those_of_a_job_that_nobody_touched(found)
