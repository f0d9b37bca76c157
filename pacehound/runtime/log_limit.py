"""One log line per kind and interval, with how many were held back: no fault, however often it comes, fills a disk."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from pacehound.clock import Clock

INTERVAL_S = 10.0
"""Between two lines of a kind: often enough for who watches the log, 1 MB a day for a kind that never ends."""

MAX_KINDS = 1_000
"""Libraries put numbers into what they say: further kinds of an interval count as one."""

_KIND_CHARS = 80

_Kind = tuple[str, int, str, str]  # logger, level, begin of the words, exception


@dataclass(slots=True)
class _Said:
    at_s: float
    held_back: int = 0


class LogLimit(logging.Filter):
    """Lets the first line of a kind pass; the others of that interval are counted, and the count is told afterwards.

    A kind is who says it, how bad it is, the words without what is put into them, and the exception.

    Examples
    --------
    >>> from pacehound.clock import ManualClock
    >>> clock = ManualClock()
    >>> limit = LogLimit(clock)
    >>> def said(number):
    ...     record = logging.LogRecord("pacehound", logging.WARNING, "", 0, "try %d failed", (number,), None)
    ...     return record.getMessage() if limit.filter(record) else None
    >>> said(1), said(2), said(3)
    ('try 1 failed', None, None)
    >>> clock.advance_s(INTERVAL_S)
    >>> said(4)
    "try 4 failed [held back: 2 of 'try %d failed']"

    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[_Kind, _Said] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written; it also tells what was held back of intervals that are over."""
        kind = _kind_of(record)
        now_s = self._clock.monotonic_s()
        with self._lock:
            if len(self._said) >= MAX_KINDS and kind not in self._said:
                kind = ("", 0, "other lines", "")
            said = self._said.get(kind)
            if said is not None and now_s - said.at_s < INTERVAL_S:
                said.held_back += 1
                return False
            told = self._forget(before_s=now_s - INTERVAL_S)
            self._said[kind] = _Said(now_s)
        if told:
            record.msg, record.args = f"{record.getMessage()} {told}", ()
        return True

    def rest(self) -> str:
        """What was held back and is not told yet."""
        with self._lock:
            return self._forget(before_s=float("inf"))

    def _forget(self, before_s: float) -> str:
        over = {kind: said for kind, said in self._said.items() if said.at_s <= before_s}
        for kind in over:
            del self._said[kind]
        counts = [f"{said.held_back} of {kind[2]!r}" for kind, said in over.items() if said.held_back]
        return f"[held back: {', '.join(counts)}]" if counts else ""


def _kind_of(record: logging.LogRecord) -> _Kind:
    words = str(record.msg).partition("\n")[0][:_KIND_CHARS]
    error = record.exc_info[0] if record.exc_info else None
    return record.name, record.levelno, words, error.__name__ if error else ""
