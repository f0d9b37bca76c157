"""The life of a finding: that it came again, and why it is over or no longer followed."""

from __future__ import annotations

from typing import ClassVar, Literal

from pacehound.model.evidence.piece import Piece
from pacehound.model.int64 import Int64

OverWhy = Literal[
    "iterations changed",
    "no more short ones",
    "as fast as peers",
    "as fast as before",
    "one job of the name",
    "heard",
    "calls seen",
]


class Over(Piece, frozen=True, kw_only=True, tag="over"):
    """Why a finding is over; `host` where it is about one."""

    why: OverWhy
    host: str = ""

    def _sentence(self) -> str:
        return {
            "iterations changed": "what counts as an iteration has changed: it cannot be followed further",
            "no more short ones": "no more of them in the last ten minutes",
            "as fast as peers": "it is no longer slower than its peers",
            "as fast as before": "it is no longer slower than it was before",
            "one job of the name": "one job of that name is left",
            "heard": f"{self.host} is heard again",
            "calls seen": f"the calls of {self.host} are seen now, or their processes have left",
        }[self.why]


class GivenUp(Piece, frozen=True, kw_only=True, tag="given_up"):
    """A host that nobody waits for any longer, and why."""

    host: str
    why: str

    ABOUT: ClassVar = ("host",)

    def _sentence(self) -> str:
        return f"{self.host} is given up: {self.why}"


class Episode(Piece, frozen=True, kw_only=True, tag="episode"):
    """The finding is not the first of its incident."""

    number: Int64
    lost_before_s: float

    def _sentence(self) -> str:
        before = f"{self.lost_before_s:.1f} s were lost in those before"
        return f"the same again: episode {self.number} of one incident, {before}"
