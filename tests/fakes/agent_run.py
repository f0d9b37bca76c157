"""A run folder with an agent in it that can be killed and started again, driven by a clock that stands still."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collector.agent.delivery import Delivery
from collector.agent.node_agent import Agent
from collector.agent.outbox import Outbox
from collector.agent.run_folder import RunFolder
from pacehound.settings import Settings
from tests.fakes.proc_tree import ProcTree
from tests.fakes.receiver import FakeReceiver, ImmediateTasks
from tests.fakes.ring_file import RingFile

UNIX_NS = 1_700_000_000_000_000_000
MS = 1_000_000


class AgentRun:
    def __init__(self, path: Path, *overrides: str) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        clock = {"monotonic_ns": 0, "unix_ns": UNIX_NS}
        (path / "job.json").write_text(json.dumps({"job": "job-1", "host": "node-1", "clock": clock}))
        self.settings = Settings.load({}, list(overrides))
        self.proc = ProcTree(path / "proc")
        self.receiver = FakeReceiver()
        self.now_ns = 1_000 * MS
        self.cpu_ns = 0
        self.start()

    def start(self) -> None:
        folder = RunFolder(self.path)
        self.delivery_tasks = ImmediateTasks()
        self.outbox = Outbox(folder.path / "outbox.sqlite", self.settings.agent.max_backlog_bytes)
        self.agent = Agent(
            folder,
            self.outbox,
            Delivery(self.outbox, self.receiver, self.delivery_tasks),
            self.settings,
            proc=self.proc.root,
            cpu_ns=lambda: self.cpu_ns,
        )

    def kill(self) -> None:
        """As kill -9 does: whatever was not saved is gone."""
        self.agent.let_go()
        self.outbox.close()
        self.start()

    def ring(self, rank: int, *, tid: int = 0, **head: Any) -> RingFile:
        pid = 100 + rank
        self.proc.put(pid)
        return RingFile(self.path / "rings", rank=rank, pid=pid, tid=tid or pid, **head)

    def joined(self, rank: int, *, tid: int = 0, **head: Any) -> RingFile:
        """The ring of a rank that has joined the world of ranks 0 and 1."""
        ring = self.ring(rank, tid=tid, **head)
        ring.group([0, 1])
        return ring

    def step(self, after_ms: int = 50) -> None:
        self.now_ns += after_ms * MS
        self.agent.step(self.now_ns)

    def flush(self) -> None:
        """Steps until everything written so far is settled, saved and sent."""
        self.step(1_100)
        self.step(1_100)

    def end(self, why: str = "job ended") -> None:
        (self.path / "ended.json").write_text(json.dumps({"exit_code": 0, "signal": None, "why": why}))

    def deliver(self) -> None:
        self.receiver.is_away = False
        for _ in range(100):
            self.step(6_000)
            if self.agent.has_closed and self.agent.delivery.is_done:
                return
        raise AssertionError(f"{len(self.outbox)} messages are still waiting")
