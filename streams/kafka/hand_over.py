"""How Faust hands messages to its agents: at once, where nobody has to be waited for.

Faust races what takes a message against the end of its consumer: four tasks a message, three of which are cancelled.
Nearly always there is room for a message, so that it is taken before anything else could happen; only where it is not,
the race is run, from there on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any

from faust.transport.drivers import aiokafka as driver
from mode.services import Service, WaitResults


class PromptService(Service):
    """A service that begins what it races where it is asked to."""

    async def wait_first(self, *waiting: Any, timeout: Any = None) -> WaitResults:
        """The first of these that is over; the first one named is begun here, and mostly it is over then.

        Whoever it was handed to has a turn behind it: what nobody takes would fill its buffer, and Faust asks for
        nothing more of a partition whose buffer is full, for up to a second.
        """
        first, *others = waiting
        if not isinstance(first, Coroutine):
            return await super().wait_first(*waiting, timeout=timeout)
        try:
            waits_for = first.send(None)
        except BaseException as over:
            for other in others:
                if isinstance(other, Coroutine):
                    other.close()
            if not isinstance(over, StopIteration):
                raise
            await asyncio.sleep(0)
            is_stopped = self._stopped.is_set() or self._crashed.is_set()
            return WaitResults([], [], True) if is_stopped else WaitResults([first], [over.value], False)
        return await super().wait_first(_goes_on(first, waits_for), *others, timeout=timeout)


class PromptConsumer(PromptService, driver.Consumer):
    """A consumer of Faust's that hands on what can be handed on."""


def hand_over_at_once() -> None:
    """Let every consumer that Faust makes in this process be such a one."""
    driver.Transport.Consumer = PromptConsumer


async def _goes_on(begun: Coroutine[Any, Any, Any], waits_for: Any) -> Any:
    return await _Begun(begun, waits_for)


class _Begun:
    """A coroutine that was begun outside of its task, and waits for something there."""

    def __init__(self, begun: Coroutine[Any, Any, Any], waits_for: Any) -> None:
        self._begun, self._waits_for = begun, waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        while True:
            try:
                sent = yield waits_for
            except BaseException as error:
                go_on = partial(self._begun.throw, error)
            else:
                go_on = partial(self._begun.send, sent)
            try:
                waits_for = go_on()
            except StopIteration as over:
                return over.value
