"""`pacehound run` from its arguments to its exit status."""

from __future__ import annotations

import importlib
import os
import secrets
import shlex
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pacehound.errors import InvalidInput, InvalidSetting, Unavailable
from pacehound.launcher.attempt import counts_restarts
from pacehound.launcher.command import CannotStart, leave_like
from pacehound.launcher.destination import chosen_destination, with_own_token
from pacehound.launcher.job import given_name, job_name, part_of_job
from pacehound.launcher.secrets import without_secrets
from pacehound.launcher.summary import summary, why_not_watched
from pacehound.launcher.supervise import Ended, supervise
from pacehound.launcher.watch import Outcome, Plan, Watch
from pacehound.model.plain import plain
from pacehound.model.topics import INCIDENTS
from pacehound.runtime.head.owner import announced
from pacehound.settings import OpsSettings, Settings


def run_command(
    command: Sequence[str],
    *,
    job: str | None,
    endpoint: str | None,
    store: Path,
    overrides: Sequence[str],
    as_json: bool,
    nccl: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Run `command` watched, say what was seen, and return its exit status (or die by its signal).

    With `nccl` = `shim`, NCCL's own functions are watched too, through LD_PRELOAD; with `profiler`, its kernels and
    network transfers, through NCCL_PROFILER_PLUGIN; with both, each call is told of once.

    Raises
    ------
    InvalidInput
        A setting or the endpoint is wrong: said before the command starts.
    Unavailable
        The shim or the plugin was asked for and cannot be had here.

    """
    settings = Settings.load(environ, overrides)
    with_nccl = watching_nccl(nccl, environ)
    destination = chosen_destination(endpoint, environ)
    if destination is not None:
        destination = with_own_token(destination, announced(store))
    incidents_topic = ""
    if destination is not None and destination.is_kafka:
        settings = for_a_helper(settings)
        incidents_topic = settings.kafka.prefix + INCIDENTS.name
    name = job_name(job, environ, command, time.time(), secrets.token_hex(2))

    for_the_command = without_secrets(environ)

    def plan() -> Plan:
        return Plan(
            job=name,
            host=settings.host.name or socket.gethostname(),
            part=part_of_job(environ, command),
            store=store,
            destination=destination,
            overrides=tuple(settings.as_overrides()),
            environ=environ,
        )

    def instrument(watch: Watch) -> Mapping[str, str]:
        from pacehound.instrument.launch import environment

        # A name that was made up for this run has no earlier one.
        attempt = watch.attempt() if given_name(job, environ, command) else 0
        if incidents_topic and given_name(job, {}, command) and not counts_restarts(environ):
            say(
                f"Kafka cannot be asked which run of job {name} this is, it counts as the first: name each run "
                "differently, or a later one is taken for the rest of this one"
            )
        instrumented: Mapping[str, str] = environment(watch.run_dir.path, name, for_the_command, attempt)
        sampling = {
            "PACEHOUND_JOIN_S": str(settings.hang.suspect_after_s),
            "PACEHOUND_OPS_EVERY_STEPS": str(settings.ops.every_steps),
            "PACEHOUND_OPS_WINDOW_STEPS": str(settings.ops.window_steps),
            "PACEHOUND_QUIET_OPS": str(int(settings.ops.every_steps == OpsSettings().every_steps)),
        }
        return with_nccl({**instrumented, **sampling})

    try:
        ended = supervise(command, plan, instrument, say, for_the_command)
    except CannotStart as error:
        say(str(error))
        return error.exit_status
    try:
        how_known = f"pacehound incidents --job {shlex.quote(name)} --store {shlex.quote(str(store))}"
        _summarise(ended, name, incidents_topic, how_known, as_json)
    except Exception as error:
        say(f"no summary ({type(error).__name__}: {error})")
    return leave_like(ended.status)


def watching_nccl(
    routes: Sequence[str], environ: Mapping[str, str]
) -> Callable[[Mapping[str, str]], Mapping[str, str]]:
    """What puts the routes that were asked for into an environment; what they need is built now.

    Raises
    ------
    Unavailable
        One cannot be had here; says why.

    """
    built = []
    for route in dict.fromkeys(routes):
        module = importlib.import_module(f"pacehound.instrument.{route}")
        try:
            library = module.build()
            module.preloaded(environ, library)
        except (RuntimeError, ValueError, OSError) as error:
            raise Unavailable(f"--nccl {route}: {error}") from error
        built.append((module, library))

    def with_routes(instrumented: Mapping[str, str]) -> Mapping[str, str]:
        for module, library in built:
            instrumented = module.preloaded(instrumented, library)
        return instrumented

    return with_routes


def say(line: str) -> None:
    """One line of ours among the command's."""
    try:
        sys.stderr.write(f"pacehound: {plain(' '.join(line.split()))}\n")
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


def for_a_helper(settings: Settings) -> Settings:
    """The settings as a process can use them that works in another directory.

    Raises
    ------
    InvalidSetting
        There is no such client file.

    """
    if not settings.kafka.client_file:
        return settings
    path = Path(settings.kafka.client_file).expanduser().absolute()
    if not path.is_file():
        raise InvalidSetting(f"kafka.client_file={settings.kafka.client_file!r}: there is no such file")
    return replace(settings, kafka=replace(settings.kafka, client_file=str(path)))


def _summarise(ended: Ended, job: str, incidents_topic: str, how_known: str, as_json: bool) -> None:
    outcome = ended.outcome
    if as_json:
        _print_json(ended, job)
    if outcome is None:
        return
    for line in summary(outcome, incidents_topic, how_known):
        say(f"job {job}: {line}")


def _print_json(ended: Ended, job: str) -> None:
    import msgspec

    from pacehound.pages.incidents import incidents_answer

    outcome = ended.outcome or Outcome(is_complete=False)
    answer: dict[str, Any] = incidents_answer(outcome.incidents, outcome.decisions)
    answer |= {
        "job": job,
        "exit_code": ended.status.exit_code,
        "signal": ended.status.signal_number,
        "complete": outcome.is_complete,
        "watched": outcome.watched,
        "not_watched_because": why_not_watched(outcome),
    }
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    sys.stdout.flush()
