"""Options that several commands take, and how an answer for a script is printed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

set_option = click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change a setting; may be repeated."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object on stdout.")


def default_store() -> Path:
    """A folder of the user's XDG data home."""
    data_home = os.environ.get("XDG_DATA_HOME", "")
    return (Path(data_home) if data_home.startswith("/") else Path.home() / ".local" / "share") / "pacehound"


def print_json(answer: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    import msgspec

    click.echo(msgspec.json.encode(answer).decode())
