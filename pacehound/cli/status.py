"""`pacehound status`: the health of the pipeline."""

from __future__ import annotations

import os
import sys

import click

from pacehound.cli.options import json_option, print_json, set_option
from pacehound.settings import Settings


@click.command()
@set_option
@json_option
def status(overrides: tuple[str, ...], as_json: bool) -> None:
    """Show the health of the pipeline: topics and lag from Kafka, and what its processes say (`telemetry.targets`)."""
    from pacehound.clock import SystemClock
    from pacehound.pages.incidents import terminal
    from pacehound.runtime.status import status_answer
    from pacehound.runtime.survey import print_status, survey

    found = survey(Settings.load(os.environ, overrides), SystemClock())
    if as_json:
        print_json(status_answer(found))
    else:
        print_status(terminal(sys.stdout), found)
