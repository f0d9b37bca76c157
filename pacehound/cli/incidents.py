"""`pacehound incidents`: what was found."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pacehound.cli.options import json_option, print_json, say, set_option, store_option
from pacehound.settings import Settings


@click.command()
@click.option("--job", help="Only this job's.")
@store_option
@set_option
@json_option
def incidents(job: str | None, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show incidents: who, since when, how much, what it costs, how we know; and of what nothing is known.

    They are asked of a folder, or of the server of `store.url`.
    """
    from pacehound.cli.history import history
    from pacehound.pages.incidents import incidents_answer, print_incidents
    from pacehound.pages.seen import Seen, not_watched, seen_question, words
    from pacehound.pages.terminal import terminal

    settings = Settings.load(os.environ, overrides)
    with history(store, settings.store) as answers:
        found, decisions = answers.incidents(job)
        (row,) = answers.sql(seen_question(job)).to_pylist()
        seen, problems = Seen(**row), answers.problems()
    if as_json:
        told = {"seen": row, "not_watched_because": not_watched(seen, job), "problems": problems}
        print_json(incidents_answer(found, decisions) | told)
        return
    if found:
        print_incidents(terminal(sys.stdout), found, decisions)
    for line in words(seen, job, problems, has_incidents=bool(found)):
        say(line)
