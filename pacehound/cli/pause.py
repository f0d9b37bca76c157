"""`pacehound pause`: hold all ranks of a job at one round for a while."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from pacehound.cli.options import Lasting, say, set_option, store_option
from pacehound.errors import Unavailable
from pacehound.settings import Settings


@click.command()
@click.option("--job", help="Which one.  [default: the one that is watched]")
@click.option(
    "--for",
    "hold_s",
    type=Lasting(0.1, 100.0),
    default="10s",
    show_default=True,
    metavar="DURATION",
    help="So long at most. More than a quarter of the smallest timeout of the job's process groups is refused.",
)
@store_option
@set_option
def pause(job: str | None, hold_s: float, store: Path, overrides: tuple[str, ...]) -> None:
    """Hold all ranks of a job at one round, and let them go after a while, or at Ctrl-C.

    All of them stop, or none does. They go on by themselves within two seconds where this command is killed.
    """
    from actuators.control.holding import HoldProcedure
    from pacehound.cli.controlled_job import by_hand, controlled_job, driven

    controlled = controlled_job(store, Settings.load(os.environ, overrides), job, by_hand("pause"))
    hold = HoldProcedure(time.time_ns(), round(hold_s * 1e9), time.monotonic_ns())
    was_held = False
    for _ in driven(controlled, hold):
        if hold.state == "held" and not was_held:
            was_held = True
            say(f"job {controlled.job}: {len(hold.roll.ranks)} ranks are held; Ctrl-C lets them go")
    if not hold.held_since_ns:
        raise Unavailable(f"job {controlled.job} was not held: {hold.reason}")
    say(f"job {controlled.job}: let go after {(time.monotonic_ns() - hold.held_since_ns) / 1e9:.1f} s, {hold.reason}")
