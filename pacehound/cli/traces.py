"""`pacehound traces`: send rounds, incidents and decisions as OpenTelemetry traces."""

from __future__ import annotations

import os

import click

from pacehound.cli.options import log_to_stderr, set_option
from pacehound.settings import Settings


@click.command()
@set_option
def traces(overrides: tuple[str, ...]) -> None:
    """Send rounds around incidents, and one in so many, from Kafka to `traces.endpoint`, until stopped."""
    from pacehound.runtime.job_traces_process import run as run_traces

    log_to_stderr()
    run_traces(Settings.load(os.environ, overrides))
