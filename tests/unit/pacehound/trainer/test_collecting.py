"""Garbage is collected at steps that ranks have in common, and as before once that is taken back or given up."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pacehound.trainer import Control, own
from pacehound.trainer.collecting import Collecting
from pacehound.trainer.order import COLLECT, Order, refusal


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.enable()


def test_it_collects_at_multiples_whenever_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    at: list[int] = []
    now = [0]
    monkeypatch.setattr("gc.collect", lambda: at.append(now[0]))
    for begun in (3, 8):
        collecting = Collecting()
        collecting.set(10, begun)
        for now[0] in range(begun, 35):
            collecting.at_step(now[0])
        assert not gc.isenabled()
        collecting.set(0, 35)
        assert gc.isenabled()
    assert at == [10, 20, 30, 10, 20, 30]
    assert collecting.due == Collecting.NEVER


def test_a_script_that_had_switched_its_collector_off_keeps_it_off() -> None:
    gc.disable()
    collecting = Collecting()
    collecting.set(10, 0)
    collecting.set(0, 1)
    assert not gc.isenabled()


def test_whoever_stops_taking_orders_collects_as_before() -> None:
    control = Control("")
    control._collecting.set(10, 0)
    control.close()
    assert gc.isenabled()


@pytest.mark.parametrize("payload", [None, {}, {"every": -1}, {"every": "3"}])
def test_an_interval_that_is_none_is_refused_and_no_script_need_name_the_kind(payload: object) -> None:
    assert "is no number of steps" in refusal(Order(COLLECT, payload, "", -1, 1), (), None)
    assert refusal(Order(COLLECT, {"every": 5}, "", -1, 1), (), None) == ""


def test_a_script_that_connects_is_the_only_one_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_control", None)
    monkeypatch.setattr(own, "_is_left", False)
    made: list[Control] = []

    def connect() -> Control:
        made.append(Control(""))
        return made[-1]

    for step in range(3):
        own.at_step(step, connect)
    assert len(made) == 1
    own.leave()
    own.at_step(4, connect)
    assert (len(made), own._control) == (1, None)
