"""A job's prices are its own on Kafka and in a head, and a store is asked for them now and then."""

from __future__ import annotations

from typing import Any

import pytest

from actuators.job_prices import JobPrices
from actuators.mitigation.prices import Measured
from actuators.thresholds import PRICES_KEPT_S
from pacehound.clock import ManualClock
from pacehound.errors import Unavailable

ROW = {"checkpoint_s": 4.0, "checkpoint_ns": None, "heard_ns": 5, "hold_s": None, "restart_s": 30.0}


class Store:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.row: dict[str, Any] = dict(ROW)
        self.is_away = False

    def __call__(self, name: str, parameters: dict[str, str]) -> list[dict[str, Any]]:
        assert name == "plan/measured"
        self.asked.append(parameters["job"])
        if self.is_away:
            raise Unavailable("no store")
        return [self.row]


def test_it_is_asked_once_in_a_while_and_for_each_job() -> None:
    store, clock = Store(), ManualClock(10**18)
    prices = JobPrices(store, clock)
    for _ in range(50):
        assert prices("a") == Measured(checkpoint_s=4.0, restart_s=30.0)
        clock.advance_s(PRICES_KEPT_S / 100)
    prices("b")
    assert store.asked == ["a", "b"]
    store.row["restart_s"] = 60.0
    clock.advance_s(PRICES_KEPT_S)
    assert prices("a").restart_s == 60.0
    assert store.asked == ["a", "b", "a"]


def test_while_it_is_away_what_it_has_said_last_holds_and_it_is_not_pestered() -> None:
    store, clock = Store(), ManualClock(10**18)
    prices = JobPrices(store, clock)
    prices("a")
    store.is_away = True
    clock.advance_s(PRICES_KEPT_S)
    for _ in range(5):
        assert prices("a").restart_s == 30.0
        assert prices("new") == Measured()
    assert store.asked == ["a", "a", "new"]
    store.is_away = False
    clock.advance_s(PRICES_KEPT_S)
    assert prices("new").restart_s == 30.0


def test_without_a_store_prices_are_the_literatures() -> None:
    assert JobPrices(None, ManualClock(1))("a") == Measured()


def test_jobs_that_have_gone_do_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actuators.job_prices.MOST_JOBS", 3)
    store = Store()
    prices = JobPrices(store, ManualClock(1))
    for job in ("a", "b", "c", "a", "d", "a", "b"):
        prices(job)
    assert store.asked == ["a", "b", "c", "d", "b"]
