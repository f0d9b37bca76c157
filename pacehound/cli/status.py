"""`pacehound status`: the health of the pipeline."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pacehound.cli.options import json_option, print_json, set_option, store_option
from pacehound.settings import Settings


@click.command()
@store_option
@set_option
@json_option
def status(store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show the health of the pipeline: the head that has the store, if one has; topics and lag from Kafka; and what its
    processes say (`telemetry.targets`).
    """
    from pacehound.bus.otlp_headers import TOKEN_VARIABLE
    from pacehound.clock import SystemClock
    from pacehound.pages.terminal import terminal
    from pacehound.runtime.head.client import live_owner
    from pacehound.runtime.status import head_state, status_answer
    from pacehound.runtime.survey import print_status, survey

    owner = live_owner(store)
    heads = () if owner is None else (head_state(owner[0].url, owner[1].status()),)
    token = os.environ.get(TOKEN_VARIABLE, "")
    found = survey(Settings.load(os.environ, overrides), SystemClock(), heads=heads, token=token)
    if as_json:
        print_json(status_answer(found))
    else:
        print_status(terminal(sys.stdout), found)
