"""`pacehound sql`: ask the history."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pacehound.cli.options import json_option, print_json, set_option, store_option
from pacehound.errors import InvalidInput
from pacehound.settings import Settings


@click.command()
@click.argument("statement")
@click.option("--job", help="What {job:String} in the statement stands for; else the job that was heard of last.")
@store_option
@set_option
@json_option
def sql(statement: str, job: str | None, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Ask the history in ClickHouse SQL (reading statements only): of a folder, or of the server of `store.url`.

    Example: pacehound sql "SELECT job, count() FROM incidents GROUP BY job"

    {job:String} and {attempt:UInt32} in it are the last job and its last attempt:
    pacehound sql "SELECT max(step) FROM iterations WHERE job = {job:String}"
    """
    from pacehound.cli.history import history
    from pacehound.cli.known_jobs import filled, known_jobs, names_a_job
    from pacehound.pages.rows import print_rows, rows_answer

    settings = Settings.load(os.environ, overrides)
    with history(store, settings.store) as answers:
        if names_a_job(statement):
            jobs = known_jobs(answers, job)
            if not jobs:
                raise InvalidInput(f"nothing of {f'job {job}' if job else 'any job'} is in the store")
            statement = filled(statement, jobs[0])
        table = answers.sql(statement)
    if as_json:
        print_json(rows_answer(table))
    else:
        print_rows(table, sys.stdout)
