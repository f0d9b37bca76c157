"""Have a simulated job obey whoever gives orders to its head, in real time: the way that an agent's orders come."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from pacehound.bus.otlp import Polled
from pacehound.clock import Clock
from pacehound.errors import Unavailable
from pacehound.model import codec
from simulator.obedient_agents import LOOKS_EVERY_NS, ObedientAgents


class Head(Protocol):
    """Who is asked for orders, and told what became of them (`pacehound.bus.otlp.OtlpProducer`)."""

    def commands(self, job: str, after: int) -> Polled:
        """What a controller has to say, since the last time."""
        ...

    def send(self, messages: Sequence[bytes]) -> object:
        """Take these."""
        ...


def obey(agents: ObedientAgents, head: Head, clock: Clock, stopping: threading.Event) -> None:
    """Until it is told to stop; a head that is away is asked again, and what it did not take is told to the next."""
    after, unsent, now_s = 0, list[bytes](), clock.monotonic_s()
    while not stopping.wait(LOOKS_EVERY_NS / 1e9):
        before_s, now_s = now_s, clock.monotonic_s()
        agents.advance(round((now_s - before_s) * 1e9))
        try:
            polled = head.commands(agents.name, after)
            after = polled.after
            for command in polled.commands:
                agents.command(command)
            unsent += [codec.encode(result) for result in agents.results(agents.name, 0)[0]]
            if unsent:
                head.send(unsent)
                unsent.clear()
        except Unavailable:
            continue
