"""`pacehound decline`: say no to a decision that waits for a yes."""

from __future__ import annotations

from pathlib import Path

import click

from pacehound.cli.options import json_option, set_option, store_option


@click.command()
@click.argument("decision", metavar="ID")
@store_option
@set_option
@json_option
def decline(decision: str, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Say no to the decision of this ID: it is not done, and not asked for again about the same incident."""
    from pacehound.cli.waiting import answer_or_list

    answer_or_list(decision, store, overrides, approves=False, as_json=as_json)
