"""What takes a message is begun at once; where it waits, it is raced as Faust does, from there on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from mode.services import WaitResults

from streams.kafka.hand_over import PromptService


class Waiting(PromptService):
    """As Faust's consumer, with nothing of Kafka."""


def run(what: Callable[[Waiting], Coroutine[Any, Any, Any]]) -> Any:
    async def of_service() -> Any:
        return await what(Waiting())

    return asyncio.run(of_service())


async def taken() -> str:
    return "taken"


def test_what_waits_for_nothing_is_over_before_anything_else_is_begun() -> None:
    begun = []

    async def other() -> None:
        begun.append("other")

    async def raced(service: Waiting) -> tuple[WaitResults, int]:
        found = await service.wait_first(taken(), other())
        return found, len(asyncio.all_tasks())

    found, n_tasks = run(raced)
    assert (found.results, found.stopped, begun, n_tasks) == (["taken"], False, [], 1)


def test_whoever_a_message_is_handed_to_has_a_turn_behind_each() -> None:
    async def raced(service: Waiting) -> int:
        queue: asyncio.Queue[int] = asyncio.Queue()
        longest = 0

        async def takes() -> None:
            while True:
                await queue.get()
                await asyncio.sleep(0)  # as Faust's streams do behind each message

        taker = asyncio.create_task(takes())
        for number in range(100):
            await service.wait_first(queue.put(number), asyncio.Event().wait())
            longest = max(longest, queue.qsize())
        taker.cancel()
        return longest

    assert run(raced) <= 2


def test_what_waits_goes_on_where_it_waits() -> None:
    async def raced(service: Waiting) -> tuple[list[Any], list[str]]:
        room, steps = asyncio.Event(), []

        async def waits() -> str:
            steps.append("begun")
            await room.wait()
            steps.append("there is room")
            await asyncio.sleep(0)
            return "taken"

        asyncio.get_running_loop().call_soon(room.set)
        found = await service.wait_first(waits(), asyncio.Event().wait())
        return found.results, steps

    assert run(raced) == (["taken"], ["begun", "there is room"])


def test_what_waits_is_cancelled_when_another_is_over_first() -> None:
    async def raced(service: Waiting) -> tuple[list[Any], list[str]]:
        ended: list[str] = []

        async def waits_for_ever() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        found = await service.wait_first(waits_for_ever(), taken())
        await asyncio.sleep(0)
        return found.results, ended

    assert run(raced) == (["taken"], ["cancelled"])


@pytest.mark.parametrize("waits", [False, True])
def test_what_goes_wrong_is_heard_of(*, waits: bool) -> None:
    async def fails() -> None:
        if waits:
            await asyncio.sleep(0)
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        run(lambda service: service.wait_first(fails(), asyncio.Event().wait()))


def test_a_service_that_has_stopped_is_stopped() -> None:
    async def raced(service: Waiting) -> WaitResults:
        service._stopped.set()
        return await service.wait_first(taken(), asyncio.Event().wait())

    assert run(raced) == WaitResults([], [], True)
