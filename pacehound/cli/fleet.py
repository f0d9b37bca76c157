"""`pacehound fleet`: statistics over all jobs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pacehound.cli.options import LONGEST_S, Lasting, json_option, print_json, set_option, store_option
from pacehound.settings import Settings
from storage.named_queries import query_about, query_names

_QUERIES = {name.removeprefix("fleet/"): query_about(name) for name in query_names("fleet")}
_DEFAULT_SINCE = "30d"


@click.command(epilog="\b\n" + "\n".join(f"{name:<20}{about}" for name, about in _QUERIES.items()))
@click.argument("name", required=False, type=click.Choice(list(_QUERIES)), metavar="[NAME]")
@click.option(
    "--since",
    "since_s",
    type=Lasting(60.0, LONGEST_S),
    default=_DEFAULT_SINCE,
    show_default=True,
    metavar="DURATION",
    help="How long ago it begins: a number and m, h or d.",
)
@store_option
@set_option
@json_option
def fleet(name: str | None, since_s: float, store: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """How often jobs are slowed down or held up, by what, for how long, at what price, and on which hosts.

    NAME is one of the questions below; without it all are answered. They are asked of a folder, or of the server
    of `store.url`.
    """
    from pacehound.cli.history import history
    from pacehound.clock import SystemClock
    from pacehound.pages.fleet import fleet_answer, print_fleet

    settings = Settings.load(os.environ, overrides)
    until_ns = SystemClock().now_ns()
    since_ns = until_ns - round(since_s * 1e9)
    with history(store, settings.store) as answers:
        span = {"since_ns": since_ns, "until_ns": until_ns}
        found = {one: answers.ask(f"fleet/{one}", span) for one in ([name] if name else _QUERIES)}
    if as_json:
        print_json(fleet_answer(found, _QUERIES, since_ns, until_ns))
    else:
        print_fleet(found, _QUERIES, sys.stdout)
