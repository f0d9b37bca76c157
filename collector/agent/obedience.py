"""Which orders an agent obeys: signed by a key that it was given, meant for it, of now, and never seen before.

The refusals are told one by one, with their reason. What has been obeyed is remembered for longer than an order lives.
What was issued before something that is forgotten is refused, so that not even a clock that is set back opens a way.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

import msgspec

from pacehound.errors import MalformedMessage
from pacehound.model.events.control import Command, Refused
from pacehound.model.orders import (
    ANY_ATTEMPT,
    LONGEST_LIFE_NS,
    MOST_SKEW_NS,
    Dismiss,
    Locate,
    Measure,
    Order,
    Prepare,
    What,
    read_order,
)

MOST_REMEMBERED = 10_000
"""Orders that still live; a controller sends three a second."""


class Trusted(Protocol):
    """The keys of those who may give orders (`pacehound.bus.signing.Keys`)."""

    def have_signed(self, command: Command) -> bool:
        """Whether one of them has signed it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An order that is not carried out, as far as it could be read."""

    refused: Refused
    reason: str
    order: Order | None = None


class ObeyedOrders(msgspec.Struct):
    """What an agent that starts again must know.

    Attributes
    ----------
    obeyed
        When each order was issued, by its id.
    numbers
        The last number of each issuer, and when that order was issued.
    forgotten_ns
        What was issued at this time or before may have been obeyed and forgotten.

    """

    obeyed: dict[str, int] = {}
    numbers: dict[str, tuple[int, int]] = {}
    forgotten_ns: int = 0


class Obedience:
    """Admits orders, each once.

    Parameters
    ----------
    keys
        Who may give orders.
    job, host
        Whose agent this is.
    state
        Of the agent before.

    Attributes
    ----------
    refused
        How many orders were refused, by reason.

    """

    def __init__(self, keys: Trusted, job: str, host: str, state: ObeyedOrders | None = None) -> None:
        self._keys = keys
        self._job, self._host = job, host
        self.state = state or ObeyedOrders()
        self.refused: Counter[Refused] = Counter()

    def admit(self, command: Command, attempts: frozenset[int], now_ns: int) -> Order | Refusal:
        """The order, to be carried out now; or why it is not.

        Parameters
        ----------
        command
            As it came.
        attempts
            Of the job, those that have a rank on this host.
        now_ns
            Unix time.

        """
        found = self._admit(command, attempts, now_ns)
        if isinstance(found, Refusal):
            self.refused[found.refused] += 1
        return found

    def _admit(self, command: Command, attempts: frozenset[int], now_ns: int) -> Order | Refusal:
        # Before anything is believed of it: who has signed these very bytes?
        if not self._keys.have_signed(command):
            return Refusal(
                refused="forged", reason=f"no key that is trusted here has signed it (key {command.key[:8]})"
            )
        try:
            order = read_order(command.order)
        except MalformedMessage as error:
            return Refusal(refused="damaged", reason=str(error))
        if order.job != self._job or not order.is_for(self._host):
            return Refusal(refused="foreign", reason=f"it is for job {order.job}, this is {self._job}", order=order)
        is_idle = not attempts and _is_for_idle_hosts(order.what)
        if order.attempt not in attempts and not is_idle and not (attempts and order.attempt == ANY_ATTEMPT):
            which = "" if order.attempt == ANY_ATTEMPT else f" of attempt {order.attempt}"
            return Refusal(refused="foreign", reason=f"no rank{which} is on {self._host}", order=order)
        if order.issued_ns > now_ns + MOST_SKEW_NS:
            ahead_s = (order.issued_ns - now_ns) / 1e9
            return Refusal(refused="early", reason=f"issued {ahead_s:.1f} s ahead: are the clocks right?", order=order)
        if order.expires_ns <= now_ns:
            late_s = (now_ns - order.expires_ns) / 1e9
            return Refusal(refused="expired", reason=f"it ended {late_s:.1f} s ago", order=order)
        if order.id in self.state.obeyed:
            return Refusal(refused="replayed", reason="it was carried out before", order=order)
        number, _ = self.state.numbers.get(_issuer(command, order), (0, 0))
        if order.number <= number or order.issued_ns <= self.state.forgotten_ns:
            return Refusal(refused="out of order", reason="a later order of its issuer came before it", order=order)
        self._remember(order, _issuer(command, order), now_ns)
        return order

    def _remember(self, order: Order, issuer: str, now_ns: int) -> None:
        state = self.state
        state.obeyed[order.id] = order.issued_ns
        state.numbers[issuer] = (order.number, order.issued_ns)
        dead_ns = now_ns - LONGEST_LIFE_NS - MOST_SKEW_NS
        for known, issued_ns in list(state.obeyed.items()):
            if issued_ns >= dead_ns and len(state.obeyed) <= MOST_REMEMBERED:
                break  # they stand in the order in which they came: nearly that in which they were issued
            del state.obeyed[known]
            state.forgotten_ns = max(state.forgotten_ns, issued_ns)
        for known, (_, issued_ns) in list(state.numbers.items()):
            if issued_ns <= state.forgotten_ns:
                del state.numbers[known]


def _is_for_idle_hosts(what: What) -> bool:
    """What may be done where no rank is: measuring, which holds nobody."""
    match what:
        case Locate(idle=True) | Prepare(hosts=(_, *_)) | Measure() | Dismiss():
            return True
    return False


def _issuer(command: Command, order: Order) -> str:
    return f"{command.key}/{order.issuer}"
