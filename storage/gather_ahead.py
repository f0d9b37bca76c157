"""The rows of the next blocks, gathered in a thread while the engine takes the rows of these."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from pacehound.clock import Clock
from storage.blocks import Block, Span
from storage.gather import Gathered, gather


class GatherAhead:
    """Gathers blocks before they are asked for; what is asked for and was not begun is gathered at once.

    A block of the same span has the same messages, so whoever begins one need not be who asks for it.

    Parameters
    ----------
    clock
        Stamps dead letters.

    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gather")
        self._begun: dict[Span, Future[Gathered]] = {}

    def begin(self, blocks: Iterable[Block]) -> None:
        """Gather `blocks` in the thread, in their order; what was begun before and is not among them is let go.

        A block that was begun may have grown by what was read since: nobody asks for the shorter one any more.
        """
        wanted = {block.span: block for block in blocks}
        for span in self._begun.keys() - wanted.keys():
            self._begun.pop(span).cancel()
        for span, block in wanted.items():
            if span not in self._begun:
                self._begun[span] = self._thread.submit(gather, block.messages, self._clock)

    def take(self, block: Block) -> Gathered:
        """What `block` holds; waits for the thread where it has begun it."""
        future = self._begun.pop(block.span, None)
        return future.result() if future is not None else gather(block.messages, self._clock)

    def forget(self) -> None:
        """Nobody will ask for what was begun; its memory is free once the thread is done with it."""
        self.begin([])

    def close(self) -> None:
        """End the thread."""
        self.forget()
        self._thread.shutdown()
