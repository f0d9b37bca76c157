"""`pacehound validate`: which rank, host or link of these is slow? Measured before the job begins."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pacehound.cli.options import json_option, print_json, say
from pacehound.errors import Unavailable

if TYPE_CHECKING:
    from actuators.validation.outcome import Found, Outcome

_LAST_LINES = 8


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(5.0, 3600.0),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="For starting and measuring.",
)
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def validate(timeout_s: float, as_json: bool, command: tuple[str, ...]) -> None:
    """Measure the ranks, hosts and links that COMMAND would train on, and say which of them is slow.

    COMMAND is torchrun as the job is started with it, on each of its hosts; its script is not run. Each rank measures
    matrix products, memory and its links at the same moments as all others, and is judged against them. The exit status
    is 1 where something is slow.
    """
    from actuators.validation.outcome import as_json as plain
    from actuators.validation.outcome import outcome_of, read_measured
    from actuators.validation.preflight import environment_of_measuring, measuring_command
    from pacehound.cli.progress import Progress

    with tempfile.TemporaryDirectory(prefix="pacehound-validate-") as folder, Progress() as progress:
        result, log = Path(folder) / "measured.json", Path(folder) / "log"
        measuring = measuring_command(command, result)
        progress.stage("starting the ranks and measuring")
        status = _run(measuring, environment_of_measuring(os.environ), log, timeout_s)
        if status != 0:
            said = log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
            raise Unavailable(
                "the ranks could not be measured: " + "\n  ".join([f"torchrun ended with {status}", *said])
            )
        measured = read_measured(result.read_bytes()) if result.exists() else None
    if measured is None:
        say("measured; the host of rank 0 says what was found")
        return
    outcome = outcome_of(measured)
    if as_json:
        print_json(plain(outcome))
    else:
        for line in lines(outcome):
            say(line)
    if outcome.culprits():
        sys.exit(1)


def lines(outcome: Outcome) -> list[str]:
    """For people: who is slow, what could not be told, how many are well."""
    said = [f"slow: {_name(one)}, {one.measured}: {one.judged.reason}" for one in outcome.culprits()]
    everybody = [*outcome.ranks, *outcome.links]
    said += [
        f"cannot be told: {_name(one)}, {one.measured}: {one.judged.reason}"
        for one in everybody
        if one.judged.verdict == "unclear"
    ]
    well = [sum(one.judged.verdict == "cleared" for one in found) for found in (outcome.ranks, outcome.links)]
    links = f" and {well[1]} of {len(outcome.links)} links between hosts" if outcome.links else ""
    said.append(
        f"{well[0]} of {len(outcome.ranks)} ranks{links} are as fast as their peers ({outcome.measured_s:.1f} s)"
    )
    if outcome.cut_short:
        said.append("the time for measuring was over before everything was measured")
    return said


def _name(found: Found) -> str:
    if len(found.ranks) == 1:
        return f"rank {found.ranks[0]} on {found.hosts[0]}"
    return f"link {found.ranks[0]} -> {found.ranks[1]} ({found.hosts[0]} to {found.hosts[1]})"


def _run(command: list[str], environ: dict[str, str], log: Path, timeout_s: float) -> int:
    """Run it in a session of its own, so that none of its ranks outlives this command."""
    with log.open("wb") as output, _ended_by_sigterm():
        process = subprocess.Popen(command, env=environ, stdout=output, stderr=output, start_new_session=True)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"the ranks have not been measured within {timeout_s:g} s (--timeout)") from error
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5.0)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
