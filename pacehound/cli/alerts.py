"""`pacehound alerts`: tell people of the incidents on Kafka, and what people say back."""

from __future__ import annotations

import os
import sys

import click

from pacehound.cli.options import LONGEST_S, Lasting, json_option, log_to_stderr, print_json, say, set_option
from pacehound.errors import InvalidInput
from pacehound.settings import Settings


@click.group(invoke_without_command=True)
@set_option
@click.pass_context
def alerts(context: click.Context, overrides: tuple[str, ...]) -> None:
    """Tell people of the incidents on Kafka, once per state of each, until stopped.

    The commands below try a sink, silence jobs and acknowledge incidents; they run beside it, and beside a head.
    """
    if context.invoked_subcommand is not None:
        context.obj = overrides
        return
    from alerts.service import run as run_alerts

    log_to_stderr()
    run_alerts(Settings.load(os.environ, overrides))


@alerts.command()
@click.argument("sink", required=False)
@set_option
@json_option
@click.pass_obj
def test(before: tuple[str, ...], sink: str | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Send a test alert to SINK, or to all that are set, and say what became of it."""
    from alerts.service import sinks_of
    from alerts.trial import trial

    sinks = sinks_of(_settings(before, overrides).alerts)
    names = [one.name for one in sinks]
    if sink is not None and sink not in names:
        raise InvalidInput(f"no sink {sink!r} is set; set are {', '.join(names)}")
    chosen = [one for one in sinks if sink in (None, one.name)]
    answers = [(one.name, state, delivery) for one in chosen for state, delivery in trial(one)]
    for one in sinks:
        one.close()
    if as_json:
        rows = [{"sink": n, "state": s, "outcome": d.outcome, "detail": d.detail} for n, s, d in answers]
        print_json({"schema": 1, "deliveries": rows})
    else:
        for name, state, delivery in answers:
            say(f"{name}: {state}: {delivery.outcome}" + (f" ({delivery.detail})" if delivery.detail else ""))
    sys.exit(0 if all(delivery.outcome == "delivered" for _, _, delivery in answers) else 1)


@alerts.command()
@click.option("--job", required=True, help="The job's name, or a pattern such as 'pretrain-*'.")
@click.option(
    "--for",
    "silent_s",
    type=Lasting(60.0, LONGEST_S),
    required=True,
    metavar="DURATION",
    help="How long from now on: 30m, 2h, 1d.",
)
@click.option("--why", required=True, help="For whoever wonders.")
@set_option
@click.pass_obj
def silence(before: tuple[str, ...], job: str, silent_s: float, why: str, overrides: tuple[str, ...]) -> None:
    """Tell nobody of a job for a while. What still goes on then is told then."""
    from alerts.orders import Silence, append
    from pacehound.clock import SystemClock
    from pacehound.pages.incidents import seconds_words

    now_ns = SystemClock().now_ns()
    order = Silence(job=job, from_ns=now_ns, until_ns=now_ns + round(silent_s * 1e9), why=why, by=_user())
    append(_settings(before, overrides).alerts.orders_file, order)
    say(f"nobody is told of {job} for {seconds_words(silent_s)}")


@alerts.command()
@click.argument("incident")
@set_option
@click.pass_obj
def acknowledge(before: tuple[str, ...], incident: str, overrides: tuple[str, ...]) -> None:
    """Say that somebody works on INCIDENT (its id): nobody further is told of it, and those who were hear of it."""
    from alerts.orders import Acknowledgement, append
    from pacehound.clock import SystemClock

    order = Acknowledgement(incident=incident, time_ns=SystemClock().now_ns(), by=_user())
    append(_settings(before, overrides).alerts.orders_file, order)
    say(f"{_user()} works on {incident}")


def _settings(before: tuple[str, ...], overrides: tuple[str, ...]) -> Settings:
    return Settings.load(os.environ, (*before, *overrides))


def _user() -> str:
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or "somebody"
