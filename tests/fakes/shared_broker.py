"""One Kafka broker for all processes of a run of the tests: a Java that is started takes as long as several of them.

Who needs it first starts it, who leaves it last stops it. Each test has a prefix of its own, so most of them share it;
who does something to the broker itself has it alone for that long.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.rig.broker import Broker
from bench.rig.realjob import until, words_of
from tests.fakes.shared_run import locked

STOPPED_WITHIN_S = 30


@contextmanager
def shared_broker(folder: Path) -> Iterator[Broker]:
    """The broker in that folder, which all who use it name; it runs for as long as somebody does."""
    folder.mkdir(exist_ok=True)
    users = folder / "users"
    with locked(folder / "lock"):
        before = int(users.read_text()) if users.exists() else 0
        broker = Broker(folder / "kafka")
        if before == 0:
            broker.start()
        users.write_text(str(before + 1))
    try:
        yield broker
    finally:
        with locked(folder / "lock"):
            left = int(users.read_text()) - 1
            users.write_text(str(left))
            if left == 0:
                _stop(broker)


@contextmanager
def used(broker: Broker, *, alone: bool = False) -> Iterator[Broker]:
    """With the others, or when none of them uses it."""
    with locked(broker.folder / "lock", with_others=not alone):
        yield broker


def _stop(broker: Broker) -> None:
    """Whoever has started it."""
    broker.stop()
    if is_of(broker.pid, broker):
        os.kill(broker.pid, signal.SIGTERM)
        until("the end of the broker", lambda: not is_of(broker.pid, broker), STOPPED_WITHIN_S, 0.1)


def is_of(pid: int, broker: Broker) -> bool:
    """Whether that process is the broker; one that has ended has no words any more."""
    return any(str(broker.folder).encode() in word for word in words_of(pid, "cmdline"))
