"""`pacehound validate`: which rank, host or link is slow? Measured before a job begins, or while it runs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from pacehound.cli.options import Ranks, json_option, print_json, say, set_option, store_option
from pacehound.errors import InvalidInput, Unavailable
from pacehound.settings import Settings

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
@click.option("--job", help="Measure the ranks of a job that runs, instead of those that a COMMAND would start.")
@click.option("--ranks", type=Ranks(), metavar="LIST", help="Of that job only these, as in 3,8-11, and their peers.")
@click.option(
    "--idle",
    type=click.IntRange(2, 16_384),
    metavar="HOSTS",
    help="Measure so many hosts on which no rank runs; they are watched under the name --job.",
)
@click.option(
    "--per-host",
    type=click.IntRange(1, 1_024),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes on each idle host: as many as it has devices.",
)
@click.option("--check", is_flag=True, help="Exit with 1 where something is slow, so that a script can stop there.")
@store_option
@set_option
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def validate(
    timeout_s: float,
    job: str | None,
    ranks: tuple[int, ...],
    idle: int | None,
    per_host: int,
    check: bool,
    store: Path,
    overrides: tuple[str, ...],
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Measure the ranks, hosts and links of a job, or of one that COMMAND would start, and say which of them is slow.

    COMMAND is torchrun as the job is started with it, on each of its hosts; its script is not run. Each rank measures
    matrix products, memory and its links at the same moments as all others, and is judged against them.

    Of a job that is watched (--job NAME; without COMMAND the one that is) processes beside its ranks measure, while all
    ranks are held for some seconds. Its script is not changed, and its ranks go on by themselves where this command is
    killed. With --idle hosts are measured on which nothing runs but an agent that is given orders.
    """
    if command and (job is not None or ranks or idle):
        raise InvalidInput("a command and --job, --ranks or --idle exclude each other")
    if idle and (job is None or ranks):
        raise InvalidInput("--idle needs --job, the name under which the hosts are watched, and takes no --ranks")
    if command:
        judged = _before(command, timeout_s)
    else:
        judged = _beside(store, overrides, job, timeout_s, ranks=ranks, idle=(idle, per_host) if idle else None)
    if judged is None:
        say("measured; the host of rank 0 says what was found")
        return
    if as_json:
        print_json({"schema": 1, **judged})
    else:
        for line in lines(judged):
            say(line)
    if check and judged["culprits"]:
        sys.exit(1)


def _before(command: tuple[str, ...], timeout_s: float) -> dict[str, Any] | None:
    """A preflight's outcome; `None` on the other hosts than that of rank 0."""
    from actuators.validation.outcome import answer_of, judged_of, outcome_of, read_measured
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
        return None
    outcome = outcome_of(measured)
    return answer_of(judged_of(outcome), measured_s=outcome.measured_s, cut_short=outcome.cut_short)


def _beside(
    store: Path,
    overrides: tuple[str, ...],
    job: str | None,
    timeout_s: float,
    *,
    ranks: tuple[int, ...],
    idle: tuple[int, int] | None,
) -> dict[str, Any]:
    """The outcome of measuring beside the ranks of a job that runs, or on hosts where none does."""
    from actuators.validation.idle import IdleValidation
    from actuators.validation.outcome import answer_of
    from actuators.validation.procedure import ValidationProcedure
    from pacehound.cli.controlled_job import by_hand, controlled_job, driven, groups_of

    settings, why = Settings.load(os.environ, overrides), by_hand("validate")
    controlled = controlled_job(store, settings, job, why, makes_calls=idle is None)
    trap, now_ns = time.time_ns(), time.monotonic_ns()
    validation: ValidationProcedure | IdleValidation
    if idle is not None:
        validation = IdleValidation(trap, *idle, now_ns)
    else:
        groups = groups_of(store, settings, controlled.job) if ranks else ()
        validation = ValidationProcedure(trap, now_ns, only=ranks, groups=groups)
    deadline_s = time.monotonic() + timeout_s
    for _ in driven(controlled, validation):
        if time.monotonic() >= deadline_s:
            raise Unavailable(f"job {controlled.job} was not measured within {timeout_s:g} s: {validation.reason}")
    if validation.judged is None:
        raise Unavailable(f"job {controlled.job} was not measured: {validation.reason}")
    held_s = validation.held_ns / 1e9 if isinstance(validation, ValidationProcedure) else None
    return answer_of(validation.judged, held_s=held_s)


def lines(outcome: dict[str, Any]) -> list[str]:
    """For people: who is slow, what could not be told, how many are well."""
    said = [f"slow: {_name(one)}, {one['test']}: {one['reason']}" for one in outcome["culprits"]]
    everybody = [*outcome["ranks"], *outcome["links"]]
    unclear = [one for one in everybody if one["verdict"] == "unclear"]
    said += [f"cannot be told: {_name(one)}, {one['test']}: {one['reason']}" for one in unclear]
    well = {name: sum(one["verdict"] == "cleared" for one in outcome[name]) for name in ("ranks", "links")}
    links = f" and {well['links']} of {len(outcome['links'])} links" if outcome["links"] else ""
    said.append(f"{well['ranks']} of {len(outcome['ranks'])} ranks{links} are as fast as their peers")
    if unclear:
        said[-1] += f"; of {len(unclear)} that cannot be told"
    if outcome["held_s"] is not None:
        said[-1] += f"; the job was held for {outcome['held_s']:.1f} s"
    if outcome["cut_short"]:
        said.append("the time for measuring was over before everything was measured")
    return said


def _name(found: dict[str, Any]) -> str:
    if "rank" in found:
        return f"rank {found['rank']} on {found['host']}"
    (here, there), (sender, receiver) = found["pair"], found["hosts"]
    return f"link {here} -> {there} ({sender} to {receiver})"


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
