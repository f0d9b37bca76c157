"""Commands on their way to agents, and what they have answered, for whoever gave them: both for a minute."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pacehound.model.events import Command, CommandResult
from pacehound.model.orders import LONGEST_LIFE_NS

MOST_KEPT = 20_000
"""Of each: what a thousand hosts answer to twenty orders."""

MOST_AT_ONCE = 256
"""In one answer to an agent."""


@dataclass(frozen=True, slots=True)
class _Kept:
    number: int
    until_ns: int
    event: Command | CommandResult


class Mailbox:
    """Both ways; any thread.

    >>> box = Mailbox(first=0)
    >>> box.put(Command(job="j", attempt=0, time_ns=5, order=b"", key="", signature=b""), now_ns=5)
    >>> [len(found) for found in (box.commands("j", 0, 6)[0], box.commands("j", 1, 6)[0], box.commands("k", 0, 6)[0])]
    [1, 0, 0]

    Parameters
    ----------
    first
        Numbers go on from here: larger than those of a head before, for its agents ask for what came after those.

    """

    def __init__(self, first: int) -> None:
        self._lock = threading.Lock()
        self._number = first
        self._commands: deque[_Kept] = deque(maxlen=MOST_KEPT)
        self._results: deque[_Kept] = deque(maxlen=MOST_KEPT)
        self._when_told: tuple[Callable[[], object], ...] = ()
        self._when_asked: tuple[Callable[[], object], ...] = ()

    def put(self, event: Command | CommandResult, now_ns: int) -> None:
        """Keep one."""
        with self._lock:
            self._number += 1
            kept = _Kept(self._number, now_ns + LONGEST_LIFE_NS, event)
            (self._commands if isinstance(event, Command) else self._results).append(kept)
        for call in self._who_waits_for(event):
            call()

    def _who_waits_for(self, event: Command | CommandResult) -> tuple[Callable[[], object], ...]:
        if isinstance(event, Command):
            return self._when_told
        return self._when_asked if event.asked else ()

    def when_told(self, call: Callable[[], object]) -> None:
        """Have this called with each command that comes, by whichever thread brings it."""
        self._when_told = (*self._when_told, call)

    def when_asked(self, call: Callable[[], object]) -> None:
        """The same with each question."""
        self._when_asked = (*self._when_asked, call)

    def commands(self, job: str, after: int, now_ns: int) -> tuple[list[Command], int]:
        """Those for a job that came after a number, and the number to ask for next."""
        with self._lock:
            found = [(one.number, one.event) for one in _live(self._commands, after, now_ns) if one.event.job == job]
            number = self._number
        found = found[:MOST_AT_ONCE]
        if len(found) == MOST_AT_ONCE:
            number = found[-1][0]
        return [event for _, event in found if isinstance(event, Command)], number

    def results(self, job: str, after: int, now_ns: int) -> tuple[list[CommandResult], int]:
        """What was answered about a job after a number, and the number to ask for next."""
        with self._lock:
            found = [one.event for one in _live(self._results, after, now_ns) if one.event.job == job]
            return [event for event in found if isinstance(event, CommandResult)], self._number

    def questions(self, after: int, now_ns: int) -> tuple[list[CommandResult], int]:
        """What ranks of any job have asked after a number, and the number to ask for next."""
        with self._lock:
            found = [one.event for one in _live(self._results, after, now_ns)]
            return [event for event in found if isinstance(event, CommandResult) and event.asked], self._number


def _live(kept: deque[_Kept], after: int, now_ns: int) -> Iterator[_Kept]:
    while kept and kept[0].until_ns <= now_ns:
        kept.popleft()
    return (one for one in kept if one.number > after)
