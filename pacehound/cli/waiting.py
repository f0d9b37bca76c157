"""Decisions that wait for somebody's yes: which they are, and what is said to one of them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pacehound.cli.options import print_json, say
from pacehound.errors import InvalidInput
from pacehound.settings import Settings

if TYPE_CHECKING:
    from pacehound.model.events import Decision


def answer_or_list(
    decision: str | None, store: Path, overrides: Sequence[str], *, approves: bool, as_json: bool
) -> None:
    """Say yes or no to one, or say which wait.

    Raises
    ------
    InvalidInput
        None of this id waits, or several do.

    """
    from pacehound.cli.controlled_job import controlled_job
    from pacehound.cli.history import history
    from pacehound.model.decisions import waiting
    from pacehound.model.orders import Answer

    settings = Settings.load(os.environ, overrides)
    with history(store, settings.store) as answers:
        _, decisions = answers.incidents(None)
    open_ones = waiting(decisions, time.time_ns())
    if decision is None:
        _list(open_ones, store, as_json=as_json)
        return
    one = _named(open_ones, decision)
    by = f"{os.environ.get('USER', 'somebody')}@{socket.gethostname()}"
    why = f"{by} {'approves' if approves else 'declines'} {one.action}"
    controlled = controlled_job(store, settings, one.job, why, makes_calls=False)
    controlled.order(Answer(decision=one.identity(), approves=approves, by=by), time.time_ns())
    if as_json:
        print_json({"decision": one.identity(), "job": one.job, "action": one.action, "approved": approves, "by": by})
    else:
        say(f"job {one.job}: {one.action} is {'approved' if approves else 'declined'}, by {by}")


def _named(open_ones: Sequence[Decision], beginning: str) -> Decision:
    found = [one for one in open_ones if one.identity().startswith(beginning.lower())]
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} decisions that wait begin with" if found else "no decision waits that begins with"
    known = ", ".join(one.identity()[:12] for one in open_ones[:8]) or "none"
    raise InvalidInput(f"{what} {beginning[:40]!r}; waiting: {known}")


def _page_of(store: Path) -> tuple[str, str] | None:
    """The page of the head that has this store, and the token of those who may answer there."""
    from pacehound.runtime.head.client import live_owner
    from web.gate import ANSWERING_FILE

    owner = live_owner(store)
    if owner is None or not owner[0].page:
        return None
    try:
        return owner[0].page.partition("#")[0], (store / ANSWERING_FILE).read_text(encoding="ascii").strip()
    except OSError:
        return None


def _list(open_ones: Sequence[Decision], store: Path, *, as_json: bool) -> None:
    from pacehound.pages.incidents import seconds_words

    if as_json:
        rows = [
            {
                "decision": one.identity(),
                "job": one.job,
                "incident": one.incident,
                "action": one.action,
                "price_s": one.price_s,
                "loss_s": one.loss_s,
                "promised_gain": one.promised_gain,
                "reason": one.reason,
                "until_ns": one.until_ns,
            }
            for one in open_ones
        ]
        print_json({"waiting": rows})
        return
    if not open_ones:
        say("no decision waits for a yes")
    page = _page_of(store) if open_ones else None
    for one in open_ones:
        left_s = max(one.until_ns - time.time_ns(), 0) / 1e9
        say(f"{one.identity()[:12]}  job {one.job}: {one.action} at {seconds_words(one.price_s)}: {one.reason}")
        say(f"{'':12}  lost so far {seconds_words(one.loss_s)}; waits {seconds_words(left_s)} more")
        if page is not None:
            say(f"{'':12}  on the page: {page[0]}#/incident/{one.incident}?token={page[1]}")
