"""One's own questions: how long would a step take if this worker, stage or type of operation were ideal?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pacehound.errors import InvalidInput
from pacehound.model.whatif_result import Fixed
from streams.whatif import optypes
from streams.whatif.scenarios import Job, StepEnds

BoolArray = npt.NDArray[np.bool_]

_FORMS = "worker=DP:PP, dp=DP, stage=PP, stage=last or optype=NAME"


@dataclass(frozen=True, slots=True)
class Fix:
    """What is made ideal."""

    what: str  # as asked
    is_op: BoolArray  # operations, shape `(n_ops,)`
    is_worker: BoolArray  # workers, shape `(n_stages, n_dp)`; an operation is made ideal where both say so


def parse_fix(text: str, job: Job) -> Fix:
    """What `--fix` asks for.

    Raises
    ------
    InvalidInput
        It is of no known form, or names what the trace does not have.
    """
    key, _, value = text.partition("=")
    n_stages, n_dp = job.ops.n_stages, job.n_dp
    everything = np.ones(len(job.ops), dtype=bool)
    everybody = np.ones((n_stages, n_dp), dtype=bool)
    if key == "worker" and ":" in value:
        dp, _, stage = value.partition(":")
        chosen = np.zeros_like(everybody)
        chosen[_number(stage, n_stages, "stage", text), _number(dp, n_dp, "DP rank", text)] = True
        return Fix(text, everything, chosen)
    if key == "dp":
        chosen = np.zeros_like(everybody)
        chosen[:, _number(value, n_dp, "DP rank", text)] = True
        return Fix(text, everything, chosen)
    if key == "stage":
        at = n_stages - 1 if value == "last" else _number(value, n_stages, "stage", text)
        return Fix(text, job.ops.stage == at, everybody)
    if key == "optype":
        present = np.unique(job.ops.optype)
        kinds = [kind for kind in present if value in (optypes.NAMES[kind], optypes.SHOWN_AS[kind])]
        if not kinds:
            names = ", ".join(dict.fromkeys(optypes.SHOWN_AS[kind] for kind in present))
            raise InvalidInput(f"--fix {text}: the trace has no such operations; it has {names}")
        return Fix(text, np.isin(job.ops.optype, kinds), everybody)
    raise InvalidInput(f"--fix {text}: say {_FORMS}")


def _number(text: str, size: int, what: str, fix: str) -> int:
    if not text.isdigit() or int(text) >= size:
        raise InvalidInput(f"--fix {fix}: the {what} {text!r} is none of 0 to {size - 1}")
    return int(text)


def fixed(job: Job, fixes: Sequence[Fix], original: StepEnds, ideal: StepEnds) -> tuple[Fixed, ...]:
    """Each fix by itself, and where there are several all of them together."""
    questions = [(one.what, [one]) for one in fixes]
    if len(fixes) > 1:
        questions.append((" + ".join(one.what for one in fixes), list(fixes)))
    return tuple(_answer(job, what, together, original, ideal) for what, together in questions)


def _answer(job: Job, what: str, fixes: Sequence[Fix], original: StepEnds, ideal: StepEnds) -> Fixed:
    is_ideal = np.zeros((len(job.ops), job.n_dp), dtype=bool)
    for fix in fixes:
        is_ideal |= fix.is_op[:, None] & fix.is_worker[job.ops.stage]
    fixed_s = job.with_ideal(is_ideal).end_s.mean()
    original_s, ideal_s = original.end_s.mean(), ideal.end_s.mean()
    lost_s = original_s - ideal_s
    return Fixed(
        what=what,
        step_time_s=float(fixed_s),
        slowdown=float(fixed_s / ideal_s),
        removed=float((original_s - fixed_s) / lost_s) if lost_s else float("nan"),
    )
