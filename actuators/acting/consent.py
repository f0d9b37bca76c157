"""Whether somebody has said yes to what is due; pure."""

from __future__ import annotations

from typing import Literal

from actuators.mitigation.thresholds import APPROVE_WITHIN_NS
from actuators.now import Now
from pacehound.model.events import Decision
from pacehound.model.orders import Answer

ActingMode = Literal["approve", "auto"]
"""How something is done: once somebody has said yes, or as soon as it is due."""


class Consent:
    """To one action: given from the beginning in mode `auto`, by somebody's yes in mode `approve`.

    The first answer counts, and none but one to the decision that waits.

    Attributes
    ----------
    asked
        The decision that waits, or has waited.
    by
        Who has answered.

    >>> consent = Consent("approve")
    >>> consent.is_given, Consent("auto").is_given
    (False, True)
    """

    def __init__(self, mode: ActingMode) -> None:
        self.is_given = mode == "auto"
        self.is_declined = False
        self.asked = self.by = ""
        self._until_ns = 0

    def until_ns(self, now: Now) -> int:
        """How long one that is asked for now would be waited for, as Unix time."""
        return now.unix_ns + APPROVE_WITHIN_NS

    def ask(self, decision: Decision) -> None:
        """It waits from now on."""
        self.asked, self._until_ns = decision.identity(), decision.until_ns

    def go_on(self, decision: Decision) -> None:
        """It was given to somebody who has ordered this, and has gone."""
        self.is_given, self.asked, self.by = True, decision.asked, decision.by

    def hear(self, answer: Answer) -> None:
        """Take the first answer to it."""
        if self.asked and answer.decision == self.asked and not (self.is_given or self.is_declined):
            self.is_given, self.is_declined, self.by = answer.approves, not answer.approves, answer.by

    def is_expired(self, now: Now) -> bool:
        """Whether nobody has said anything in time."""
        return now.unix_ns >= self._until_ns
