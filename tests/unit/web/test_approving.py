"""A link in an alert shows what would be done and lets its holder say yes or no, once; any other link does nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
from aiohttp.test_utils import TestClient, TestServer

from pacehound.clock import ManualClock
from pacehound.errors import Unavailable
from pacehound.model.approval_link import link_of, token_of
from pacehound.model.events import Decision
from pacehound.model.orders import Answer
from tests.fakes.events import START_NS
from web.app import make_page
from web.approving import Approvals
from web.gate import Gate
from web.source import Source

KEY = "k" * 32
ASKED = Decision(
    job="<b>j</b>", attempt=0, time_ns=START_NS, incident="i" * 12, incident_version=1, mode="approve", number=1,
    action="adjust_microbatches", reason="rank 1 takes 2.00 times as long", price_s=5.0, loss_s=9.0,
    until_ns=START_NS + 3_600 * 10**9, alternatives=("adjust_topology at 60 s",), promised_gain=0.31,
)  # fmt: skip
UNTIL_S = ASKED.until_ns // 10**9


class Stored:
    """A history with decisions and nothing else."""

    def __init__(self, *decisions: Decision) -> None:
        self.decisions = decisions

    def ask(self, name: str, parameters: Mapping[str, Any]) -> pa.Table:
        assert name == "decisions"
        return pa.table({"event": [msgspec.json.encode(one).decode() for one in self.decisions]})


class Visited:
    """What came of some requests."""

    def __init__(self, *decisions: Decision, at_ns: int = START_NS, is_away: bool = False) -> None:
        self.given: list[tuple[str, Answer]] = []
        self.is_away = is_away
        self._source = Source(Stored(*(decisions or (ASKED,))), clock=ManualClock(at_ns))

    def __call__(self, *requests: tuple[str, str, dict[str, str]]) -> list[tuple[int, str, Mapping[str, str]]]:
        async def visit() -> list[tuple[int, str, Mapping[str, str]]]:
            gate = Gate("t", 4319, frozenset({"localhost"}))
            app = make_page(self._source, gate, approvals=Approvals(key=KEY, give=self._give))
            found = []
            async with TestClient(TestServer(app)) as client:
                for method, path, form in requests:
                    headers = {"Origin": form.pop("origin")} if "origin" in form else {}
                    async with client.request(method, path, data=form or None, headers=headers) as response:
                        found.append((response.status, await response.text(), response.headers.copy()))
            return found

        return asyncio.run(visit())

    def _give(self, job: str, answer: Answer) -> None:
        if self.is_away:
            raise Unavailable("no room")
        self.given.append((job, answer))


def path() -> str:
    parts = urlsplit(link_of("http://head:4319/", KEY, ASKED.identity(), UNTIL_S))
    return f"{parts.path}?{parts.query}"


def test_looking_shows_what_would_be_done_as_text_and_does_nothing() -> None:
    visited = Visited()
    ((status, body, headers),) = visited(("GET", path(), {}))
    assert status == 200
    for words in ("adjust_microbatches", "5 s", "rank 1 takes 2.00", "31%", "adjust_topology at 60 s", "&lt;b&gt;j"):
        assert words in body, words
    assert "<b>j</b>" not in body
    assert "form-action 'self'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"
    assert visited.given == []


def test_an_answer_is_handed_over_with_who_said_it_and_the_link_works_once() -> None:
    visited = Visited()
    yes = ("POST", path(), {"answer": "yes", "by": "ann"})
    first, again, look = visited(yes, ("POST", path(), {"answer": "no"}), ("GET", path(), {}))
    assert [first[0], again[0], look[0]] == [200, 410, 410]
    ((job, answer),) = visited.given
    assert (job, answer.decision, answer.approves) == (ASKED.job, ASKED.identity(), True)
    assert answer.by == "ann by the link in the alert, from 127.0.0.1"


def test_what_could_not_be_handed_over_may_be_said_again() -> None:
    visited = Visited(is_away=True)
    request = ("POST", path(), {"answer": "yes"})
    assert [visited(request)[0][0], visited(request)[0][0]] == [503, 503]


def test_a_token_of_another_decision_another_moment_or_nobody_opens_nothing() -> None:
    other = token_of(KEY, "0" * 32, UNTIL_S)
    good = token_of(KEY, ASKED.identity(), UNTIL_S)
    paths = [path().replace(good, other), path().replace(str(UNTIL_S), str(UNTIL_S + 9)), path().split("?")[0],
             path().replace(good, token_of("another key of somebody", ASKED.identity(), UNTIL_S)),
             path().replace(good, "%ff%00")]  # fmt: skip
    visited = Visited()
    assert {status for status, *_ in visited(*(("GET", one, {}) for one in paths))} == {403}
    assert {status for status, *_ in visited(*(("POST", one, {"answer": "yes"}) for one in paths))} == {403}
    assert visited.given == []


def test_a_link_ends_with_what_it_is_about() -> None:
    ((status, body, _),) = Visited(at_ns=ASKED.until_ns)(("POST", path(), {"answer": "yes"}))
    assert (status, body) == (403, "this link has expired\n")
    done = replace(ASKED, number=2, until_ns=0, taken=True, asked=ASKED.identity(), by="bob")
    ((status, _, _),) = Visited(ASKED, done)(("GET", path(), {}))
    assert status == 410


def test_a_form_of_another_site_and_an_answer_that_is_none_are_refused() -> None:
    visited = Visited()
    foreign, neither = visited(
        ("POST", path(), {"answer": "yes", "origin": "http://evil.example"}), ("POST", path(), {"answer": "maybe"})
    )
    assert (foreign[0], neither[0], visited.given) == (403, 400, [])
