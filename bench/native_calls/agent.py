"""An agent that gives its messages to nobody: prints what it needed, as JSON. Arguments: run folder, seconds."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from collector.agent.delivery import Delivery, Outcome
from collector.agent.node_agent import Agent
from collector.agent.outbox import Outbox
from collector.agent.run_folder import RunFolder
from pacehound.bus.otlp import SendResult
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.settings import Settings


class Nobody:
    """Takes everything at once: the receiver, and where the agent sends to it."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self._results: list[Outcome] = []

    def send(self, messages: Sequence[bytes]) -> SendResult:
        """Keep them, to be counted."""
        self.taken += messages
        return SendResult()

    def is_idle(self) -> bool:
        """Always, once the last outcome was heard."""
        return not self._results

    def run(self, task: Callable[[], Outcome]) -> None:
        """At once."""
        self._results.append(task())

    def results(self) -> list[Outcome]:
        """As a task runner says it."""
        found, self._results = self._results, []
        return found

    def close(self, wait_s: float = 0.0) -> None:
        """Nothing is held."""


def main() -> None:
    """Run for a while in the rhythm of the real one."""
    folder, seconds = RunFolder(Path(sys.argv[1])), float(sys.argv[2])
    settings = Settings()
    nobody = Nobody()
    outbox = Outbox(folder.path / "outbox.sqlite", settings.agent.max_backlog_bytes)
    agent = Agent(folder, outbox, Delivery(outbox, nobody, nobody), settings)
    _steps(agent, 1.0, settings.agent.poll_s)  # imports and first batches
    nobody.taken.clear()
    before, begun_s = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    _steps(agent, seconds, settings.agent.poll_s)
    used, took_s = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - begun_s
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    events = [event for message in nobody.taken for event in codec.decode(message)]
    calls = sum(len(event) for event in events if isinstance(event, CallBatch))
    figures = {"cpu_share": cpu_s / took_s, "memory_bytes": used.ru_maxrss * 1024, "calls_per_s": calls / took_s}
    sys.stdout.write(json.dumps(figures) + "\n")


def _steps(agent: Agent, seconds: float, poll_s: float) -> None:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        agent.step(time.monotonic_ns())
        time.sleep(poll_s)


if __name__ == "__main__":
    main()
