"""An agent that comes when the job is over: all that it has to say of what the rings hold."""

from __future__ import annotations

import json
import time
from pathlib import Path

from collector.agent import Agent
from collector.outbox import Outbox
from collector.run_folder import RunFolder
from pacehound.routing import Event
from pacehound.settings import Settings
from tests.fakes.courier import DirectCourier, Door


def told_of(folder: Path, job: str, host: str) -> list[Event]:
    """The events of one host's run folder, in their order."""
    clock = {"monotonic_ns": 0, "unix_ns": 10**18}
    (folder / "job.json").write_text(json.dumps({"job": job, "host": host, "clock": clock}))
    (folder / "ended.json").write_text(json.dumps({"exit_code": 0, "signal": None, "why": "job ended"}))
    run, settings, door = RunFolder(folder), Settings.load({}, []), Door()
    outbox = Outbox(run.outbox, settings.agent.max_backlog_bytes)
    agent = Agent(run, outbox, DirectCourier(door), settings)
    now_ns = time.monotonic_ns()
    for step in range(6):
        agent.step(now_ns + step * 2_000_000_000)
    agent.let_go()
    outbox.close()
    return list(door.events)
