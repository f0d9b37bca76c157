"""What the page is told of a real history, to whom it answers, and that it only reads."""

import asyncio
import json
from contextlib import asynccontextmanager

import msgspec
import numpy as np
import pytest
from aiohttp.test_utils import TestClient, TestServer

from pacehound.clock import ManualClock
from storage.client import Store
from tests.fakes import page_store
from tests.fakes.events import START_NS
from tests.fakes.shared_store import copy_store
from web.app import make_page
from web.gate import HEADERS, Gate, page_token
from web.live import MOST_LISTENERS, News
from web.source import Source

TOKEN = "the token"


@pytest.fixture(scope="module")
def source(empty_store, tmp_path_factory):
    with Store.open(
        copy_store(empty_store, tmp_path_factory.mktemp("page") / "store")
    ) as store:  # one for all: the page only reads
        page_store.fill(store)
        yield Source(page_store.Stored(store), clock=ManualClock(START_NS))


def asked(source, *questions, token=TOKEN, is_watched=True):
    """The answers to some paths, as (status, body)."""
    source.is_watched = is_watched

    async def ask_all():
        async with page(source) as client:
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return [await _answer(client, path, headers) for path in questions]

    return asyncio.run(ask_all())


async def _answer(client, path, headers):
    async with client.get(path, headers=headers) as response:
        return response.status, await response.read()


@asynccontextmanager
async def page(source):
    server = TestServer(make_page(source, Gate(TOKEN, 4319, frozenset({"localhost"}))))
    async with TestClient(server) as client:
        yield client


def one(source, path, **more):
    ((status, body),) = asked(source, path, **more)
    assert status == 200, body
    return json.loads(body)


def test_jobs_are_told_with_their_state_their_pace_and_what_they_lost(source):
    jobs = {job["job"]: job for job in one(source, "/api/jobs")["jobs"]}
    assert {name: job["state"] for name, job in jobs.items()} == {
        page_store.SLOW: "running",
        page_store.HUNG: "slow",
        page_store.CLEAN: "ended",
    }
    slow = jobs[page_store.SLOW]
    assert (slow["world_size"], slow["hosts"], slow["last_step"], slow["incidents"]) == (16, 2, 399, 1)
    assert slow["lost_s"] == 5.0
    points = slow["spark_s"]
    assert 40 <= len(points) <= 61
    assert points[0] == pytest.approx(0.1)
    assert max(points) == pytest.approx(0.15)
    assert jobs[page_store.HUNG]["is_on_gpus"] == 1


def test_nothing_is_open_in_a_history_that_nobody_watches(source):
    jobs = one(source, "/api/jobs", is_watched=False)["jobs"]
    assert {job["job"]: job["state"] for job in jobs}[page_store.HUNG] == "silent"
    incidents = one(source, "/api/incidents", is_watched=False)["incidents"]
    assert {one["state"] for one in incidents} == {"closed"}
    found = one(source, "/api/incidents/hang-incident", is_watched=False)
    assert (found["state"], found["closed_why"]) == ("closed", "watching was interrupted")


def test_a_job_has_its_line_its_changes_and_its_incidents(source):
    slow = msgspec.json.encode(page_store.SLOW).decode().strip('"').replace("&", "%26")
    job = one(source, f"/api/job?job={slow}")
    assert [change["at_step"] for change in job["changes"]] == [200]
    assert [found["what"] for found in job["listed_incidents"]] == ["Rank 5 slows the job down: computation (S1)"]
    steps = one(source, f"/api/steps?job={slow}&attempt=0&first=0&until=400")
    assert steps["width"] == 1
    assert steps["first_step"] == list(range(1, 400))
    assert [steps["pause"][i] for i in (98, 99, 100)] == ["", "checkpoint", ""]
    coarse = one(source, f"/api/steps?job={slow}&attempt=0&first=0&until=8000")
    assert coarse["width"] == 4
    assert len(coarse["first_step"]) == 100


def test_an_incident_tells_who_since_when_how_it_is_known_and_what_was_done(source):
    found = one(source, "/api/incidents/slow-incident")
    assert (found["state"], found["verdict"], found["culprits"]) == ("relieved", "culprit", [5])
    assert (found["from_step"], found["to_step"]) == (200, 300)
    assert [said["state"] for said in found["history"]] == ["open", "relieved"]
    assert found["decisions"][0]["words"].startswith("ignore: it may pass")
    assert [told["state"] for told in found["told"]] == ["open"]
    assert [stack["frames"] for stack in found["stacks"]] == [[page_store.STACK]]
    assert asked(source, "/api/incidents/none")[0][0] == 404


def test_who_waited_is_seen_in_the_calls_around_an_incident_before_they_are_kept(source):
    rounds = one(source, "/api/incidents/slow-incident/rounds")["rounds"]
    assert len(rounds) == 100
    assert rounds[0]["last_rank"] == page_store.CULPRIT
    assert rounds[0]["took_s"] == pytest.approx(0.06)
    assert {longest["name"] for longest in rounds} == {f"group {page_store.WORLD}"}
    of_world = f"communicator={page_store.WORLD.replace('&', '%26')}"
    found = one(source, f"/api/incidents/slow-incident/round?{of_world}&seq=220")
    calls = found["calls"]
    assert found["name"] == f"group {page_store.WORLD}"
    assert [call["rank"] for call in calls] == list(range(16))
    assert max(calls, key=lambda call: call["launch"])["rank"] == page_store.CULPRIT
    ((status, body),) = asked(source, "/api/incidents/slow-incident/shares")
    assert status == 200
    about, _, cells = body.partition(b"\n")
    told = json.loads(about)
    shares = np.frombuffer(cells, "<f4").reshape(len(told["ranks"]), told["slices"])
    waits = np.nanmean(shares, axis=1)
    assert told["ranks"][int(np.argmin(waits))] == page_store.CULPRIT


def test_ranks_prices_and_the_fleet_are_told(source):
    slow = page_store.SLOW
    places = one(source, f"/api/places?job={slow}&attempt=0")
    assert [(host["host"], len(host["ranks"])) for host in places["hosts"]] == [("node00", 8), ("node01", 8)]
    assert [(c["communicator"], len(c["members"])) for c in places["communicators"]] == [
        (page_store.WORLD, 16),
        ("pair", 2),
    ]
    assert places["named"]["culprits"] == [5]
    (window,) = one(source, f"/api/prices?job={slow}&attempt=0")["windows"]
    assert max(window["fixes"], key=lambda fix: fix["gain"])["ranks"] == [5]
    assert {(fix["dp"], fix["stage"]) for fix in window["fixes"]} == {
        (dp, stage) for dp in range(8) for stage in (0, 1)
    }
    told = one(source, f"/api/straggling?job={slow}&attempt=0&first=200&until=300")
    assert (told["steps"], told["ranks"]) == (list(page_store.PRICED_STEPS), list(range(16)))
    longer = np.array(told["longer"], float).reshape(16, len(told["steps"]))
    assert np.allclose(longer[page_store.CULPRIT], 0.5)
    assert np.allclose(np.delete(longer, page_store.CULPRIT, axis=0), 0.0)
    nothing = one(source, f"/api/straggling?job={slow}&attempt=0&first=0&until=100")
    assert nothing == {"steps": [], "ranks": [], "longer": []}
    fleet = one(source, "/api/fleet")
    assert [host["host"] for host in fleet["hosts"]] == ["node00"]
    assert {(loss["cause"], loss["incidents"]) for loss in fleet["losses"]} == {("S1", 1), ("H3", 1)}


@pytest.mark.parametrize("token", ["", "wrong", "the toke\u00f1"])
def test_without_the_token_nothing_is_told(source, token):
    paths = ["/api/jobs", "/api/incidents", "/api/live", "/api/incidents/slow-incident/shares"]
    assert [status for status, _ in asked(source, *paths, token=token)] == [401] * 4
    assert asked(source, "/", "/app.js", token=token)[0][0] == 200


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(source):
    async def enter():
        async with page(source) as client:
            shown = {"Authorization": f"Bearer {TOKEN}"}
            wrong = await client.post("/api/session", headers={"Authorization": "Bearer no"})
            entered = await client.post("/api/session", headers=shown)
            (cookie,) = entered.cookies.values()
            with_cookie = await client.get("/api/jobs", headers={"Cookie": f"{cookie.key}={cookie.value}"})
            return wrong.status, entered.status, cookie, with_cookie.status

    wrong, entered, cookie, with_cookie = asyncio.run(enter())
    assert (wrong, entered, with_cookie) == (401, 204, 200)
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
    assert TOKEN not in cookie.value


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Host": "evil.example:4319"}, 421),
        ("GET", {"Host": "["}, 421),
        ("GET", {"Origin": "http://evil.example"}, 403),
        ("GET", {"Origin": "null"}, 403),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", {}, 405),
        ("DELETE", {}, 405),
    ],
)
def test_other_names_other_origins_and_what_would_change_something_are_refused(source, method, headers, status):
    async def try_it():
        async with page(source) as client:
            shown = {"Authorization": f"Bearer {TOKEN}"} | headers
            async with client.request(method, "/api/jobs", headers=shown) as response:
                return response.status, dict(response.headers)

    answered, told = asyncio.run(try_it())
    assert answered == status
    assert told["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/steps?job=x&attempt=zero&first=0&until=1",
        "/api/steps?job=x",
        "/api/steps?job=x&attempt=0&first=0&until=99999999999999999999999",
        "/api/job",
    ],
)
def test_a_question_that_is_none_is_answered_with_what_is_wrong(source, path):
    ((status, body),) = asked(source, path)
    assert status == 400
    assert body.strip()


def test_a_path_leads_to_no_file_of_the_machine(source):
    paths = ["/../app.py", "/..%2fapp.py", "/static/app.js", "/%2fetc/passwd", "/vendor/../../gate.py"]
    assert {status for status, _ in asked(source, *paths)} == {404}


def test_what_is_new_is_told_to_all_who_listen_and_to_no_more_than_are_taken(source):
    versions = iter(["1", "1", "2"])

    async def listen():
        looked = asyncio.Event()

        async def version():
            try:
                return next(versions)
            except StopIteration:
                looked.set()
                return ""

        news = News(version, every_s=0.0)
        queues = [news.listen() for _ in range(MOST_LISTENERS)]
        assert news.is_full
        await looked.wait()
        last = [queue.get_nowait() for queue in queues]
        for queue in queues:
            await news.leave(queue)
        assert not news.is_full
        return last

    assert set(asyncio.run(listen())) == {"2"}


def test_the_token_of_a_page_stays_and_is_for_its_user_alone(tmp_path):
    first = page_token(tmp_path)
    assert page_token(tmp_path) == first
    assert len(first) >= 24
    assert [(path.name, path.stat().st_mode & 0o777) for path in tmp_path.iterdir()] == [("page.token", 0o600)]
