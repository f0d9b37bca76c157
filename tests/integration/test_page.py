"""The page in a real browser: over a live head and a real job, and every view and control of it over a full history."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import browser
import pytest
from playwright.sync_api import Browser, Route, expect

from bench.rig import realjob
from pacehound.model.orders import Answer
from pacehound.runtime.head.address import Address
from storage.client import Store
from tests.fakes import page_store
from tests.fakes.events import START_NS
from tests.fakes.shared_store import copy_store
from web.approving import Approvals
from web.serve import PageServer
from web.source import Source

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not browser.CHROMIUM, reason="no chromium is installed (make debian)"),
]

PICTURES = os.environ.get("PICTURES_DIR", "")
"""Where the pictures of the documentation go, when they are to be made."""
SLOW = quote(page_store.SLOW, safe="")
VIEWS = {
    "jobs": "#/",
    "incidents": "#/incidents",
    "fleet": "#/fleet",
    "job": f"#/job/{SLOW}/0",
    "ranks": f"#/job/{SLOW}/0/ranks",
    "cost": f"#/job/{SLOW}/0/cost",
    "incident": "#/incident/slow-incident",
    "hang": "#/incident/hang-incident",
    "round": f"#/incident/slow-incident/round/{quote(page_store.WORLD, safe='')}/220",
}


@pytest.fixture(scope="module")
def address(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`pacehound web` over a history; its address with the token."""
    folder = copy_store(empty_store, tmp_path_factory.mktemp("page") / "store")
    with Store.open(folder) as store:
        page_store.fill(store, START_NS)
    command = [*realjob.PACEHOUND, "web", "--store", str(folder), "--page", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=realjob.environment()) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        yield re.findall(r"http://\S+", line)[0]
        server.terminate()
        assert server.wait(20) == 0


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser.chromium() as made:
        yield made


@pytest.fixture(name="chromium")
def _chromium(started: Browser) -> Iterator[Browser]:
    """One for all tests; each has its own window, with nothing in it of the ones before."""
    yield started
    for context in started.contexts:
        context.close()


@pytest.mark.usefixtures("made_store")
def test_one_command_and_the_printed_address_show_who_is_slow_and_its_relief_while_it_happens(
    chromium: Browser, tmp_path: Path
) -> None:
    with realjob.recording_head(tmp_path):
        head = json.loads((tmp_path / "store" / "head.json").read_text())
        watched = browser.Watched(chromium)
        page = watched.page
        page.goto(head["page"])
        page.get_by_text("No job has been watched yet").wait_for()
        assert "token" not in page.url
        slow = ("--slow-rank", 2, "--slow-from", 80, "--slow-until", 180, "--slow-by", 0.8)
        run = realjob.start(tmp_path, realjob.forked("--iterations", 280, *slow, ranks=4), "--job", "nightly")
        try:
            page.get_by_role("link", name="nightly").click(timeout=60_000)
            page.get_by_role("heading", name="nightly").wait_for()
            page.get_by_role("link", name="Rank 2 slows the job down").click(timeout=90_000)
            page.get_by_role("heading", name="Rank 2 slows the job down: computation (S1)").first.wait_for()
            page.get_by_text("own time grew by").first.wait_for()
            page.get_by_role("img", name="How much longer the own time of each rank is").first.wait_for()
            assert page.locator("h1 .badge").first.text_content() in ("open", "relieved")
            page.locator("h1 .badge", has_text=re.compile("relieved|closed")).wait_for(timeout=90_000)
            assert run.wait(120) == 0, run.text()
            page.locator("h1 .badge", has_text="closed").wait_for(timeout=30_000)
            if PICTURES:
                page.screenshot(path=Path(PICTURES, "incident.png"))
        finally:
            run.stop()
        assert watched.wrong == []
        assert watched.asked == {page.url.split("/", 3)[2]}


LOOKS = [
    pytest.param(390, "dark"),
    *(
        pytest.param(width, theme, marks=[pytest.mark.prove])
        for width, theme in ((1440, "light"), (390, "light"), (1440, "dark"), (2560, "light"), (2560, "dark"))
    ),
]


@pytest.mark.parametrize(("width", "theme"), LOOKS)
def test_every_view_is_readable_by_everybody_and_as_wide_as_its_window(
    chromium: Browser, address: str, width: int, theme: str
) -> None:
    found: list[str] = []
    watched = browser.Watched(chromium, width, theme)
    watched.page.goto(address)
    watched.page.get_by_role("heading", name="Jobs").wait_for()
    for name, fragment in VIEWS.items():
        watched.go(fragment)
        watched.page.locator("h1").wait_for()
        if name in ("job", "incident"):
            watched.page.locator(".uplot").first.wait_for()
        found += [f"{name}: {what}" for what in watched.accessibility()]
        if (wide := watched.page.evaluate("document.documentElement.scrollWidth")) > width:
            found.append(f"{name}: is {wide} wide in a window of {width}")
        if PICTURES:
            watched.page.screenshot(path=Path(PICTURES, f"{name}-{width}-{theme}.png"), full_page=True)
    assert found == []
    assert watched.wrong == []
    assert len(watched.asked) == 1


def test_evidence_has_pictures_of_its_numbers(chromium: Browser, address: str) -> None:
    watched = browser.Watched(chromium)
    watched.page.goto(address)
    watched.go("#/incident/slow-incident")
    grown = watched.page.get_by_role("img", name="How much longer the own time of each rank is")
    named = grown.locator("g.culprit")
    expect(named.locator("text.named")).to_have_text(str(page_store.CULPRIT))
    tallest = max(float(bar.get_attribute("height") or 0) for bar in grown.locator("rect").all())
    assert float(named.locator("rect").get_attribute("height") or 0) == tallest
    assert grown.locator("rect").count() == page_store.RANKS
    watched.go("#/incident/hang-incident")
    waits = watched.page.get_by_role("img", name="ranks 0–6, 8–15 wait for rank 7")
    expect(waits.locator(".arrow")).to_have_count(page_store.RANKS - 1)
    expect(waits.locator("g.culprit")).to_have_text("7")
    assert watched.wrong == []


def test_every_link_and_every_control_leads_somewhere_and_hostile_names_stay_text(
    chromium: Browser, address: str
) -> None:
    watched = browser.Watched(chromium)
    page = watched.page
    page.goto(address)
    page.get_by_role("heading", name="Jobs").wait_for()
    assert page.get_by_role("link", name=page_store.SLOW).count() == 1
    seen: set[str] = set()
    waiting = ["#/"]
    while waiting:
        fragment = waiting.pop()
        if fragment in seen or (sum("/round/" in one for one in seen) > 3 and "/round/" in fragment):
            continue
        seen.add(fragment)
        watched.go(fragment)
        title = page.locator("h1").text_content() or ""
        assert title, fragment
        assert title not in ("There is no such page", "Nothing is known of it", "The page cannot say"), fragment
        links = page.locator("a[href^='#/']").evaluate_all("all => all.map(one => one.getAttribute('href'))")
        waiting += [link for link in links if link not in seen]
        for number in range(page.locator("main button").count()):
            page.locator("main button").nth(number).click()
        for number in range(page.locator("main select").count()):
            choices = page.locator("main select").nth(number)
            for value in choices.locator("option").evaluate_all("all => all.map(one => one.value)"):
                choices.select_option(value)
        for details in page.locator("main details").all():
            details.locator("summary").click()
    assert {fragment.split("/")[1] for fragment in seen} == {"", "incidents", "fleet", "job", "incident"}
    watched.go("#/incident/slow-incident")
    page.get_by_text(page_store.STACK, exact=True).wait_for(state="attached")
    assert page.locator("main img, main script, main b >> text=per").count() == 0
    assert watched.wrong == []


def test_the_page_is_used_by_keys_alone(chromium: Browser, address: str) -> None:
    watched = browser.Watched(chromium)
    page = watched.page
    page.goto(address)
    page.get_by_role("heading", name="Jobs").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("clean")
    assert page.locator("tbody tr").count() == 1
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=page_store.CLEAN).wait_for()
    page.keyboard.press("u")
    page.get_by_role("heading", name="Jobs").wait_for()
    for keys, title in (("gi", "Incidents"), ("gf", "Fleet"), ("gj", "Jobs")):
        for key in keys:
            page.keyboard.press(key)
        page.get_by_role("heading", name=title, exact=True).wait_for()
    before = page.evaluate("document.documentElement.dataset.theme")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") != before
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.keyboard.press("Escape")
    watched.go(VIEWS["job"])
    page.locator(".chart").focus()
    page.keyboard.press("+")
    page.wait_for_url(re.compile("first="))
    page.keyboard.press("0")
    page.wait_for_url(re.compile("^[^=]*$"))
    assert watched.wrong == []


def test_without_its_token_the_page_asks_for_it_and_takes_no_other(chromium: Browser, address: str) -> None:
    where, _, token = address.partition("#token=")
    watched = browser.Watched(chromium)
    page = watched.page
    page.goto(where)
    page.get_by_role("textbox", name="Token").fill("a wrong one")
    page.get_by_role("button", name="Open").click()
    page.get_by_text("this is not the token of this page").wait_for()
    assert page.locator("h1").count() == 0
    page.get_by_role("textbox", name="Token").fill(token)
    page.get_by_role("button", name="Open").click()
    page.get_by_role("heading", name="Jobs").wait_for()
    page.reload()
    page.get_by_role("heading", name="Jobs").wait_for()
    assert all("401" in said for said in watched.wrong), watched.wrong


def test_who_goes_on_before_the_page_has_its_session_is_asked_for_no_token(chromium: Browser, address: str) -> None:
    watched = browser.Watched(chromium)
    page = watched.page
    held: list[Route] = []
    page.route("**/api/session", lambda route: held.append(route))
    with page.expect_request("**/api/session"):
        page.goto(address)
    page.evaluate("location.hash = '#/incidents'")
    page.evaluate("new Promise(requestAnimationFrame)")
    held[0].continue_()
    page.get_by_role("heading", name="Incidents").wait_for()
    assert watched.wrong == []


class Answered:
    """A page over a history in which a decision waits, in this process; what is said there is kept."""

    def __init__(self, folder: Path) -> None:
        self.given: list[tuple[str, Answer]] = []
        self._store = Store.open(folder)
        page_store.fill(self._store, time.time_ns())
        self.asked = page_store.waits(self._store, time.time_ns())
        self._server = PageServer(
            source=Source(page_store.Stored(self._store)),
            folder=folder,
            address=Address("127.0.0.1", 0),
            approvals=Approvals(key="k" * 32, give=lambda job, answer: self.given.append((job, answer))),
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.reads_at = asyncio.run_coroutine_threadsafe(self._server.start(), self._loop).result(30)
        self.answers_at = self._server.answers_at

    def become(self, **fields: Any) -> None:
        """Whoever acts has heard it."""
        one = replace(self.asked, number=self.asked.number + 1, time_ns=time.time_ns(), until_ns=0, **fields)
        page_store.decided(self._store, replace(one, asked=self.asked.identity()))

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._store.close()


@pytest.fixture(name="answered")
def _answered(made_store: Path) -> Iterator[Answered]:
    page = Answered(made_store)
    yield page
    page.close()


@pytest.mark.parametrize(("width", "theme"), LOOKS[:2])
def test_what_waits_is_answered_where_its_incident_is_shown(
    chromium: Browser, answered: Answered, width: int, theme: str
) -> None:
    watched = browser.Watched(chromium, width, theme)
    page = watched.page
    page.goto(answered.answers_at.replace("#", "#/incident/slow-incident?"))
    page.get_by_role("heading", name="Somebody has to say yes: checkpoint restart").wait_for()
    assert "token" not in page.url
    question = page.locator("section.question")
    expect(page.locator("dl.facts").first).not_to_contain_text("starts again")
    for words in ("starts again without h1", "20 min", "33 % shorter", "instead"):
        expect(question).to_contain_text(words)
    assert watched.accessibility() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if PICTURES:
        page.screenshot(path=Path(PICTURES, f"question-{width}-{theme}.png"))
    question.get_by_label("Your name").fill("ann <b>")
    question.get_by_role("button", name="Do it").click()
    expect(question.get_by_role("status")).to_contain_text("Yes was said by ann <b> on the page, from 127.0.0.1")
    for name in ("Do it", "Do not"):
        expect(question.get_by_role("button", name=name)).to_be_disabled()
    if PICTURES:
        page.screenshot(path=Path(PICTURES, f"answered-{width}-{theme}.png"))
    ((job, answer),) = answered.given
    assert (job, answer.decision, answer.approves) == (page_store.SLOW, answered.asked.identity(), True)
    answered.become(taken=True, by=answer.by)
    expect(question).to_have_count(0, timeout=30_000)
    expect(page.locator("dl.facts").first).to_contain_text("approved by ann <b>")
    assert watched.wrong == []


def test_who_only_reads_is_told_how_it_is_answered_and_has_no_button(chromium: Browser, answered: Answered) -> None:
    watched = browser.Watched(chromium)
    page = watched.page
    page.goto(answered.reads_at)
    page.get_by_role("heading", name="Jobs").wait_for()
    watched.go("#/incident/slow-incident")
    question = page.locator("section.question")
    expect(question).to_contain_text(f"pacehound approve {answered.asked.identity()[:12]} says yes")
    assert question.get_by_role("button").count() == 0
    post = f"fetch('api/decisions/{answered.asked.identity()}', {{method: 'POST', body: '{{\"approves\": true}}', "
    post += "headers: {'Content-Type': 'application/json'}}).then(r => r.status)"
    assert page.evaluate(post) == 403
    assert watched.accessibility() == []
    assert answered.given == []
