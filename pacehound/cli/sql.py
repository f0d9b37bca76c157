"""`pacehound sql`: ask the history."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pacehound.cli.options import json_option, print_json, set_option, store_option
from pacehound.settings import Settings


@click.command()
@click.argument("statement")
@store_option
@set_option
@json_option
def sql(statement: str, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Ask the history in ClickHouse SQL (reading statements only): of a folder, or of the server of `store.url`.

    Example: pacehound sql "SELECT job, count() FROM incidents GROUP BY job"
    """
    from pacehound.cli.history import history
    from pacehound.pages.rows import print_rows, rows_answer

    settings = Settings.load(os.environ, overrides)
    with history(store, settings.store) as answers:
        table = answers.sql(statement)
    if as_json:
        print_json(rows_answer(table))
    else:
        print_rows(table, sys.stdout)
