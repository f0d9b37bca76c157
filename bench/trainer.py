"""What `control.at_step` costs the training loop: nobody listens, an agent listens, and an order is open.

Each figure is of a loop without anything else, the loop itself included; beside a real step caches are cold, and it is
more. The median of several loops is told.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from collector.agent.trainer_listener import TrainerListener
from collector.agent.trainers import Trainers
from pacehound.model.orders import Offer
from pacehound.trainer import Control

STEPS = 50_000
LOOPS = 9


def run() -> list[dict[str, Any]]:
    """One row per case: microseconds of a step."""
    hello = {"rank": 0, "world_size": 1, "attempt": 0}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        alone = Control("", ["collect"], hello=hello)
        rows = [_row("nobody listens", alone.at_step)]
        trainers = Trainers(TrainerListener(Path(folder)))
        control = Control(folder, ["collect"], hello=hello)
        _look(trainers)
        rows.append(_row("an agent listens", control.at_step))
        agreeing = Control("", ["collect"], agree=lambda values: values, agree_every=10, hello=hello)
        rows.append(_row("ranks agree every 10 steps, without their all-reduce", agreeing.at_step))
        trainers.offer(Offer(ticket=1, kind="collect"), "a benchmark", 0, [], 0)
        rows.append(_row("an order is open", control.at_step))
        trainers.close()
    return rows


def _row(case: str, at_step: Callable[[int], object]) -> dict[str, Any]:
    spent_us = statistics.median(_loop_us(at_step, loop) for loop in range(LOOPS))
    return {"case": case, "figure": "at_step", "value": spent_us, "unit": "us"}


def _loop_us(at_step: Callable[[int], object], loop: int) -> float:
    began_ns = time.perf_counter_ns()
    for step in range(loop * STEPS, (loop + 1) * STEPS):
        at_step(step)
    return (time.perf_counter_ns() - began_ns) / STEPS / 1e3


def _look(trainers: Trainers) -> None:
    for _ in range(3):
        trainers.look([])
