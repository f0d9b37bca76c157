"""Says when there is something new: one look at the store for all who listen, none while nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

MOST_LISTENERS = 100
"""Each holds a connection. A page that is told no asks again by itself."""
LOOK_EVERY_S = 1.0
"""The writer stores about once a second."""


class News:
    """Fans out one version to many listeners.

    Parameters
    ----------
    version
        What the store holds, as one comparable word.
    every_s
        How often it is asked while somebody listens.

    """

    def __init__(self, version: Callable[[], Awaitable[str]], every_s: float = LOOK_EVERY_S) -> None:
        self._version = version
        self._every_s = every_s
        self._listeners: set[asyncio.Queue[str]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._last = ""

    @property
    def is_full(self) -> bool:
        """No more listeners are taken."""
        return len(self._listeners) >= MOST_LISTENERS

    def listen(self) -> asyncio.Queue[str]:
        """A queue of versions; only the last one waits in it."""
        queue: asyncio.Queue[str] = asyncio.Queue(1)
        if self._last:
            queue.put_nowait(self._last)
        self._listeners.add(queue)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        return queue

    async def leave(self, queue: asyncio.Queue[str]) -> None:
        """That listener has gone; with the last one the looking ends."""
        self._listeners.discard(queue)
        if not self._listeners and self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking
            self._looking, self._last = None, ""

    async def _look(self) -> None:
        while True:
            # A store that is busy or away is no news.
            version = await self._version()
            if version and version != self._last:
                self._last = version
                for queue in self._listeners:
                    with suppress(asyncio.QueueEmpty):
                        queue.get_nowait()
                    queue.put_nowait(version)
            await asyncio.sleep(self._every_s)
