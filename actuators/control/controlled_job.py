"""One job to which orders are given: they are numbered and signed, and answers of its latest attempt are heard."""

from __future__ import annotations

import secrets
from typing import Protocol

from pacehound.bus.control import ControlWire
from pacehound.model.events import Command, CommandResult
from pacehound.model.orders import ANY_ATTEMPT, LONGEST_LIFE_NS, Order, What, new_order

LIVES_NS = 10_000_000_000
"""What an agent has not been told within ten seconds is not what is wanted any more."""
assert LIVES_NS <= LONGEST_LIFE_NS


class Signs(Protocol):
    """Who has the key (`pacehound.bus.signing.Signer`)."""

    def signed(self, order: Order) -> Command:
        """The order as it travels."""
        ...


class ControlledJob:
    """Of one issuer of orders; another begins with numbers of its own.

    Parameters
    ----------
    wire
        The way to the job's agents.
    signer
        Whose orders they obey.
    job
        Whose ranks they are for.
    why
        In a sentence, for people.
    attempt
        Of the job; where it is not known agents say it.
    incident
        For whose sake; empty: somebody asked by hand.

    """

    def __init__(
        self, wire: ControlWire, signer: Signs, job: str, why: str, *, attempt: int = ANY_ATTEMPT, incident: str = ""
    ) -> None:
        self.job = job
        self._wire, self._signer = wire, signer
        self._why, self._incident = why, incident
        self._attempt = attempt
        self._issuer, self._number = secrets.token_hex(8), 0
        _, self._after = wire.results(job, 0)

    def order(self, what: What, now_ns: int, ranks: tuple[int, ...] = ()) -> str:
        """Give an order to all agents of the job, about all ranks or some; its id. `now_ns` is Unix time."""
        self._number += 1
        order = new_order(
            what,
            job=self.job,
            attempt=self._attempt,
            issuer=self._issuer,
            number=self._number,
            now_ns=now_ns,
            lives_ns=LIVES_NS,
            why=self._why,
            incident=self._incident,
            ranks=ranks,
        )
        self._wire.command(self._signer.signed(order))
        return order.id

    def results(self) -> list[CommandResult]:
        """What agents of the latest attempt have answered since the last time."""
        found, self._after = self._wire.results(self.job, self._after)
        self._attempt = max([self._attempt, *(one.attempt for one in found if not one.refused)])
        return [one for one in found if one.attempt == self._attempt or one.refused]
