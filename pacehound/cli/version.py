"""`pacehound version`: the version of this installation."""

from __future__ import annotations

import click

from pacehound import __version__
from pacehound.cli.options import json_option, print_json


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version."""
    if as_json:
        print_json({"schema": 1, "version": __version__})
    else:
        click.echo(__version__)
