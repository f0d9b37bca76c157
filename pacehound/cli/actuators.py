"""`pacehound actuators`: decide about the incidents on Kafka."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pacehound.cli.options import log_to_stderr, set_option, store_option
from pacehound.settings import Settings, StoreSettings


@click.command()
@store_option
@set_option
def actuators(store: Path, overrides: tuple[str, ...]) -> None:
    """Decide what would be done about the incidents on Kafka, once each, until stopped.

    Nothing is done in mode `observe`. Of a job that has lost ranks plans for the others are priced, by the failures
    that the store of `store.url` has seen. In mode `auto` (--set actuators.mode=auto) slowdowns are looked into and
    their ranks measured; orders are signed with the key in the store's folder (control.key), made at first.
    """
    from actuators.service import run as run_actuators

    log_to_stderr()
    settings = Settings.load(os.environ, overrides)
    run_actuators(settings, store, _asks(store, settings.store) if settings.store.url else None)


def _asks(folder: Path, server: StoreSettings) -> Callable[[str, dict[str, str]], list[dict[str, Any]]]:
    """Asks the server of the store; a connection for each question, for there are few."""
    from pacehound.cli.history import history

    def ask(name: str, parameters: dict[str, str]) -> list[dict[str, Any]]:
        with history(folder, server) as answers:
            rows: list[dict[str, Any]] = answers.ask(name, parameters).to_pylist()
            return rows

    return ask
