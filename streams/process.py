"""`pacehound streams`: a worker of the streams, until it is told to stop, or cannot go on."""

from __future__ import annotations

import asyncio
import logging

from pacehound.bus.kafka_topics import ensure_topics
from pacehound.engine.process import Process, started, when_available
from pacehound.settings import Settings

logger = logging.getLogger("pacehound.streams")

_LOOK_EVERY_S = 0.2


def run(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; the exit status.

    Returns
    -------
    int
        0 when it was told to stop; 1 when it has failed. Then it is meant to be started again: it goes on where its
        last snapshot ends.

    """
    with started("streams", settings) as process:
        if not when_available(process, lambda: ensure_topics(settings.kafka, timeout_s=10.0)):
            return 0
        return asyncio.run(_run(settings, process))


async def _run(settings: Settings, process: Process) -> int:
    from streams.app import make_app

    app = make_app(settings, process.telemetry, process.pulse)
    try:
        await app.start()
    except Exception as error:
        logger.error("the worker does not start: %s", error)
        return 1
    ended = asyncio.create_task(app.wait_until_stopped())
    while not process.stopping.is_set() and not ended.done():
        await asyncio.wait({ended}, timeout=_LOOK_EVERY_S)
    is_failure = not process.stopping.is_set()
    if is_failure:
        logger.error("the worker has failed: %r", app.crash_reason)
    await app.stop()
    ended.cancel()
    return 1 if is_failure else 0
