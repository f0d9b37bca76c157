"""`pacehound streams`: a worker of the streams on Kafka."""

from __future__ import annotations

import os
import sys

import click

from pacehound.cli.options import log_to_stderr, set_option
from pacehound.settings import Settings


@click.command()
@set_option
def streams(overrides: tuple[str, ...]) -> None:
    """Run a worker of the streams on Kafka: name slow and hung ranks of all jobs.

    Any number of them share the work; each can be killed at any moment. The topics must be there (`pacehound topics`).

    Example: pacehound streams --set kafka.servers=broker:9092
    """
    from streams.kafka.process import run as run_streams

    log_to_stderr()
    sys.exit(run_streams(Settings.load(os.environ, overrides)))
