"""`pacehound profile`: look closer at a job for a while."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pacehound.cli.options import Lasting, say, set_option, store_option
from pacehound.settings import Settings

LONGEST_S = 600.0
"""`pacehound.model.orders.LONGEST_PROFILE_MS`."""


@click.command()
@click.option("--job", help="Which one.  [default: the one that is watched]")
@click.option(
    "--for",
    "lasting_s",
    type=Lasting(0.0, LONGEST_S),
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="It ends by itself after so long; 0 ends one that goes on.",
)
@store_option
@set_option
def profile(job: str | None, lasting_s: float, store: Path, overrides: tuple[str, ...]) -> None:
    """Look closer at a job for a while: at its machines each second, at what its ranks do, at the times of its calls.

    What is seen goes into the store, and into the incidents that are open. The job goes on meanwhile. Where agents tell
    of iterations (agent.digests_from_ranks), the calls of the last two minutes are told, too.
    """
    from pacehound.cli.controlled_job import answers_to, by_hand, controlled_job
    from pacehound.model.evidence.phrases import ranks_words
    from pacehound.model.orders import Profile

    controlled = controlled_job(store, Settings.load(os.environ, overrides), job, by_hand("profile"))
    for one in answers_to(controlled, Profile(for_ms=round(lasting_s * 1000))):
        ranks = ranks_words(sorted(answer.rank for answer in one.ranks))
        if one.refused:
            say(f"{one.host}: refused ({one.refused}): {one.reason}")
        elif lasting_s:
            say(f"{one.host}: {ranks} of job {controlled.job} are looked at more closely for {lasting_s:g} s")
        else:
            say(f"{one.host}: {ranks} of job {controlled.job} are followed as before")
