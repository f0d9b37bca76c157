"""`pacehound streams`: a worker of the streams, until it is told to stop, or cannot go on."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pacehound.bus.kafka_topics import ensure_topics
from pacehound.runtime.process import Process, started, when_available
from pacehound.settings import Settings
from streams import native_loops
from streams.kafka.kept_memory import keep_freed_memory

logger = logging.getLogger("pacehound.streams")

_LOOK_EVERY_S = 0.2

NEW_OBJECTS, NEW_ROUNDS = 10_000, 10
CYCLES_EVERY_S = 600.0
"""Python looks for cycles among new objects when so many have come, and among all of them this often (chosen: a look at
all of a job of 16,384 ranks takes two seconds, and by Python's own measure it is due with every few iterations: half of
the time in which the states of such a job came to be)."""
_NEVER = 2**31 - 1


def _topics_are_there(settings: Settings) -> None:
    ensure_topics(settings.kafka, timeout_s=10.0)


def _application(settings: Settings, process: Process) -> Any:
    from streams.kafka.app import make_app

    return make_app(settings, process.telemetry, process.liveness)


def run(
    settings: Settings,
    *,
    await_topics: Callable[[Settings], None] = _topics_are_there,
    make: Callable[[Settings, Process], Any] = _application,
) -> int:
    """Run until SIGTERM or SIGINT; the exit status.

    Parameters
    ----------
    settings
        Where Kafka is, and what the operators shall do.
    await_topics
        Raises `Unavailable` as long as Kafka does not answer.
    make
        The application.

    Returns
    -------
    int
        0 when it was told to stop; 1 when it has failed. Then it is meant to be started again: it goes on where its
        last snapshot ends.

    """
    keep_freed_memory()
    with started("streams", settings) as process, _cycles_sought_seldom():
        native_loops.loaded()  # where they cannot be built, it does not join its group
        if not when_available(process, lambda: await_topics(settings)):
            return 0
        return asyncio.run(_run(settings, process, make))


@contextmanager
def _cycles_sought_seldom() -> Iterator[None]:
    usual = gc.get_threshold()
    gc.set_threshold(NEW_OBJECTS, NEW_ROUNDS, _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


async def _run(settings: Settings, process: Process, make: Callable[[Settings, Process], Any]) -> int:
    app = make(settings, process)
    try:
        await app.start()
    except Exception as error:
        logger.error("the worker does not start: %s", error)
        return 1
    ended = asyncio.create_task(app.wait_until_stopped())
    looked_s = time.monotonic()
    while not process.stopping.is_set() and not ended.done():
        await asyncio.wait({ended}, timeout=_LOOK_EVERY_S)
        if time.monotonic() - looked_s > CYCLES_EVERY_S:
            gc.collect()
            looked_s = time.monotonic()
    is_failure = not process.stopping.is_set()
    if is_failure:
        logger.error("the worker has failed: %r", app.crash_reason)
    await app.stop()
    ended.cancel()
    return 1 if is_failure else 0
