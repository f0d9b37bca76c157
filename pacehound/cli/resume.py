"""`pacehound resume`: let the ranks of a job go that somebody holds."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pacehound.cli.options import say, set_option, store_option
from pacehound.settings import Settings


@click.command()
@click.option("--job", help="Which one.  [default: the one that is watched]")
@store_option
@set_option
def resume(job: str | None, store: Path, overrides: tuple[str, ...]) -> None:
    """Let the ranks of a job go on, whoever holds them."""
    from pacehound.cli.controlled_job import answers_to, by_hand, controlled_job
    from pacehound.model.orders import ANY_TRAP, Release

    controlled = controlled_job(store, Settings.load(os.environ, overrides), job, by_hand("resume"))
    for one in answers_to(controlled, Release(trap=ANY_TRAP)):
        say(f"{one.host}: {one.reason or 'its ranks go on'}")
