"""A job that orders are given to by hand: by way of the head that has its store open, signed with that store's key."""

from __future__ import annotations

import contextlib
import secrets
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pacehound.errors import InvalidInput, PacehoundError
from pacehound.model.orders import LONGEST_LIFE_NS, What, new_order

if TYPE_CHECKING:
    from pacehound.bus.signing import Signer
    from pacehound.model.events import CommandResult
    from pacehound.runtime.head.client import HeadClient

STEP_S = 0.1
"""As often as agents ask."""

LIVES_NS = 10_000_000_000
"""What an agent has not been told within ten seconds is not what is wanted any more."""
assert LIVES_NS <= LONGEST_LIFE_NS


class ControlledJob:
    """One attempt of a job.

    Attributes
    ----------
    job, attempt
        Which.

    """

    def __init__(self, client: HeadClient, signer: Signer, job: str, attempt: int, why: str) -> None:
        self.job, self.attempt = job, attempt
        self._client, self._signer, self._why = client, signer, why
        self._issuer, self._number = secrets.token_hex(8), 0
        _, self._after = client.results(job, 0)

    def order(self, what: What) -> str:
        """Give an order to all agents of the job; its id."""
        now_ns = time.time_ns()
        self._number += 1
        order = new_order(
            what,
            job=self.job,
            attempt=self.attempt,
            issuer=self._issuer,
            number=self._number,
            now_ns=now_ns,
            lives_ns=LIVES_NS,
            why=self._why,
        )
        self._client.command(self._signer.signed(order))
        return order.id

    def results(self) -> list[CommandResult]:
        """What agents have answered since the last time."""
        found, self._after = self._client.results(self.job, self._after)
        return [one for one in found if one.attempt == self.attempt]


def controlled_job(store: Path, job: str | None, why: str) -> ControlledJob:
    """The job of that name, or the one that was heard of last.

    Raises
    ------
    InvalidInput
        Nobody watches a job here, or none of that name.

    """
    from pacehound.bus.signing import signer_of
    from pacehound.cli.history import OwnedHistory
    from pacehound.cli.known_jobs import known_jobs
    from pacehound.runtime.head.client import live_owner

    owner = live_owner(store)
    if owner is None:
        raise InvalidInput(f"no job is watched in {store}: nothing runs that orders could be given to (--store)")
    client = owner[1]
    watched = client.status()["jobs"]
    if job is not None and job not in watched:
        raise InvalidInput(f"job {job!r} is not watched here; watched are: {', '.join(watched) or 'none'}")
    known = [one for one in known_jobs(OwnedHistory(client), job) if one.job in watched]
    if not known:
        raise InvalidInput(f"no job is watched in {store}: nothing runs that orders could be given to (--store)")
    if job is None and len(watched) > 1:
        raise InvalidInput(f"several jobs are watched here, say which: --job {' | --job '.join(watched)}")
    return ControlledJob(client, signer_of(store), known[0].job, known[0].attempt, why)


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
