"""The answer of `pacehound whatif --json`: the keys and nesting of the published results, and what they do not have.

The keys of the published analysis begin with `blocking_` for stragglers and with `launch_` for what the simulation
does not see. As there, decompositions are null where the slowdown is below 3 %, and the parts of each stand in order of
their slowdown. Ours: everything from `Ms` on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from pacehound.model.events import Finding, WhatIfPrice
from pacehound.model.whatif_result import LEAST_SLOWDOWN_TOLD, MOST_DISCREPANCY, Blame, Share, WhatIf, wasted

FloatArray = npt.NDArray[np.float64]


def whatif_answer(found: WhatIf, findings: Sequence[Finding] = ()) -> dict[str, Any]:
    """One JSON object; NaN becomes null. `findings` are what would be said of the job while it runs."""
    steps = [str(step) for step in found.steps.tolist()]
    has_blocking = found.slowdown >= LEAST_SLOWDOWN_TOLD
    parts = {
        "blocking_decompose_by_dp_rank": found.by_dp_rank if has_blocking else None,
        "launch_decompose_by_dp_rank": found.launch_by_dp_rank,
        "blocking_decompose_by_stage": found.by_stage if has_blocking else None,
        "launch_decompose_by_stage": found.launch_by_stage,
        "blocking_decompose_by_optype": found.by_optype if has_blocking else None,
        "launch_decompose_by_optype": found.launch_by_optype,
    }
    answer = {
        "schema": 1,
        "job_meta": dataclasses.asdict(found.meta),
        "step_t_base": _by_name(steps, found.recorded_s),
        "step_t_nodelay": _by_name(steps, found.original_s),
        "step_t_noblk": _by_name(steps, found.ideal_s),
        "launch_slowdown": found.launch_slowdown,
        "blocking_slowdown": found.slowdown,
        "blocking_step_slowdown": _by_size(steps, found.step_slowdown),
        "launch_step_slowdown": _by_size(steps, found.launch_step_slowdown),
        **{key: None if part is None else _by_size(part.names, part.slowdown) for key, part in parts.items()},
        **{f"{key}_per_step": _steps_of(steps, part, key, found) for key, part in parts.items()},
        "Ms": found.last_stage.removed,
        "Mw": found.slowest_workers.removed,
        "ms": {**_share(found.last_stage), "Ms": found.last_stage.removed},
        "mw": {**_share(found.slowest_workers), "Mw": found.slowest_workers.removed},
        "waste": found.waste,
        "waste_by_optype": {
            name: wasted(float(slowdown))
            for name, slowdown in zip(found.by_optype.names, found.by_optype.slowdown, strict=True)
        },
        "discrepancy": {"value": found.discrepancy, "limit": MOST_DISCREPANCY, "trusted": found.is_trusted},
        "workers": _workers(found),
        "defects": [dataclasses.asdict(defect) for defect in found.defects],
        "patterns": [msgspec.to_builtins(pattern) for pattern in found.patterns],
        "fixes": [dataclasses.asdict(one) for one in found.fixes],
        "findings": [msgspec.to_builtins(one) for one in findings],
    }
    return {key: _finite(value) for key, value in answer.items()}


def price_answer(price: WhatIfPrice) -> dict[str, Any]:
    """The price as an incident has it: what each part would give back if it were as the others are."""
    return {"price": _finite(dataclasses.asdict(price))}


def _by_name(names: list[str], values: FloatArray) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))


def _by_size(names: list[str] | tuple[str, ...], values: FloatArray) -> dict[str, float]:
    return {names[i]: float(values[i]) for i in np.argsort(-values, kind="stable")}


def _steps_of(steps: list[str], part: Blame | None, key: str, found: WhatIf) -> dict[str, dict[str, float]] | None:
    if part is None:
        return None
    slowdown = found.launch_step_slowdown if key.startswith("launch") else found.step_slowdown
    return {steps[i]: _by_size(part.names, part.per_step[i]) for i in np.argsort(-slowdown, kind="stable")}


def _share(share: Share) -> dict[str, float]:
    return {
        "trem": share.fixed_s,
        "tadd": share.alone_s,
        "tori": share.original_s,
        "tideal": share.ideal_s,
        "rem": share.removed,
        "add": share.added,
    }


def _workers(found: WhatIf) -> list[dict[str, Any]]:
    """One entry per worker: the exact slowdown, the published cell of the heat map, and the correlation."""
    cells = found.cells
    return [
        {
            "dp_rank": dp,
            "stage": stage,
            "rank": int(found.ranks[dp, stage]),
            "slowdown": float(found.by_worker[stage, dp]),
            "cell": float(cells[stage, dp]),
            "forward_backward_correlation": float(found.correlation[stage, dp]),
        }
        for dp in range(cells.shape[1])
        for stage in range(cells.shape[0])
    ]


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return value
