"""`pacehound writer`: from Kafka into the store."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pacehound.cli.options import log_to_stderr, set_option, store_option
from pacehound.settings import Settings


@click.command()
@store_option
@set_option
def writer(store: Path, overrides: tuple[str, ...]) -> None:
    """Write what is on Kafka into the history: a ClickHouse server (store.url), or the folder --store.

    Any number of them share the work on a server; a folder belongs to one. Each can be killed at any moment.

    Example: pacehound writer --set kafka.servers=broker:9092 --set store.url=http://clickhouse:8123/pacehound
    """
    from storage.process import run as run_writer

    log_to_stderr()
    run_writer(Settings.load(os.environ, overrides), store)
