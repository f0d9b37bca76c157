"""Options that several commands take, and how an answer for a script is printed."""

from __future__ import annotations

from typing import Any

import click

set_option = click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change a setting; may be repeated."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object on stdout.")


def print_json(answer: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    import msgspec

    click.echo(msgspec.json.encode(answer).decode())
