"""`pacehound agent`: the agent of this host, started by `pacehound run`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pacehound.cli.options import log_to_stderr, set_option
from pacehound.settings import Settings


@click.command(hidden=True)
@click.option("--run-dir", type=click.Path(path_type=Path, file_okay=False), required=True, help="The run's folder.")
@click.option("--unsent", type=click.Path(path_type=Path, file_okay=False), help="Keeps what is not delivered.")
@click.option("--job", default="", help="For whom a head is held open.")
@click.option("--lifeline-fd", type=int, help="A pipe that closes when `pacehound run` is gone.")
@click.option(
    "--handover-fd", type=int, help="Settings and the receiver's headers, see pacehound/launcher/handover.py."
)
@set_option
def agent(
    run_dir: Path,
    unsent: Path | None,
    job: str,
    lifeline_fd: int | None,
    handover_fd: int,
    overrides: tuple[str, ...],
) -> None:
    """Send what the ranks of this host write into their rings (started by `pacehound run`)."""
    from collector.agent.daemon import Assignment
    from collector.agent.daemon import run as run_agent
    from pacehound.launcher.handover import take_over
    from pacehound.launcher.lifeline import Lifeline
    from pacehound.runtime.unsent import store_of

    log_to_stderr()
    handed = take_over(handover_fd)
    lifeline = Lifeline(lifeline_fd, store_of(handed.endpoint), job) if lifeline_fd is not None else None
    assignment = Assignment(
        run_dir=run_dir,
        endpoint=handed.endpoint,
        headers=handed.headers,
        trust=handed.trust,
        unsent=unsent,
        goes_to=handed.endpoint,
        launcher_is_gone=lifeline.is_gone if lifeline is not None else lambda: False,
        when_launcher_calls=lifeline.when_called if lifeline is not None else lambda call: None,
    )
    sys.exit(run_agent(assignment, Settings.load(os.environ, (*handed.overrides, *overrides))))
