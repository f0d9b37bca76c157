"""Real processes: ranks that write, an agent that is killed and started again, a head node that goes away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.rig import realjob
from pacehound.clock import ClockPair
from pacehound.model.calls import CallBatch
from pacehound.model.events import HostSample, Progress
from tests.fakes.head_node import HeadNode, head_node
from tests.fakes.receiver import promises_hold
from tests.fakes.said import said_in

ROOT = Path(__file__).parents[2]

# A rank: calls every few milliseconds until it is told to leave, with the ends written a moment after the launches.
RANK = """
import os, sys, time
from pathlib import Path
from collector.host.processes import read_stat
from tests.fakes.ring_file import RingFile
rings, rank, calls = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
ring = RingFile(rings, rank=rank, pid=os.getpid(), start_ticks=read_stat(os.getpid()).start_ticks, capacity=4096)
ring.group([0, 1], created_ns=time.monotonic_ns())
for seq in range(calls):
    ring.launch(seq, time.monotonic_ns())
    time.sleep(0.002)
    ring.complete(seq, time.monotonic_ns())
    ring.marker(seq, time.monotonic_ns())
ring.exit(time.monotonic_ns())
ring.destroy()
ring.leave()
os._exit(3 if rank else 0)
"""

AGENT = """
import sys
from pathlib import Path
from collector.agent.daemon import Assignment, run
from pacehound.settings import Settings
settings = Settings.load({}, ["agent.flush_s=0.3"])
folder, headers = Path(sys.argv[1]), {"authorization": "Bearer t"}
sys.exit(run(Assignment(run_dir=folder, endpoint=sys.argv[2], headers=headers, unsent=folder), settings))
"""


def start(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], env=environment)


def until(claim: Callable[[], bool], seconds: float = 15.0) -> None:
    realjob.until("what is claimed", claim, seconds, 0.05)


def rows(node: HeadNode) -> list[tuple[int, int]]:
    found = []
    for message in node.messages():
        for event in said_in(message):
            if isinstance(event, CallBatch):
                found += list(zip(event.integers("rank").tolist(), event.integers("seq").tolist(), strict=True))
    return found


def run_folder(path: Path) -> Path:
    clock = ClockPair.read()
    pair = {"monotonic_ns": clock.monotonic_ns, "unix_ns": clock.unix_ns}
    (path / "job.json").write_text(json.dumps({"job": "j", "host": "h", "clock": pair}))
    return path


@pytest.mark.integration
def test_an_agent_killed_twice_and_a_node_away_cost_nothing(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    started: list[subprocess.Popen[bytes]] = []
    with head_node() as node:
        try:
            agent = start(AGENT, folder, node.endpoint)
            ranks = [start(RANK, folder / "rings", rank, 1000) for rank in (0, 1)]
            started += [agent, *ranks]
            for _ in range(2):
                seen = len(node.requests)
                until(lambda seen=seen: len(node.requests) > seen + 3)  # type: ignore[misc]
                agent.kill()
                agent.wait()
                agent = start(AGENT, folder, node.endpoint)
                started.append(agent)
            port = node.port
            node.close()
            time.sleep(1.0)
            back = HeadNode(port)
            try:
                assert [rank.wait(20) for rank in ranks] == [0, 3]
                back.requests[:0] = node.requests
                (folder / "ended.json").write_text('{"exit_code": 3, "signal": null, "why": "job ended"}')
                assert agent.wait(15) == 0
            finally:
                back.close()
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        arrived = rows(back)
        assert Counter(arrived) == Counter((rank, seq) for rank in (0, 1) for seq in range(1000))
        events = [event for message in back.messages() for event in said_in(message)]
        assert promises_hold(events)
        assert [e for e in events if isinstance(e, Progress)][-1].closed
        last = [e for e in events if isinstance(e, HostSample)][-1]
        assert last.closed
        assert [(p.rank, p.state) for p in last.processes] == [(0, "exited"), (1, "exited")]
        assert all(p.exit_code in (code, None) for p, code in zip(last.processes, (0, 3), strict=True))


@pytest.mark.integration
def test_a_stopped_rank_is_seen_and_a_term_lets_a_later_agent_go_on(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    started: list[subprocess.Popen[bytes]] = []

    def states(node: HeadNode) -> list[str]:
        samples = [e for m in node.messages() for e in said_in(m) if isinstance(e, HostSample)]
        return [p.state for p in samples[-1].processes] if samples else []

    with head_node() as node:
        try:
            rank = start(RANK, folder / "rings", 0, 100_000)
            agent = start(AGENT, folder, node.endpoint)
            started += [rank, agent]
            until(lambda: states(node) == ["running"])
            rank.send_signal(signal.SIGSTOP)
            until(lambda: states(node) == ["stopped"], 5.0)
            rank.send_signal(signal.SIGCONT)
            until(lambda: states(node) == ["running"], 5.0)
            agent.terminate()
            assert agent.wait(12) == 0
            assert not any(
                e.closed for m in node.messages() for e in said_in(m) if isinstance(e, (HostSample, Progress))
            )
            agent = start(AGENT, folder, node.endpoint)
            started.append(agent)
            rank.kill()
            rank.wait()
            until(lambda: states(node) == ["exited"], 5.0)
            (folder / "ended.json").write_text('{"why": "job killed", "signal": 9}')
            assert agent.wait(12) == 0
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        seqs = sorted(seq for _, seq in rows(node))
        assert seqs == list(range(len(seqs)))
