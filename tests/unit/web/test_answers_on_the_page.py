"""On the incident's page only who has shown the second token answers, only from the page itself, and only once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pacehound.clock import ManualClock
from tests.fakes.events import START_NS
from tests.unit.web.test_approving import ASKED, KEY, Stored
from web.app import make_page
from web.approving import Approvals
from web.gate import Gate, page_token
from web.source import Source

READS, ANSWERS = "the token of readers", "the token of those who answer"
PATH = f"/api/decisions/{ASKED.identity()}"
YES = {"approves": True, "by": "ann"}


class Page:
    """A browser's way to it; `given` is what was handed over."""

    def __init__(self, token: str, *, answering: str = ANSWERS, at_ns: int = START_NS) -> None:
        self.given: list[tuple[str, Any]] = []
        self._token, self._answering, self._at_ns = token, answering, at_ns

    def posts(self, *said: object, path: str = PATH, by_cookie: bool = True, **headers: str) -> list[tuple[int, str]]:
        """What each is answered with."""

        async def post() -> list[tuple[int, str]]:
            gate = Gate(READS, 4319, frozenset({"localhost"}), self._answering)
            approvals = Approvals(key=KEY, give=lambda job, answer: self.given.append((job, answer)))
            source = Source(Stored(ASKED), clock=ManualClock(self._at_ns))
            async with TestClient(TestServer(make_page(source, gate, approvals=approvals))) as client:
                bearer = {"Authorization": f"Bearer {self._token}"}
                own = {"Origin": f"http://{client.host}:{client.port}"}
                if by_cookie and self._token:
                    async with client.post("/api/session", headers={**bearer, **own}) as response:
                        assert response.status == 204
                        session = response.cookies[gate.cookie].value
                    bearer = {"Cookie": f"{gate.cookie}={session}"}
                found = []
                for one in said:
                    sent = {k: v for k, v in {**bearer, **own, **headers}.items() if v}
                    async with client.post(path, json=one, headers=sent) as response:
                        found.append((response.status, await response.text()))
                return found

        return asyncio.run(post())


def test_whoever_may_says_yes_once_and_it_travels_with_the_name() -> None:
    page = Page(ANSWERS)
    first, again = page.posts(YES, {"approves": False})
    assert (first[0], again[0]) == (200, 410)
    ((job, answer),) = page.given
    assert (job, answer.decision, answer.approves) == (ASKED.job, ASKED.identity(), True)
    assert answer.by == "ann on the page, from 127.0.0.1"


def test_who_reads_does_not_answer_and_who_has_shown_nothing_does_neither() -> None:
    page = Page(READS)
    assert page.posts(YES)[0] == (403, "this browser may read, and not answer: `pacehound approve` says who may\n")
    assert Page("").posts(YES)[0][0] == 401
    assert Page(ANSWERS, answering="").posts(YES, by_cookie=False)[0][0] == 401, "nobody may"
    assert page.given == []


def test_another_site_cannot_have_a_browser_answer() -> None:
    page = Page(ANSWERS)
    assert page.posts(YES, Origin="http://evil.example")[0][0] == 403
    assert page.posts(YES, **{"Sec-Fetch-Site": "cross-site"})[0][0] == 403
    assert page.posts(YES, Origin="")[0] == (403, "asked from nowhere\n")
    assert page.posts(YES, **{"Content-Type": "text/plain"})[0][0] == 415
    assert page.posts(YES, **{"Content-Type": "application/x-www-form-urlencoded"})[0][0] == 415
    assert page.posts(YES, Host="evil.example")[0][0] == 421
    assert page.given == []


def test_a_program_shows_the_token_itself() -> None:
    page = Page(ANSWERS)
    assert page.posts(YES, by_cookie=False, Origin="")[0][0] == 200
    assert len(page.given) == 1


@pytest.mark.parametrize("said", [{}, {"approves": "yes"}, [], "yes", {"approves": 1}])
def test_what_is_no_answer_is_refused(said: object) -> None:
    page = Page(ANSWERS)
    assert page.posts(said)[0][0] == 400
    assert page.given == []


def test_what_does_not_wait_cannot_be_answered() -> None:
    page = Page(ANSWERS, at_ns=ASKED.until_ns)
    assert page.posts(YES)[0][0] == 410
    assert Page(ANSWERS).posts(YES, path=f"/api/decisions/{'0' * 32}")[0][0] == 410


def test_nothing_else_is_taken_from_whoever_may_answer() -> None:
    assert Page(ANSWERS).posts(YES, path="/api/jobs")[0][0] == 405
    assert Page(ANSWERS).posts(YES, path="/api/incidents/x")[0][0] == 405


def test_the_two_tokens_are_two_and_are_kept(tmp_path: Any) -> None:
    first = page_token(tmp_path), page_token(tmp_path, "answering.token")
    assert first == (page_token(tmp_path), page_token(tmp_path, "answering.token"))
    assert first[0] != first[1]
    assert (tmp_path / "answering.token").stat().st_mode & 0o777 == 0o600
