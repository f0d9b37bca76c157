"""What a job loses by being watched on its own machine: real GPT jobs under DDP, watched and not, in alternation.

Two gloo ranks that take all of two cores, so that whatever the head and the agent take is taken from them. A job is
made as large as steps of 100, 10 and 2 ms need it to be, once, by a run of its own; then each pair is the same job
watched and not, the order changing from pair to pair. It takes half an hour of a machine that is idle besides, and
runs when it is named: `python -m bench overhead` (`PACEHOUND_BENCH_PAIRS`, 10; `PACEHOUND_BENCH_CASES`, `100 ms,10 ms,2
ms`).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.rig import realjob

SCRIPT = Path(__file__).parent / "ordinary_jobs" / "gpt_steps.py"
RANKS = 2
RUN_S, BEGINNING_S = 35.0, 10.0
"""Of each run, and what of it is not counted: a head starts in it, which is a few per cent of such a run and nothing of
a job of hours (`python -m bench startup` has it)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A model, and how long a step is to take with it."""

    width: int
    layers: int
    step_s: float


SHAPES = {"100 ms": Shape(64, 4, 0.1), "10 ms": Shape(32, 2, 0.01), "2 ms": Shape(16, 1, 0.002)}


def run() -> list[dict[str, Any]]:
    """One row per job and figure."""
    pairs = int(os.environ.get("PACEHOUND_BENCH_PAIRS", "10"))
    asked = os.environ.get("PACEHOUND_BENCH_CASES", "") or ",".join(SHAPES)
    return [row for name in asked.split(",") for row in _compare(SHAPES[name], name, pairs)]


def _compare(shape: Shape, name: str, pairs: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        micro_batches = micro_batches_for(shape, Path(folder))
        steps = max(int(RUN_S / shape.step_s), 20)
        bare: list[float] = []
        watched: list[float] = []
        neighbours = realjob.Neighbours()
        for pair in range(pairs):
            for is_watched in (pair % 2 == 0, pair % 2 == 1):
                took_s = _step_s(shape, micro_batches, steps, Path(folder), is_watched=is_watched)
                (watched if is_watched else bare).append(took_s)
            more = watched[-1] / bare[-1] - 1
            print(f"overhead: {name}, pair {pair + 1}: {bare[-1] * 1e3:.3f} ms, {more:+.2%}", file=sys.stderr)
    added = [100 * (with_us / without - 1) for with_us, without in zip(watched, bare, strict=True)]
    figures = {
        "a step, not watched": (1e3 * statistics.median(bare), "ms"),
        "added, median of the pairs": (statistics.median(added), "%"),
        "added, least": (min(added), "%"),
        "added, most": (max(added), "%"),
        "processors that others took": (100 * neighbours.share(), "%"),
    }
    case = f"steps of {name}"
    return [{"case": case, "figure": f, "value": value, "unit": unit} for f, (value, unit) in figures.items()]


def micro_batches_for(shape: Shape, folder: Path) -> int:
    """How many a step needs to take as long as it is to: by a run with one, and two with what that comes to.

    The first of a step costs more than the others, for its gradients are joined.
    """
    micro_batches = 1
    for _ in range(3):
        steps = max(int(3.0 / shape.step_s), 20)
        took_s = _step_s(shape, micro_batches, steps, folder, is_watched=False, beginning_s=0.0)
        micro_batches = max(round(micro_batches * shape.step_s / took_s), 1)
    return micro_batches


def _step_s(
    shape: Shape, micro_batches: int, steps: int, folder: Path, *, is_watched: bool, beginning_s: float = BEGINNING_S
) -> float:
    """The mean step of one run, without those of its beginning."""
    said = folder / "said.json"
    said.unlink(missing_ok=True)
    size = (shape.width, shape.layers, micro_batches, steps)
    command = realjob.forked(*size, beginning_s, said, ranks=RANKS, script=SCRIPT)
    if is_watched:
        command = [*realjob.PACEHOUND, "run", "--store", str(folder / "store"), "--", *command]
    done = subprocess.run(command, env=realjob.environment(), cwd=folder, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{SCRIPT.name} failed with {done.returncode}: {done.stderr.decode()[-2000:]}")
    return float(json.loads(said.read_text())["step_s"])
