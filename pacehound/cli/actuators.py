"""`pacehound actuators`: decide about the incidents on Kafka."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pacehound.cli.options import log_to_stderr, set_option, store_option
from pacehound.settings import Settings


@click.command()
@store_option
@set_option
def actuators(store: Path, overrides: tuple[str, ...]) -> None:
    """Decide what would be done about the incidents on Kafka, once each, until stopped.

    Nothing is done in mode `observe`. In mode `auto` (--set actuators.mode=auto) slowdowns are looked into and their
    ranks measured; orders are signed with the key in the store's folder (control.key), made at first.
    """
    from actuators.service import run as run_actuators

    log_to_stderr()
    run_actuators(Settings.load(os.environ, overrides), store)
