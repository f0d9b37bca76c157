"""`pacehound incidents`: what was found."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pacehound.cli.options import json_option, print_json, set_option, store_option
from pacehound.settings import Settings


@click.command()
@click.option("--job", help="Only this job's.")
@store_option
@set_option
@json_option
def incidents(job: str | None, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show incidents: who, since when, how much, what it costs, how we know."""
    from pacehound.cli.history import history
    from pacehound.pages.incidents import incidents_answer, print_incidents, terminal

    Settings.load(os.environ, overrides)
    with history(store) as answers:
        found, decisions = answers.incidents(job)
    if as_json:
        print_json(incidents_answer(found, decisions))
    elif found:
        print_incidents(terminal(sys.stdout), found, decisions)
    else:
        click.echo("no incident" + (f" of job {job}" if job else ""))
