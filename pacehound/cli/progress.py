"""A line on stderr for what takes longer than a person waits without asking: what is done, how far, how long still."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from types import TracebackType
from typing import TextIO, TypeVar

from rich.progress import Progress as Line
from rich.progress import ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from pacehound.model.plain import plain
from pacehound.pages.incidents import seconds_words
from pacehound.pages.terminal import PlainConsole

Item = TypeVar("Item")

SHOWN_AFTER_S = 2.0
"""Nobody looks for a sign of life before, and what is over by then has not flickered."""


class _Far(ProgressColumn):
    """How far it is and how long it will take still, or for how long it has gone on."""

    def render(self, task: Task) -> Text:
        return Text(far_words(task.percentage if task.total else None, task.time_remaining, task.elapsed), "dim")


def far_words(percentage: float | None, left_s: float | None, elapsed_s: float | None) -> str:
    """Behind what is being done.

    >>> far_words(41.7, 95.0, 68.0), far_words(None, None, 12.0), far_words(2.0, None, 1.0)
    ('42 %, about 95 s left', 'for 12 s', '2 %')
    """
    if percentage is None:
        return "" if elapsed_s is None else f"for {seconds_words(elapsed_s)}"
    left = "" if left_s is None else f", about {seconds_words(left_s)} left"
    return f"{percentage:.0f} %{left}"


class Progress:
    """What a command does just now; shown on a terminal, after two seconds, and erased at the end.

    >>> with Progress() as progress:
    ...     sum(progress.over([1, 2, 3], "adding"))
    6
    """

    def __init__(self, file: TextIO | None = None) -> None:
        file = file or sys.stderr
        console = PlainConsole(file)
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), _Far())
        self._line = Line(*columns, console=console, transient=True)
        self._task = self._line.add_task("", total=None)
        self._lock = threading.Lock()
        self._has_ended = False
        self._timer = threading.Timer(SHOWN_AFTER_S, self._show) if file.isatty() else None

    def __enter__(self) -> Progress:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            self._has_ended = True
            if self._timer is not None:
                self._timer.cancel()
                self._line.stop()

    def _show(self) -> None:
        with self._lock:
            if not self._has_ended:
                self._line.start()

    def stage(self, what: str, total: float | None = None) -> None:
        """From now on it is this that is done, of which there is so much."""
        self._line.reset(self._task, total=total, description=plain(what))

    def advance(self, amount: float = 1.0) -> None:
        """So much more of it is done."""
        self._line.advance(self._task, amount)

    def over(
        self,
        items: Iterable[Item],
        what: str,
        total: float | None = None,
        size: Callable[[Item], float] = lambda item: 1.0,
    ) -> Iterator[Item]:
        """The items, one after the other; each counts when the next one is asked for."""
        if total is None and isinstance(items, Sized):
            total = float(len(items))
        self.stage(what, total)
        for item in items:
            yield item
            self.advance(size(item))
