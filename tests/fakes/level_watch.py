"""A stand-in for StepWatch: says `slow` where ChangepointDetector sees an onset, and `change` for a speed-up."""

from __future__ import annotations

import dataclasses

from pacehound.events import Finding, Instant
from streams.changepoint import ChangepointDetector


class LevelWatch:
    """Takes what StepWatch takes, and learns one planned pattern: pauses beyond ten times the first step time."""

    def __init__(self, *, job, attempt=0, source="", min_change=0.10, small_changes=True):
        self._job, self._attempt, self._source = job, attempt, source
        self._detector = ChangepointDetector(min_change=min_change)
        self._open = None
        self._first_s = 0.0
        self.planned = ()

    def update(self, row):
        self._first_s = self._first_s or row.step_time_s
        if row.step_time_s > 10 * self._first_s:
            here = Instant(step=row.step, time_ns=row.time_ns)
            end = Instant(step=row.step + 1, time_ns=row.time_ns)
            said = f"a pause of {row.step_time_s:.1f} s"
            self.planned += (self._finding("planned", here, here, relief=end, evidence=(said,)),)
        change = self._detector.update(row.step, row.time_ns, row.step_time_s)
        if change is None:
            return []
        at = Instant(step=change.step, time_ns=change.time_ns)
        detected = Instant(step=change.detected_step, time_ns=change.detected_ns)
        if change.kind == "relief" and self._open is not None:
            told, self._open = dataclasses.replace(self._open, relief=at, version=self._open.version + 1), None
            return [told]
        if change.kind == "onset":
            said = f"{change.after_s * 1e3:.1f} ms since step {change.step}, {change.before_s * 1e3:.1f} ms before"
            unseen = ("which rank is late: the log tells no more than step times",)
            self._open = self._finding(
                "slow", at, detected, magnitude=change.magnitude, evidence=(said,), unseen=unseen
            )
            return [self._open]
        if change.kind == "speedup":
            return [self._finding("change", at, detected, magnitude=change.magnitude, evidence=("it is faster",))]
        return []

    def _finding(self, kind, onset, detected, **more):
        return Finding(
            id=f"{self._job}/{kind}/{onset.step}",
            job=self._job,
            attempt=self._attempt,
            kind=kind,
            verdict="unknown",
            cause=None,
            onset=onset,
            detected=detected,
            source=self._source,
            **more,
        )
