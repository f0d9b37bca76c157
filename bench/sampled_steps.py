"""What recording the operations of steps for what-if costs a script, in CPU time: `python -m bench sampled_steps`.

One process, no group, a model so small that a step is mostly ours: three copies of it take turns, without the recorder,
with one that does not record the step, and with one that does. A pipeline's passes and transfers cost what a pass does.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from pacehound.instrument.recorder import Recorder
from pacehound.instrument.torch_ops import StepOperations
from pacehound.settings import OpsSettings

STEPS, TURNS, MICRO_BATCHES = 40, 60, 8


def measure() -> dict[str, float]:
    """Microseconds of CPU per step without, between and in recorded steps; the median of the turns."""
    turns = {name: _script(name) for name in ("without", "between", "recorded")}
    for turn in turns.values():
        turn()
    took: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(TURNS):
        for name, turn in turns.items():
            took[name].append(turn())
    return {name: statistics.median(times) for name, times in took.items()}


def _script(name: str) -> Callable[[], float]:
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    backward: Any = torch.autograd.backward
    operations = None
    if name != "without":
        folder = tempfile.mkdtemp(prefix="pacehound-steps-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        recorder = Recorder(folder, {"RANK": "0", "WORLD_SIZE": "1"})
        recorder.start()
        operations = StepOperations(recorder, 1 if name == "recorded" else 1 << 30)
        autograd = SimpleNamespace(backward=backward)
        operations.autograd(autograd)
        backward = autograd.backward

    def turn() -> float:
        begun_ns = time.thread_time_ns()
        for _ in range(STEPS):
            if operations is not None:
                operations._before_optimizer(optimizer, (), {})
            for _ in range(MICRO_BATCHES):
                backward(model(torch.ones(1, 4)).sum())
            optimizer.step()
            if operations is not None:
                operations._after_optimizer(optimizer, (), {})
        return (time.thread_time_ns() - begun_ns) / STEPS / 1e3

    return turn


def run() -> list[dict[str, Any]]:
    """What a recorded step and any other one cost more than without the recorder."""
    found = measure()
    operations = 2 * MICRO_BATCHES + 1
    recorded_us = found["recorded"] - found["without"]
    between_us = max(found["between"] - found["without"], 0.0)
    average_us = between_us + recorded_us / OpsSettings().every_steps
    case = f"{operations} operations"
    return [
        {"case": case, "figure": "recorded step, CPU", "value": recorded_us, "unit": "us"},
        {"case": case, "figure": "its operation, CPU", "value": recorded_us / operations, "unit": "us"},
        {"case": case, "figure": "any other step, CPU", "value": between_us, "unit": "us"},
        {
            "case": case,
            "figure": "average, by default",
            "value": average_us,
            "unit": "us",
        },
    ]
