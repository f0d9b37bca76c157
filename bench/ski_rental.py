"""What going by the past saves when it is true, on durations like Falcon's, and what it costs when it misleads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from actuators.mitigation.actions import HELPS
from actuators.mitigation.ski_rental import optimum_s, paid_s, stated_bound, switches
from actuators.mitigation.survival import Floats, Past, kaplan_meier
from pacehound.model.events import Cause

SEEDS = (0, *range(101, 111))
"""One that is fixed, and ten others."""
N_PAST, N_FRESH = 300, 2000
RATES = (0.12, 0.26, 0.5)
"""Of the time the share that is lost: iterations 1.14, 1.35 (Falcon 3.4) and 2 times as long."""
ADVERSARIAL_S = np.geomspace(1e-2, 1e7, 4000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Durations with the published mean; their spread, the standard deviation of the logarithm, is not published."""

    name: str
    cause: Cause
    mean_s: float
    spread: float

    def draw(self, seed: int, n: int) -> Floats:
        """Some of them."""
        return np.random.default_rng(seed).lognormal(math.log(self.mean_s) - self.spread**2 / 2, self.spread, n)


CASES = (
    Durations(name="computation, 10 min (Falcon 3.2)", cause="S1", mean_s=600, spread=1.0),
    Durations(name="network, 24 min (3.3)", cause="S2", mean_s=1440, spread=1.2),
    Durations(name="network, 24 min, of one host", cause="S2", mean_s=1440, spread=0.5),
    Durations(name="network at scale, 72 min (3.4)", cause="S2", mean_s=4320, spread=1.2),
    Durations(name="network at scale, 72 min, of one host", cause="S2", mean_s=4320, spread=0.5),
)


def run() -> list[dict[str, Any]]:
    """One row per case and figure."""
    return [row for case in CASES for row in _of_case(case)]


def _of_case(case: Durations) -> Iterator[dict[str, Any]]:
    actions = HELPS[case.cause]
    prices = [action.price_s for action in actions]
    at_prices, by_past, least = np.zeros(len(SEEDS)), np.zeros(len(SEEDS)), np.zeros(len(SEEDS))
    worst = {"at the prices": 1.0, "by the past": 1.0}
    unbounded = np.zeros(2)
    for rate in RATES:
        left = [rate]
        for action in actions:
            left.append(min(left[-1], rate * (1 - action.removes)))
        for i, seed in enumerate(SEEDS):
            curve = kaplan_meier(Past(duration_s=float(d)) for d in case.draw(seed, N_PAST))
            moved = switches(prices, left, curve).losses_s
            fresh = case.draw(seed + 5000, N_FRESH)
            at_prices[i] += sum(paid_s(float(d), prices, left, prices)[0] for d in fresh)
            by_past[i] += sum(paid_s(float(d), prices, left, moved)[0] for d in fresh)
            least[i] += sum(optimum_s(float(d), prices, left) for d in fresh)
            if i == 0:
                truth = kaplan_meier(Past(duration_s=float(d)) for d in fresh)
                best = switches(prices, left, truth, trust=0.005, n_moments=21).losses_s
                unbounded += [sum(paid_s(float(d), prices, left, at)[0] for d in fresh) for at in (prices, best)]
                for name, losses in (("at the prices", tuple(prices)), ("by the past", moved)):
                    found = max(
                        paid_s(d, prices, left, losses)[0] / optimum_s(d, prices, left)
                        for d in (*map(float, ADVERSARIAL_S), *_at_switches(prices, left, losses))
                    )
                    worst[name] = max(worst[name], found)
    saved = 100 * (1 - by_past / at_prices)
    figures = {
        "saved by the past, seed 0": (float(saved[0]), "%"),
        "saved by the past, ten others, mean": (float(saved[1:].mean()), "%"),
        "saved by the past, ten others, least": (float(saved[1:].min()), "%"),
        "most that moments save, unbounded, chosen afterwards": (100 * float(1 - unbounded[1] / unbounded[0]), "%"),
        "paid on average at the prices, of the optimum": (float(at_prices.sum() / least.sum()), "x"),
        "paid on average by the past, of the optimum": (float(by_past.sum() / least.sum()), "x"),
        "worst duration at the prices, of the optimum": (worst["at the prices"], "x"),
        "stated bound at the prices": (stated_bound(prices, 1.0), "x"),
        "worst duration by the past, of the optimum": (worst["by the past"], "x"),
        "stated bound by the past": (stated_bound(prices), "x"),
    }
    for figure, (value, unit) in figures.items():
        yield {"case": case.name, "figure": figure, "value": value, "unit": unit}


def _at_switches(prices: list[float], left: list[float], losses: tuple[float, ...]) -> Iterator[float]:
    """The durations at which an action has just been taken: nothing hurts more."""
    time_s = loss_s = 0.0
    for rate, at_s in zip(left, losses, strict=False):
        if rate > 0:
            time_s += (at_s - loss_s) / rate
            loss_s = at_s
            yield time_s * (1 + 1e-12)
