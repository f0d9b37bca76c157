"""A choice as an answer for a script (DESIGN section 10)."""

from __future__ import annotations

from typing import Any

from actuators.recovery.estimator import Estimate
from actuators.recovery.policy import Choice, Option
from actuators.recovery.restorer import exchanges, n_rounds
from actuators.recovery.state import Plan, State


def choice_answer(before: State, step: Estimate, choice: Choice, history: str) -> dict[str, Any]:
    """The plans, best first; `chosen` is the position of the best, or nothing where no plan works."""
    return {
        "schema": 1,
        "before": {**_plan(before.plan), "throughput": step.throughput, "step_s": step.step_s},
        "until_next_s": choice.until_next_s,
        "history": history,
        "plans": [_option(option) for option in choice.options],
        "chosen": 0 if choice.options else None,
        "reason": choice.reason,
    }


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "kind": plan.kind,
        "dp": plan.dp,
        "pp": plan.pp,
        "stages": [list(stages) for stages in plan.stages],
        "batches": list(plan.batches),
    }


def _option(option: Option) -> dict[str, Any]:
    moved = option.restoration
    return {
        **_plan(option.state.plan),
        "throughput": option.estimate.throughput,
        "step_s": option.estimate.step_s,
        "exchange_s": option.estimate.exchange_s,
        "exchange_rounds": n_rounds(exchanges(option.state)),
        "downtime_s": option.downtime_s,
        "score": option.score,
        "peak_bytes": option.estimate.peak_bytes,
        "moved_bytes": moved.moved_bytes if moved else 0.0,
        "read_bytes": moved.read_bytes if moved else 0.0,
        "holders": [list(nodes) for nodes in option.state.holders],
        "idle": list(option.state.idle),
    }
