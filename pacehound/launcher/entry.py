"""`pacehound run` from its arguments to its exit status."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pacehound.errors import InvalidInput
from pacehound.launcher.command import CannotStart, leave_like
from pacehound.launcher.destination import chosen_destination
from pacehound.launcher.job import given_name, job_name
from pacehound.launcher.supervise import Ended, supervise
from pacehound.launcher.watch import Outcome, Plan, Watch
from pacehound.settings import Settings


def run_command(
    command: Sequence[str],
    *,
    job: str | None,
    endpoint: str | None,
    store: Path,
    overrides: Sequence[str],
    as_json: bool,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Run `command` watched, say what was seen, and return its exit status (or die by its signal).

    Raises
    ------
    InvalidInput
        A setting or the endpoint is wrong: said before the command starts.

    """
    settings = Settings.load(environ, overrides)
    destination = chosen_destination(endpoint, environ)
    name = job_name(job, environ, command, time.time(), secrets.token_hex(2))

    def plan() -> Plan:
        return Plan(
            job=name,
            host=settings.host.name or socket.gethostname(),
            store=store,
            destination=destination,
            overrides=tuple(settings.as_overrides()),
            environ=environ,
        )

    def instrument(watch: Watch) -> Mapping[str, str]:
        from pacehound.instrument.launch import environment

        # A name that was made up for this run has no earlier one.
        attempt = watch.attempt() if given_name(job, environ, command) else 0
        instrumented: Mapping[str, str] = environment(watch.run_dir.path, name, environ, attempt)
        return instrumented

    try:
        ended = supervise(command, plan, instrument, say)
    except CannotStart as error:
        say(str(error))
        return error.exit_status
    try:
        _summarise(ended, name, as_json)
    except Exception as error:
        say(f"no summary ({type(error).__name__}: {error})")
    return leave_like(ended.status)


def say(line: str) -> None:
    """One line of ours among the command's."""
    try:
        sys.stderr.write(f"pacehound: {' '.join(line.split())}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # stderr is closed: nobody wants to know


def check_command(command: Sequence[str]) -> None:
    """A command there is.

    Raises
    ------
    InvalidInput
        There is none.

    """
    if not command:
        raise InvalidInput("no command; write pacehound run -- torchrun … train.py")


def _summarise(ended: Ended, job: str, as_json: bool) -> None:
    outcome = ended.outcome
    if as_json:
        _print_json(ended, job)
    if outcome is None:
        return
    if not outcome.is_complete:
        say(f"job {job}: not everything that was seen had been processed when the command ended")
    if outcome.sent_to:
        say(f"job {job}: sent to {outcome.sent_to}")
        return
    if not outcome.incidents:
        say(f"job {job}: no incident")
        return
    from pacehound.report import print_incidents, terminal

    console = terminal(sys.stderr)
    console.print()
    print_incidents(console, outcome.incidents, outcome.decisions)


def _print_json(ended: Ended, job: str) -> None:
    import msgspec

    from pacehound.report import incidents_answer

    outcome = ended.outcome or Outcome(is_complete=False)
    answer: dict[str, Any] = incidents_answer(outcome.incidents, outcome.decisions)
    answer |= {
        "job": job,
        "exit_code": ended.status.exit_code,
        "signal": ended.status.signal_number,
        "complete": outcome.is_complete,
    }
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    sys.stdout.flush()
