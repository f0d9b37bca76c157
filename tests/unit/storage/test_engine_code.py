"""When a process gives back the engine's code that it does not need."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from pacehound.clock import ManualClock
from storage import engine_code
from storage.engine_code import UnneededCode


def given_back_s(monkeypatch: pytest.MonkeyPatch, seconds: int, writes_s: Collection[int]) -> list[float]:
    """When, of so many seconds in each of which a worker looks, and in some of them writes; itself it stays."""
    clock, times_s = ManualClock(), list[float]()
    monkeypatch.setattr(engine_code, "give_back_code", lambda: times_s.append(clock.monotonic_s()))
    unneeded = UnneededCode(clock)
    for second in range(1, seconds + 1):
        clock.advance_s(1.0)
        if second in writes_s:
            unneeded.is_used()
        unneeded.give_back_when_due()
    return times_s


@pytest.mark.parametrize("first_s", [12, 40, 65, 69])
def test_it_is_given_back_behind_what_is_written_each_minute(monkeypatch: pytest.MonkeyPatch, first_s: int) -> None:
    times_s = given_back_s(monkeypatch, 200, {first_s, first_s + 60, first_s + 120})
    assert times_s == [10, first_s + 10, first_s + 70, first_s + 130]


def test_it_is_given_back_once_where_nobody_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given_back_s(monkeypatch, 200, ()) == [10]


def test_who_writes_all_the_time_gives_it_back_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given_back_s(monkeypatch, 230, range(230)) == [10, 80, 150, 220]
