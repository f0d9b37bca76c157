"""A fault that comes a thousand times a second costs a line per interval, and its count is told."""

from __future__ import annotations

import logging

from pacehound.clock import ManualClock
from pacehound.runtime.log_limit import INTERVAL_S, MAX_KINDS, LogLimit


def passed(limit: LogLimit, words: str, *args: object, error: type[Exception] | None = None) -> str | None:
    info = (error, error(), None) if error else None
    record = logging.LogRecord("asyncio", logging.ERROR, "", 0, words, args, info)
    return record.getMessage() if limit.filter(record) else None


def test_ten_thousand_lines_of_a_kind_are_one_and_a_count() -> None:
    clock = ManualClock()
    limit = LogLimit(clock)
    lines = [passed(limit, "accept failed %d", n, error=OSError) for n in range(10_000)]
    assert [line for line in lines if line is not None] == ["accept failed 0"]
    clock.advance_s(INTERVAL_S)
    assert passed(limit, "something else") == "something else [held back: 9999 of 'accept failed %d']"
    assert passed(limit, "accept failed %d", 7, error=OSError) == "accept failed 7"
    assert limit.rest() == ""


def test_other_words_and_another_exception_are_lines_of_their_own() -> None:
    limit = LogLimit(ManualClock())
    assert passed(limit, "a") is not None
    assert passed(limit, "b") is not None
    assert passed(limit, "a", error=OSError) is not None
    assert passed(limit, "a", error=ValueError) is not None
    assert passed(limit, "a", error=ValueError) is None
    assert limit.rest() == "[held back: 1 of 'a']"


def test_kinds_without_end_take_neither_memory_nor_lines_without_end() -> None:
    limit = LogLimit(ManualClock())
    lines = [passed(limit, f"task {n} failed") for n in range(10 * MAX_KINDS)]
    assert sum(line is not None for line in lines) == MAX_KINDS + 1
    assert limit.rest() == f"[held back: {9 * MAX_KINDS - 1} of 'other lines']"
