"""The prices of jobs, as their history has them: asked of a store, and not again while they have hardly changed."""

from __future__ import annotations

import logging

from actuators.mitigation.prices import Measured
from actuators.recovering import Asks
from actuators.thresholds import MOST_JOBS, PRICES_KEPT_S
from pacehound.clock import Clock
from pacehound.errors import PacehoundError

logger = logging.getLogger(__name__)


class JobPrices:
    """By job; where a store does not answer, what it has said last, or nothing.

    Parameters
    ----------
    asks
        Asks the store; `None`: there is none, and prices are the literature's.
    clock
        The time.

    """

    def __init__(self, asks: Asks | None, clock: Clock) -> None:
        self._asks, self._clock = asks, clock
        self._known: dict[str, tuple[float, Measured]] = {}

    def __call__(self, job: str) -> Measured:
        """Those of one job."""
        now_s = self._clock.monotonic_s()
        asked_s, found = self._known.pop(job, (None, Measured()))
        if self._asks is not None and (asked_s is None or now_s - asked_s >= PRICES_KEPT_S):
            asked_s = now_s  # a store that is away is not asked for each version of an incident either
            try:
                (row,) = self._asks("plan/measured", {"job": job})
                found = Measured.of_row(row)
            except PacehoundError as error:
                logger.warning("job %s: what it has taken so far cannot be read: %s", job, error)
        if asked_s is not None:
            self._known[job] = (asked_s, found)
        for oldest in list(self._known)[:-MOST_JOBS]:
            del self._known[oldest]
        return found
