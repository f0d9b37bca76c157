"""`pacehound resume`: let the ranks of a job go that somebody holds."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from pacehound.cli.options import say, set_option, store_option
from pacehound.errors import Unavailable
from pacehound.settings import Settings

ANSWERED_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.1


@click.command()
@click.option("--job", help="Which one.  [default: the one that is watched]")
@store_option
@set_option
def resume(job: str | None, store: Path, overrides: tuple[str, ...]) -> None:
    """Let the ranks of a job go on, whoever holds them."""
    from pacehound.cli.controlled_job import by_hand, controlled_job
    from pacehound.model.orders import ANY_TRAP, Release

    controlled = controlled_job(store, Settings.load(os.environ, overrides), job, by_hand("resume"))
    order = controlled.order(Release(trap=ANY_TRAP))
    deadline_s = time.monotonic() + ANSWERED_WITHIN_S
    while time.monotonic() < deadline_s:
        answers = [one for one in controlled.results() if one.order == order]
        if answers:
            for one in answers:
                say(f"{one.host}: {one.reason or 'its ranks go on'}")
            return
        time.sleep(_LOOK_EVERY_S)
    raise Unavailable(f"no agent of job {controlled.job} has answered within {ANSWERED_WITHIN_S:g} s")
