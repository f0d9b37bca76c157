"""`pacehound incidents`: what was found."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pacehound.cli.options import json_option, print_json, say, set_option, store_option
from pacehound.errors import InvalidInput
from pacehound.settings import Settings


@click.command()
@click.option("--job", help="Only this job's.")
@click.option(
    "--last/--all",
    default=None,
    help="Those of the job that was heard of last, the default of a folder; or of all, the default of `store.url`.",
)
@store_option
@set_option
@json_option
def incidents(job: str | None, last: bool | None, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Show incidents: who, since when, how much, what it costs, how we know; and of what nothing is known.

    They are asked of a folder, or of the server of `store.url`.
    """
    from pacehound.cli.history import history
    from pacehound.cli.known_jobs import known_jobs
    from pacehound.pages.incidents import incidents_answer, print_incidents
    from pacehound.pages.measured import measured_words
    from pacehound.pages.seen import Seen, not_watched, seen_question, words
    from pacehound.pages.terminal import terminal

    settings = Settings.load(os.environ, overrides)
    if job is not None and last is not None:
        raise InvalidInput(f"--job {job} and --{'last' if last else 'all'} exclude each other")
    others = ""
    with history(store, settings.store) as answers:
        jobs = known_jobs(answers, job)
        if job is None and jobs and (not settings.store.url if last is None else last):
            job = jobs[0].job
            if n_others := sum(other.incidents for other in jobs[1:]):
                others = f"of other jobs in this store there are {n_others}: --all"
        found, decisions = answers.incidents(job)
        (row,) = answers.sql(seen_question(job)).to_pylist()
        seen, problems = Seen(**row), answers.problems()
        rows = answers.ask("validations", {"job": job or ""}).to_pylist() if found else []
    measured = {one.id: measured_words(one, rows) for one in found}
    if as_json:
        told = {
            "measured": measured,
            "job": job,
            "seen": row,
            "not_watched_because": not_watched(seen, job),
            "problems": problems,
        }
        print_json(incidents_answer(found, decisions) | told)
        return
    if found:
        on_gpus = {one.job for one in jobs if one.is_on_gpus}
        print_incidents(terminal(sys.stdout), found, decisions, on_gpus, measured)
    for line in words(seen, job, problems, has_incidents=bool(found)):
        say(line)
    if others:
        say(others)
