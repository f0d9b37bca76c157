"""What a store says of a recovery: how long nobody trained, and the pace before and after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage.client import Store
from storage.read import ask
from tests.fakes.events import START_NS
from tests.store.test_plan_command import step
from tests.store.test_store_contract import write

SECOND_NS = 1_000_000_000


def effect(store: Store, at_s: float) -> dict[str, Any]:
    wanted = {"job": "j", "attempt": "0", "at_ns": str(START_NS + round(at_s * SECOND_NS))}
    (row,) = ask(store, "recovery/effect", **wanted).to_pylist()
    found: dict[str, Any] = row
    return found


def test_the_pace_before_and_after_and_the_time_between(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s") as store:
        write(store, [step(0, n, float(n), 1.0) for n in range(40)])
        write(store, [step(0, 40, 47.0, 8.0)])  # it has waited, and warms up
        write(store, [step(0, 41 + n, 48.5 + 1.5 * n, 1.5) for n in range(10)])
        write(store, [step(1, n, 40.0 + n, 9.0) for n in range(9)])  # another attempt says nothing of this one
        found = effect(store, 39.5)
    assert found == {"n_before": 20, "n_after": 10, "before_s": 1.0, "after_s": 1.5, "down_s": pytest.approx(8.0)}


def test_before_anything_has_come_of_it_nothing_is_said(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s") as store:
        write(store, [step(0, n, float(n), 1.0) for n in range(5)])
        found = effect(store, 9.0)
    assert (found["n_before"], found["n_after"], found["before_s"], found["after_s"]) == (5, 0, 1.0, 0.0)
    assert found["down_s"] == 0.0


def test_a_store_that_knows_no_such_job_says_so(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s") as store:
        assert effect(store, 0.0)["n_before"] == 0
