"""Asks the receiver for commands, in a thread of its own: as soon as it has answered, which a head does when there are
some or after five seconds; once a second where it does not wait, and ten times while one is carried out.
"""

from __future__ import annotations

import logging
from typing import Protocol

from collector.agent.background import TaskRunner
from pacehound.bus.otlp import Polled
from pacehound.errors import PacehoundError
from pacehound.model.events.control import Command

logger = logging.getLogger("pacehound.agent")

EVERY_NS = 1_000_000_000
"""A head answers a thousand such questions a second with a tenth of a core."""

WAIT_S = 5.0
"""A head waits so long for a command (chosen: half of what an answer may take). Asking each second took 2 ms of a
processor a second, of the agent and of the head beside it."""

WHILE_BUSY_NS = 100_000_000
BUSY_FOR_NS = 10_000_000_000
"""After a command others follow soon."""

AWAY_NS = 10_000_000_000
"""Who does not answer, or knows no commands, is asked again after so long."""


class CommandSource(Protocol):
    """Where commands come from."""

    def poll(self, after: int) -> Polled:
        """Those that came after this one; where there are none they are waited for, for a few seconds at most."""
        ...


class ClosableSource(CommandSource, Protocol):
    """One that has a connection: a head (`HeadCommands`) or Kafka (`pacehound.bus.kafka_commands.KafkaCommands`)."""

    def close(self) -> None:
        """Let go of it."""
        ...


class Receiver(Protocol):
    """What sends messages and can be asked for commands (`OtlpProducer`, `StoreSender`)."""

    def commands(self, job: str, after: int, wait_s: float = 0.0) -> Polled:
        """What a controller has to say, since the last time; it may wait so long for it."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


class HeadCommands:
    """Commands for one job, of a head."""

    def __init__(self, receiver: Receiver, job: str) -> None:
        self._receiver, self._job = receiver, job

    def poll(self, after: int) -> Polled:
        """Those that came after this one."""
        return self._receiver.commands(self._job, after, WAIT_S)

    def close(self) -> None:
        """Let go of the connection."""
        self._receiver.close()


class CommandPoll:
    """Asks, and never waits for the answer.

    Parameters
    ----------
    source
        Who is asked.
    tasks
        Where that happens.

    """

    def __init__(self, source: CommandSource, tasks: TaskRunner[Polled | None]) -> None:
        self._source = source
        self._tasks = tasks
        self._after = 0
        self._next_ns = 0
        self._busy_until_ns = 0
        self._is_away = False

    def step(self, now_ns: int, *, is_busy: bool = False) -> list[Command]:
        """What has come since the last time; asks again where it is due."""
        found: list[Command] = []
        for polled in self._tasks.results():
            if polled is None:
                self._next_ns = now_ns + AWAY_NS
                continue
            found += polled.commands
            self._after = polled.after
        if found or is_busy:
            self._busy_until_ns = now_ns + BUSY_FOR_NS
        if now_ns >= self._next_ns and self._tasks.is_idle():
            self._next_ns = now_ns + (WHILE_BUSY_NS if now_ns < self._busy_until_ns else EVERY_NS)
            after = self._after
            self._tasks.run(lambda: self._ask(after))
        return found

    def _ask(self, after: int) -> Polled | None:
        try:
            polled = self._source.poll(after)
        except PacehoundError as error:
            if not self._is_away:
                logger.info("nobody to be asked for commands: %s", error)
            self._is_away = True
            return None
        self._is_away = False
        return polled
