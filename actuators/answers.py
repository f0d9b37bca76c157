"""What people have said to decisions that wait: signed as every order is, and heard on the same way."""

from __future__ import annotations

from collections.abc import Callable

from pacehound.bus.control import AttendedWire
from pacehound.errors import MalformedMessage
from pacehound.model.events import Command
from pacehound.model.orders import MOST_SKEW_NS, Answer, read_order

Trusts = Callable[[Command], bool]
"""Whether somebody has signed it who may say yes (`pacehound.bus.signing.Keys`)."""


class Answers:
    """About one job."""

    def __init__(self, wire: AttendedWire, job: str, trusts: Trusts) -> None:
        self._wire, self._job, self._trusts = wire, job, trusts
        self._after = 0

    def new(self, now_ns: int) -> list[Answer]:
        """Those that came since the last time; what is forged, foreign, damaged, or of another time, says nothing."""
        found, self._after = self._wire.given(self._job, self._after)
        return [answer for command in found if (answer := self._read(command, now_ns)) is not None]

    def _read(self, command: Command, now_ns: int) -> Answer | None:
        if not self._trusts(command):
            return None
        try:
            order = read_order(command.order)
        except MalformedMessage:
            return None
        is_ours = order.job == self._job and isinstance(order.what, Answer)
        is_now = order.issued_ns <= now_ns + MOST_SKEW_NS and now_ns < order.expires_ns
        return order.what if is_ours and is_now and isinstance(order.what, Answer) else None
