"""Does giving up improbable run lengths (`bocd.PRUNE`) change a verdict? Each series is followed twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pacehound.model.step_log import StepLog
from streams.level.changepoint import ChangepointDetector


@dataclass(frozen=True, slots=True, kw_only=True)
class Exactness:
    """How many series were followed with the exact posterior too, the changes said, and the series that differ."""

    series: int = 0
    changes: int = 0
    different: tuple[str, ...] = ()

    @classmethod
    def total(cls, parts: Iterable[Exactness]) -> Exactness:
        """All parts together."""
        parts = list(parts)
        return cls(
            series=sum(part.series for part in parts),
            changes=sum(part.changes for part in parts),
            different=tuple(name for part in parts for name in part.different),
        )


def compare(name: str, log: StepLog) -> Exactness:
    """Follow one series with the posterior as it is used and with the exact one.

    A verdict is the kind of a change, its first step and the step at which it is said.

    Examples
    --------
    >>> import numpy as np
    >>> n = np.arange(200)
    >>> step_time_s = np.where((n >= 100) & (n < 150), 0.14, 0.10)
    >>> log = StepLog(path="a", format="csv", step=n, n_steps=np.ones_like(n), time_ns=n, step_time_s=step_time_s)
    >>> compare("a", log)
    Exactness(series=1, changes=2, different=())

    """
    pruned = _verdicts(log, exact=False)
    exact = _verdicts(log, exact=True)
    return Exactness(series=1, changes=len(exact), different=() if pruned == exact else (name,))


def _verdicts(log: StepLog, *, exact: bool) -> list[tuple[str, int, int]]:
    detector = ChangepointDetector(exact=exact)
    said: list[tuple[str, int, int]] = []
    columns = (log.step.tolist(), log.n_steps.tolist(), log.step_time_s.tolist())
    for step, n_steps, step_time_s in zip(*columns, strict=True):
        change = detector.update(step - n_steps + 1, 0, step_time_s, n_steps)
        if change is not None:
            said.append((change.kind, change.step, step))
    return said
