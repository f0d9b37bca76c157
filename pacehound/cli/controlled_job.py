"""A job that orders are given to by hand, by way of the head that has its store open, or of Kafka."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pacehound.errors import InvalidInput, PacehoundError, Unavailable
from pacehound.model.orders import What

if TYPE_CHECKING:
    from actuators.control.controlled_job import ControlledJob
    from pacehound.model.events import CommandResult
    from pacehound.settings import Settings

STEP_S = 0.1
"""As often as agents ask."""

ANSWERED_WITHIN_S = 5.0
"""An agent asks once a second, and its answer waits for what it sends before."""


def controlled_job(
    store: Path, settings: Settings, job: str | None, why: str, *, makes_calls: bool = True
) -> ControlledJob:
    """The job of that name, or the only one that is watched; by way of Kafka where that is set.

    What is ordered is signed with the key in the store's folder. Of a job that makes no calls a head has heard nothing:
    where none are needed (`makes_calls`), its agents say whether there is one of that name.

    Raises
    ------
    InvalidInput
        Nobody watches a job here, none of that name, or several and none is named.
    Unavailable
        Kafka is away.

    """
    from actuators.control.controlled_job import ControlledJob
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
    if job is not None and not makes_calls:
        return ControlledJob(client, signer_of(store), job, why)
    if not watched:
        raise InvalidInput(nobody)
    if job is None and len(watched) > 1:
        raise InvalidInput(f"several jobs are watched here, say which: --job {' | --job '.join(watched)}")
    if job is not None and job not in watched:
        raise InvalidInput(f"job {job!r} is not watched here; watched are: {', '.join(watched)}")
    return ControlledJob(client, signer_of(store), job or watched[0], why)


def groups_of(store: Path, settings: Settings, job: str) -> tuple[tuple[int, ...], ...]:
    """Members of the job's communicators, as its head has heard of them; none by way of Kafka, where no head is."""
    from pacehound.cli.history import OwnedHistory
    from pacehound.cli.known_jobs import known_jobs
    from pacehound.runtime.head.client import live_owner

    owner = live_owner(store) if not settings.kafka.servers else None
    if owner is None:
        return ()
    answers = OwnedHistory(owner[1])
    return tuple(
        tuple(row["members"])
        for known in known_jobs(answers, job)[:1]
        for row in answers.ask("page/places", {"job": job, "attempt": known.attempt}).to_pylist()
    )


def answers_to(controlled: ControlledJob, what: What) -> list[CommandResult]:
    """Give an order, and wait for the first agents that answer it.

    Raises
    ------
    Unavailable
        None of them has.

    """
    order = controlled.order(what, time.time_ns())
    deadline_s = time.monotonic() + ANSWERED_WITHIN_S
    while time.monotonic() < deadline_s:
        answers = [one for one in controlled.results() if one.order == order]
        if answers:
            return answers
        time.sleep(STEP_S)
    raise Unavailable(f"no agent of job {controlled.job} has answered within {ANSWERED_WITHIN_S:g} s")


def by_hand(command: str) -> str:
    """Why something is ordered, as it is told and stored."""
    return f"pacehound {command} of {os.environ.get('USER', 'somebody')}"


class Procedure(Protocol):
    """What is driven: a `HoldProcedure` of `actuators.control.holding`, a validation."""

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
                    controlled.order(what, time.time_ns())
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
        controlled.order(what, time.time_ns())
