"""What agents ask for their commands: held until there is one, for as long as they say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
from aiohttp import web

from pacehound.bus.otlp_headers import AFTER_HEADER
from pacehound.model.json_documents import UNREADABLE_JSON
from pacehound.runtime.head.exports import PROTOBUF

_LONGEST_WAIT_S = 10.0
"""For commands: less than what proxies let a connection be silent for."""


class CommandQuestion(msgspec.Struct, kw_only=True, frozen=True):
    """What an agent asks: commands for its job that came after a number."""

    job: str
    after: int = 0
    wait_s: float = 0.0
    """So long the answer may take, where there is none yet."""


class HeldQuestions:
    """The questions that wait.

    Parameters
    ----------
    commands
        What waits for the agents of a job, and the number to ask for next.
    when_told
        Has something called with each command that comes, by any thread.

    """

    def __init__(
        self, commands: Callable[[str, int], tuple[bytes, int]], when_told: Callable[[Callable[[], object]], object]
    ) -> None:
        self._commands = commands
        self._when_told = when_told
        self._waiting: set[asyncio.Event] = set()
        self._is_ending = False

    async def begin(self, app: web.Application) -> None:
        """Hear of commands from now on."""
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._wake)

        self._when_told(tell)

    async def end(self, app: web.Application) -> None:
        """Answer all of them, and hold no more."""
        self._is_ending = True
        self._wake()

    async def answer(self, request: web.Request) -> web.Response:
        """To one agent."""
        try:
            asked = msgspec.json.decode(await request.read(), type=CommandQuestion)
        except UNREADABLE_JSON as error:
            raise web.HTTPBadRequest(text=f'send {{"job": "NAME", "after": 0}}: {error}\n') from error
        news = asyncio.Event()
        self._waiting.add(news)
        try:
            body, number = self._commands(asked.job, asked.after)
            async with asyncio.timeout(min(max(asked.wait_s, 0.0), _LONGEST_WAIT_S)):
                while not (body or self._is_ending):
                    await news.wait()
                    news.clear()
                    body, number = self._commands(asked.job, asked.after)
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(news)
        return web.Response(body=body, content_type=PROTOBUF, headers={AFTER_HEADER: str(number)})

    def _wake(self) -> None:
        for news in self._waiting:
            news.set()
