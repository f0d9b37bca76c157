"""What is said to a decision that waits: on a page of its own, which an alert links to, or on the incident's.

Whoever has the link from an alert may answer, once and as long as the decision waits: GET shows what would be done,
POST says yes or no to it. Programs that look at links (mail scanners, chat previews) only GET. On the incident's page
whoever has shown the token of those who may answer does (`web.gate`).
"""

from __future__ import annotations

import asyncio
import html
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import quote

from aiohttp import web

from pacehound.errors import PacehoundError
from pacehound.model.approval_link import why_not
from pacehound.model.decisions import waiting
from pacehound.model.events import Decision
from pacehound.model.orders import Answer
from pacehound.pages.incidents import seconds_words
from web.source import Source

MOST_NAME = 80
MOST_ANSWERED = 10_000
"""Decisions whose answer was handed over: until their own process has said what became of it, the link is used."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    # With `no-referrer` browsers send a form without its origin, and it would be taken for another site's.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(slots=True, kw_only=True)
class Approvals:
    """Who may say yes, and how it is handed over.

    Attributes
    ----------
    key
        Links are made with it.
    give
        Hands an answer about a job over.
    answered
        Decisions to which somebody here has said something.

    """

    key: str
    give: Callable[[str, Answer], None]
    answered: dict[str, None] = field(default_factory=dict)


Asked = Callable[..., Awaitable[Decision | None]]
"""Asks a question of the history, on a thread of its own."""


class Approving:
    """The handlers."""

    def __init__(self, approvals: Approvals, source: Source, asked: Asked) -> None:
        self._approvals, self._source, self._asked = approvals, source, asked

    async def show(self, request: web.Request) -> web.Response:
        """What would be done, and a form."""
        decision = await self._decision(request)
        gain = (
            "" if decision.promised_gain is None else f" It promises {decision.promised_gain:.0%} shorter iterations."
        )
        others = f"<p>Instead: {_text(', '.join(decision.alternatives))}.</p>" if decision.alternatives else ""
        body = (
            f"<p>Job <b>{_text(decision.job)}</b>, incident {_text(decision.incident[:12])}, which has cost "
            f"{seconds_words(decision.loss_s)} so far.</p>"
            f"<p><b>{_text(decision.action)}</b> at {seconds_words(decision.price_s)}: {_text(decision.reason)}."
            f"{gain}</p>{others}"
            f'<form method="post" action="{_text(quote(request.path))}?{_text(request.query_string)}">'
            f'<p><label>Your name <input name="by" maxlength="{MOST_NAME}"></label></p>'
            '<p><button name="answer" value="yes">Do it</button> <button name="answer" value="no">Do not</button></p>'
            "</form>"
        )
        return _page("A decision waits", body)

    async def answer(self, request: web.Request) -> web.Response:
        """Hand it over."""
        said = await request.post()
        if said.get("answer") not in ("yes", "no"):
            raise web.HTTPBadRequest(text="answer is yes or no\n")
        decision = await self._decision(request)
        who = f"{_name(said.get('by', ''))} by the link in the alert, from {request.remote or 'here'}"
        answer = await self._hand_over(decision, said["answer"] == "yes", who)
        what = "It is done now" if answer.approves else "It is not done"
        return _page(
            what, f"<p>{_text(decision.action)} for job {_text(decision.job)}: noted as said by {_text(answer.by)}.</p>"
        )

    async def answer_on_the_page(self, request: web.Request) -> web.Response:
        """The same, said where the incident is shown; the gate has seen that whoever says it may."""
        if request.content_type != "application/json":  # what no form of another site can send
            raise web.HTTPUnsupportedMediaType(text="an answer is JSON\n")
        try:
            said = await request.json()
        except ValueError:
            said = None
        if not isinstance(said, dict) or not isinstance(said.get("approves"), bool):
            raise web.HTTPBadRequest(text="an answer is an object with approves, true or false\n")
        decision = await self._waiting(request.match_info["decision"])
        who = f"{_name(said.get('by', ''))} on the page, from {request.remote or 'here'}"
        answer = await self._hand_over(decision, said["approves"], who)
        return web.json_response({"decision": answer.decision, "approved": answer.approves, "by": answer.by})

    async def _hand_over(self, decision: Decision, approves: bool, by: str) -> Answer:
        approvals = self._approvals
        answer = Answer(decision=decision.identity(), approves=approves, by=by)
        if answer.decision in approvals.answered:  # another request was faster
            raise web.HTTPGone(text="it was answered already\n")
        approvals.answered[answer.decision] = None
        try:
            await asyncio.to_thread(approvals.give, decision.job, answer)
        except PacehoundError as error:
            del approvals.answered[answer.decision]
            raise web.HTTPServiceUnavailable(text=f"{error}\n") from error
        for oldest in list(approvals.answered)[:-MOST_ANSWERED]:
            del approvals.answered[oldest]
        return answer

    async def _decision(self, request: web.Request) -> Decision:
        """The one that the link is of, as long as it waits."""
        name = request.match_info["decision"]
        try:
            until_s = int(request.query.get("until", "")[:20])
        except ValueError:
            until_s = 0
        now_s = self._source.now_ns() / 1e9
        if why := why_not(self._approvals.key, name, until_s, request.query.get("token", ""), now_s):
            raise web.HTTPForbidden(text=f"{why}\n")
        return await self._waiting(name)

    async def _waiting(self, name: str) -> Decision:
        found = await self._asked(_waiting, name)
        if found is None or name in self._approvals.answered:
            raise web.HTTPGone(text="it was answered already, or is not waited for any more\n")
        return found


def _waiting(source: Source, name: str) -> Decision | None:
    return next((one for one in waiting(source.decisions(""), source.now_ns()) if one.identity() == name), None)


def _name(said: object) -> str:
    return str(said).strip()[:MOST_NAME] or "somebody"


def _page(title: str, body: str) -> web.Response:
    text = '<!doctype html><html lang="en"><meta name="viewport" content="width=device-width">'
    text += f"<title>{_text(title)}</title><h1>{_text(title)}</h1>{body}</html>"
    return web.Response(text=text, content_type="text/html", headers=HEADERS)


def _text(text: str) -> str:
    return html.escape(text, quote=True)
