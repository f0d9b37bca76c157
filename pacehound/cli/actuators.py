"""`pacehound actuators`: decide about the incidents on Kafka."""

from __future__ import annotations

import os

import click

from pacehound.cli.options import log_to_stderr, set_option
from pacehound.settings import Settings


@click.command()
@set_option
def actuators(overrides: tuple[str, ...]) -> None:
    """Decide what would be done about the incidents on Kafka, once each, until stopped; nothing is done."""
    from actuators.service import run as run_actuators

    log_to_stderr()
    run_actuators(Settings.load(os.environ, overrides))
