"""A dead man's switch: somebody is told every minute that all is well, and raises the alarm when that stops."""

from __future__ import annotations

import logging
from collections.abc import Callable

from alerts.receiver import Receiver
from alerts.thresholds import HEARTBEAT_S
from pacehound.errors import Unavailable
from pacehound.runtime.metric_names import HEARTBEATS
from pacehound.runtime.telemetry import Telemetry

logger = logging.getLogger(__name__)

SETTING = "alerts.heartbeat_url"


class Heartbeat:
    """Posts to a URL while the pipeline is well, and is silent while it is not.

    Parameters
    ----------
    receiver
        Who waits for it.
    problems
        What is not well with the pipeline now; `Unavailable` where nobody can say.
    telemetry
        What is counted.

    """

    def __init__(self, receiver: Receiver, problems: Callable[[], list[str]], telemetry: Telemetry) -> None:
        self._receiver = receiver
        self._problems = problems
        self._telemetry = telemetry
        self._next_s: float | None = None

    def turn(self, now_s: float) -> None:
        """Say that all is well, once a minute, if it is."""
        if self._next_s is not None and now_s < self._next_s:
            return
        self._next_s = now_s + HEARTBEAT_S
        try:
            problems = self._problems()
        except Unavailable as error:
            problems = [str(error)]
        if problems:
            self._telemetry.add(HEARTBEATS, outcome="withheld")
            logger.warning("no heartbeat: %s", "; ".join(problems))
            return
        delivery = self._receiver.post(b"{}")
        self._telemetry.add(HEARTBEATS, outcome=delivery.outcome)
        if delivery.outcome != "delivered":
            logger.warning("the heartbeat was not taken: %s", delivery.detail)

    def may_wait_s(self, now_s: float) -> float:
        """Until the next one."""
        return 0.0 if self._next_s is None else max(self._next_s - now_s, 0.0)

    def close(self) -> None:
        """Close the connections."""
        self._receiver.close()
