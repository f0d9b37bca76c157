"""`pacehound order`: have the script of a job do something, on all ranks at the same step."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pacehound.cli.options import json_option, print_json, say, set_option, store_option
from pacehound.errors import InvalidInput, Unavailable
from pacehound.settings import Settings

if TYPE_CHECKING:
    from actuators.control.applying import ApplyProcedure

_SHOWN = 8


@click.command()
@click.argument("kind")
@click.option("--job", help="Which one.  [default: the one that is watched]")
@click.option("--payload", metavar="JSON", default="null", help="What the script gets with it.  [default: nothing]")
@click.option(
    "--within",
    "within_s",
    type=click.FloatRange(1.0, 3600.0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="All ranks must say within this time that they can; each says so at its next step.",
)
@store_option
@set_option
@json_option
def order(
    kind: str,
    job: str | None,
    payload: str,
    within_s: float,
    store: Path,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Give the scripts of a job's ranks an order of KIND, which all apply at the same step, or none does.

    The script takes orders by pacehound.trainer, and names the kinds that it can carry out. Ctrl-C takes the order back
    until it is confirmed.
    """
    from actuators.control.applying import ApplyProcedure
    from pacehound.cli.controlled_job import by_hand, controlled_job, driven

    check(kind, payload)
    controlled = controlled_job(store, Settings.load(os.environ, overrides), job, by_hand("order"), makes_calls=False)
    applying = ApplyProcedure(time.time_ns(), kind, payload, round(within_s * 1e9), time.monotonic_ns())
    for _ in driven(controlled, applying):
        pass
    answer = outcome(applying, controlled.job, kind)
    if as_json:
        print_json(answer)
    elif applying.outcome in ("applied", "differs"):
        for line in lines(answer):
            say(line)
    if applying.outcome != "applied":
        raise Unavailable(f"job {controlled.job}: {_MEANS[applying.outcome]}: {applying.reason}")


_MEANS = {
    "kept": "nobody has applied it",
    "unknown": "whether all ranks have applied it is not known",
    "differs": "some ranks have applied it and others have not",
}


def check(kind: str, payload: str) -> None:
    """Refuse what no agent would read.

    Raises
    ------
    InvalidInput
        Says which of the two, and what is wrong.

    """
    from pacehound.errors import MalformedMessage
    from pacehound.model.orders import Offer, new_order, read_order, write_order

    offer = Offer(ticket=1, kind=kind, payload=payload)
    try:
        read_order(write_order(new_order(offer, job="", attempt=0, issuer="", number=1, now_ns=1, lives_ns=1, why="")))
    except MalformedMessage as error:
        raise InvalidInput(f"order {kind!r}: {error}") from error


def outcome(applying: ApplyProcedure, job: str, kind: str) -> dict[str, Any]:
    """What became of it, and what each rank has said last."""
    ranks = [
        {
            "rank": rank,
            "host": at.host,
            "state": at.answer.state,
            "step": at.answer.step if at.answer.step >= 0 else None,
            "why": at.answer.why,
        }
        for rank, at in sorted(applying.ranks.items())
    ]
    return {
        "job": job,
        "kind": kind,
        "ticket": applying.ticket,
        "outcome": applying.outcome,
        "step": applying.at_step if applying.outcome in ("applied", "differs") else None,
        "reason": applying.reason,
        "ranks": ranks,
    }


def lines(answer: dict[str, Any]) -> list[str]:
    """For people: at which step which ranks, and who has not."""
    from pacehound.model.evidence.phrases import ranks_words

    by_step: dict[int, list[int]] = {}
    for one in answer["ranks"]:
        if one["state"] == "applied":
            by_step.setdefault(one["step"], []).append(one["rank"])
    said = [
        f"job {answer['job']}: {ranks_words(ranks)} applied {answer['kind']} at step {step}"
        for step, ranks in sorted(by_step.items())
    ]
    others = [one for one in answer["ranks"] if one["state"] != "applied"]
    return said + [f"rank {one['rank']} on {one['host']}: {one['state']}, {one['why']}" for one in others[:_SHOWN]]
