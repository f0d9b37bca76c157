"""A job that orders are given to by hand, by way of the head that has its store open, or of Kafka."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pacehound.errors import InvalidInput, PacehoundError
from pacehound.model.orders import ANY_ATTEMPT, LONGEST_LIFE_NS, What, new_order

if TYPE_CHECKING:
    from pacehound.bus.signing import Signer
    from pacehound.model.events import Command, CommandResult
    from pacehound.settings import Settings

STEP_S = 0.1
"""As often as agents ask."""

LIVES_NS = 10_000_000_000
"""What an agent has not been told within ten seconds is not what is wanted any more."""
assert LIVES_NS <= LONGEST_LIFE_NS


class Wire(Protocol):
    """The way to a job's agents: `runtime.head.client.HeadClient`, `bus.kafka_commands.KafkaControl`."""

    def command(self, command: Command) -> None:
        """Hand a signed order over."""
        ...

    def results(self, job: str, after: int) -> tuple[list[CommandResult], int]:
        """What agents have answered since the last time, and the number to ask for next."""
        ...


class ControlledJob:
    """One job; which attempt of it runs its agents say."""

    def __init__(self, wire: Wire, signer: Signer, job: str, why: str) -> None:
        self.job = job
        self._wire, self._signer, self._why = wire, signer, why
        self._attempt = ANY_ATTEMPT
        self._issuer, self._number = secrets.token_hex(8), 0
        _, self._after = wire.results(job, 0)

    def order(self, what: What) -> str:
        """Give an order to all agents of the job; its id."""
        self._number += 1
        order = new_order(
            what,
            job=self.job,
            attempt=self._attempt,
            issuer=self._issuer,
            number=self._number,
            now_ns=time.time_ns(),
            lives_ns=LIVES_NS,
            why=self._why,
        )
        self._wire.command(self._signer.signed(order))
        return order.id

    def results(self) -> list[CommandResult]:
        """What agents of the latest attempt have answered since the last time."""
        found, self._after = self._wire.results(self.job, self._after)
        self._attempt = max([self._attempt, *(one.attempt for one in found if not one.refused)])
        return [one for one in found if one.attempt == self._attempt or one.refused]


def controlled_job(store: Path, settings: Settings, job: str | None, why: str) -> ControlledJob:
    """The job of that name, or the only one that is watched; by way of Kafka where that is set.

    What is ordered is signed with the key in the store's folder.

    Raises
    ------
    InvalidInput
        Nobody watches a job here, none of that name, or several and none is named.
    Unavailable
        Kafka is away.

    """
    from pacehound.bus.signing import signer_of

    if settings.kafka.servers:
        from pacehound.bus.kafka_commands import KafkaControl

        if job is None:
            raise InvalidInput("on Kafka there may be many jobs; say which: --job NAME")
        store.mkdir(parents=True, exist_ok=True, mode=0o700)
        return ControlledJob(KafkaControl(settings.kafka, job), signer_of(store), job, why)
    from pacehound.runtime.head.client import live_owner

    nobody = f"no job is watched in {store}: nothing runs that orders could be given to (--store, --set kafka.servers=)"
    owner = live_owner(store)
    if owner is None:
        raise InvalidInput(nobody)
    client = owner[1]
    watched = client.status()["jobs"]
    if not watched:
        raise InvalidInput(nobody)
    if job is None and len(watched) > 1:
        raise InvalidInput(f"several jobs are watched here, say which: --job {' | --job '.join(watched)}")
    if job is not None and job not in watched:
        raise InvalidInput(f"job {job!r} is not watched here; watched are: {', '.join(watched)}")
    return ControlledJob(client, signer_of(store), job or watched[0], why)


def by_hand(command: str) -> str:
    """Why something is ordered, as it is told and stored."""
    return f"pacehound {command} of {os.environ.get('USER', 'somebody')}"


class Procedure(Protocol):
    """What is driven: `actuators.holding.HoldProcedure`, `actuators.validation.procedure.ValidationProcedure`."""

    reason: str

    @property
    def is_over(self) -> bool:
        """Whether nothing is held, and nothing will be."""
        ...

    def step(self, results: Iterable[CommandResult], now_ns: int) -> list[What]:
        """Hear what agents have answered, and say what they are to be told now."""
        ...

    def end(self, reason: str, now_ns: int) -> list[What]:
        """Let everybody go."""
        ...


def driven(controlled: ControlledJob, procedure: Procedure) -> Iterator[None]:
    """Drive it until it is over; whatever ends the loop lets everybody go."""
    from pacehound.cli.progress import Progress

    said = ""
    try:
        with Progress() as progress:
            while not procedure.is_over:
                for what in procedure.step(controlled.results(), time.monotonic_ns()):
                    controlled.order(what)
                if procedure.reason != said:
                    said = procedure.reason
                    progress.stage(said)
                yield
                time.sleep(STEP_S)
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        _end(controlled, procedure, "as you said")
    except BaseException:
        with contextlib.suppress(PacehoundError):
            _end(controlled, procedure, "the command has failed")
        raise


def _end(controlled: ControlledJob, procedure: Procedure, reason: str) -> None:
    for what in procedure.end(reason, time.monotonic_ns()):
        controlled.order(what)
