"""`pacehound approve`: say yes to a decision that waits for it."""

from __future__ import annotations

from pathlib import Path

import click

from pacehound.cli.options import json_option, set_option, store_option


@click.command()
@click.argument("decision", required=False, metavar="[ID]")
@store_option
@set_option
@json_option
def approve(decision: str | None, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Say yes to the decision of this ID, which waits for it in mode approve; without ID: list what waits.

    The beginning of an ID is enough. Who said so is recorded.
    """
    from pacehound.cli.waiting import answer_or_list

    answer_or_list(decision, store, overrides, approves=True, as_json=as_json)
