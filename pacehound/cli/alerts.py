"""`pacehound alerts`: tell people of the incidents on Kafka."""

from __future__ import annotations

import os

import click

from pacehound.cli.options import log_to_stderr, set_option
from pacehound.settings import Settings


@click.command()
@set_option
def alerts(overrides: tuple[str, ...]) -> None:
    """Tell people of the incidents on Kafka, once per state of each, until stopped."""
    from alerts.service import run as run_alerts

    log_to_stderr()
    run_alerts(Settings.load(os.environ, overrides))
