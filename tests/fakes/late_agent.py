"""An agent that comes late to a run folder: all that it has to say of what the rings hold."""

from __future__ import annotations

import json
import time
from pathlib import Path

from collector.agent.delivery import Delivery
from collector.agent.node_agent import Agent
from collector.agent.outbox import Outbox
from collector.agent.run_folder import RunFolder
from pacehound.model.routing import Event
from pacehound.settings import Settings
from tests.fakes.receiver import FakeReceiver, ImmediateTasks


def late_agent(
    folder: Path,
    job: str,
    host: str = "node-1",
    *,
    unix_ahead_ns: int = 0,
    looks: int = 4,
    apart_ns: int = 2_000_000_000,
) -> tuple[Agent, FakeReceiver]:
    """The agent of one host's run folder after so many looks, and the receiver that it has told everything."""
    clock = {"monotonic_ns": 0, "unix_ns": unix_ahead_ns}
    (folder / "job.json").write_text(json.dumps({"job": job, "host": host, "clock": clock}))
    run, settings, receiver = RunFolder(folder), Settings.load({}, []), FakeReceiver()
    outbox = Outbox(run.path / "outbox.sqlite", settings.agent.max_backlog_bytes)
    agent = Agent(run, outbox, Delivery(outbox, receiver, ImmediateTasks()), settings)
    now_ns = time.monotonic_ns()
    for look in range(looks):
        agent.step(now_ns + look * apart_ns)
    agent.let_go()
    outbox.close()
    return agent, receiver


def told_of(folder: Path, job: str, host: str) -> list[Event]:
    """The events of a job that has ended, in their order."""
    (folder / "ended.json").write_text(json.dumps({"exit_code": 0, "signal": None, "why": "job ended"}))
    _, receiver = late_agent(folder, job, host, unix_ahead_ns=10**18, looks=6)
    return list(receiver.events)
