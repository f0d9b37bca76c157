"""The estimate of a step against what it took: eight shapes of a real job over gloo (examples/train_hybrid.py).

A layer sleeps for 40 ms forward and 80 ms backward in place of a device, so that a machine of few cores can stand for
eight nodes; what it took in that job goes into the estimate, and so does the time of the smallest all-reduce. What is
held against the clock is thus what the estimator adds: the order of the pipeline, hops, bubbles and the exchange. Jobs
that lose a node are measured before and after.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parents[1] / "examples/train_hybrid.py"
MEMORY = "DP 2 x PP 3, activations of 64 samples"
SHAPES = (
    ("DP 1 x PP 2", "--dp=1 --pp=2 --batch=6"),
    ("DP 1 x PP 4", "--dp=1 --pp=4 --batch=6"),
    ("DP 3 x PP 1, 4 layers", "--dp=3 --pp=1 --batch=9 --layers=4"),
    ("DP 2 x PP 3, 7 layers", "--dp=2 --pp=3 --batch=8 --layers=7"),
    ("DP 2 x PP 2, loses one", "--dp=2 --pp=2 --batch=8 --die=3:3:2"),
    ("DP 4 x PP 2, loses one", "--dp=4 --pp=2 --batch=12 --die=5:3:2"),
    (MEMORY, "--dp=2 --pp=3 --batch=12 --layers=9 --micro-batch=64 --width=32 --pace-ms=0"),
)
"""Six jobs and eight plans, and one for its memory alone: activations are twice all that is held beside them."""


def run() -> list[dict[str, Any]]:
    """Of each plan what it took, and how far off the estimate is."""
    rows: list[dict[str, Any]] = []
    for name, shape in SHAPES:
        command = [sys.executable, str(SCRIPT), "--pace-ms=40", "--steps=6", "--json", *shape.split()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        for number, plan in enumerate(json.loads(done.stdout)["plans"]):
            case = name if not number else f"{name}, after: {' '.join(map(str, plan['stages']))}"
            error = plan["estimated_s"] / plan["measured_s"] - 1
            if name != MEMORY:
                rows.append({"case": case, "figure": "step", "value": 1e3 * plan["measured_s"], "unit": "ms"})
                rows.append({"case": case, "figure": "estimate is off by", "value": 100 * error, "unit": "%"})
            memory = 100 * plan["memory"]["worst_error"]
            rows.append({"case": case, "figure": "memory is off by, at worst", "value": memory, "unit": "%"})
            if number:
                took_s = plan["seconds_to_next_step"]
                rows.append({"case": case, "figure": "loss to the end of the next step", "value": took_s, "unit": "s"})
    return rows
