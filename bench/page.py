"""The page over a month of 200 jobs, one of 16,384 ranks: its questions, and how soon a browser shows the answers.

The embedded engine, in a folder of its own; rows are made in it. `PACEHOUND_BENCH_CALLS` says how many calls are
stored (50 million). The browser is Debian's Chromium; without one only the questions are measured.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from pacehound.bus import Message
from pacehound.clock import ManualClock
from pacehound.model.codec import encode
from pacehound.model.events import Cost, Finding, Incident, Instant
from pacehound.model.routing import route
from pacehound.runtime.head.address import Address
from pacehound.settings import StoreSettings
from storage.client import Store
from storage.gather import gather
from storage.read import ask
from storage.windows import keep_due_windows
from web.answers.fleet import fleet
from web.answers.incidents import incident, incidents
from web.answers.job import job, steps
from web.answers.jobs import jobs
from web.answers.places import places
from web.answers.rounds import one_round, rank_times, rounds
from web.serve import PageServer
from web.source import Source

SECOND_NS = 10**9
START_NS = 1_790_000_000 * SECOND_NS
RANKS, RANKS_OF_A_HOST = 16_384, 8
JOBS, STEPS_OF_A_JOB = 200, 20_000
INCIDENTS = 1_000
BIG, BIG_INCIDENT = "big", "i-big"
TIMES = 5
_PLACE = "job, attempt, communicator, name, host, host_ranks, members, is_world, world_size, backend, time_ns"
CHROMIUM = shutil.which("chromium")


def run() -> list[dict[str, Any]]:
    """One row per figure."""
    n_calls = int(os.environ.get("PACEHOUND_BENCH_CALLS", "50000000"))
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "store") as store:
        n_steps = n_calls // RANKS
        _fill(store, n_steps)
        source = Source(_Stored(store), clock=ManualClock(START_NS + n_steps * SECOND_NS))
        rows = _asked(source, n_steps)
        if CHROMIUM is not None:
            with _served(source, Path(folder)) as address:
                rows += _shown(address)
    return rows


class _Stored:
    def __init__(self, store: Store) -> None:
        self._store = store

    def ask(self, name: str, parameters: Mapping[str, Any]) -> pa.Table:
        return ask(self._store, name, **parameters)


def _fill(store: Store, n_steps: int) -> None:
    hosts = RANKS // RANKS_OF_A_HOST
    # Each host knows the places of its own ranks, as agents of large jobs tell it.
    store.command(
        f"INSERT INTO stored_topology ({_PLACE})"
        f" SELECT '{BIG}', 0, 'world', 'world', leftPad(toString(number), 5, '0'),"
        f" range(number * {RANKS_OF_A_HOST}, (number + 1) * {RANKS_OF_A_HOST}),"
        f" arrayMap(rank -> if(intDiv(rank, {RANKS_OF_A_HOST}) = number, rank, -1), range({RANKS})),"
        f" 1, {RANKS}, 'nccl', {START_NS} FROM numbers({hosts})"
    )
    store.command(
        f"INSERT INTO stored_topology ({_PLACE})"
        " SELECT concat('job', leftPad(toString(intDiv(number, 8)), 3, '0')), 0, 'world', 'world',"
        " concat('node', toString(number % 8)), range((number % 8) * 8, (number % 8 + 1) * 8), range(64), 1, 64,"
        f" 'nccl', {START_NS} FROM numbers({JOBS * 8})"
    )
    for name, n, where in (
        (f"'{BIG}'", n_steps, "number"),
        (f"concat('job', leftPad(toString(intDiv(number, {STEPS_OF_A_JOB})), 3, '0'))", JOBS * STEPS_OF_A_JOB,
         f"number % {STEPS_OF_A_JOB}"),
    ):  # fmt: skip
        store.command(
            "INSERT INTO stored_iterations"
            " (job, attempt, communicator, step, step_time_s, ranks, ends_ns, boundary, time_ns)"
            f" SELECT {name}, 0, 'world', {where} AS at, 1 + 0.01 * (at % 7), [0], [{START_NS} + at * {SECOND_NS}],"
            f" 'optimizer_step', {START_NS} + at * {SECOND_NS} FROM numbers({n})"
        )
    # Everybody waits in the all-reduce of each step for rank 4,097.
    store.command(
        "INSERT INTO stored_calls"
        " (job, attempt, host, communicator, source, rank, seq, op, count, dtype, launch_ns, start_ns, end_ns)"
        f" SELECT '{BIG}', 0, toString(intDiv(number % {RANKS}, {RANKS_OF_A_HOST})), 'world', 'profiler',"
        f" number % {RANKS} AS rank, intDiv(number, {RANKS}) AS seq, 'all_reduce', 1048576, 'bfloat16',"
        f" {START_NS} + seq * {SECOND_NS} + if(rank = 4097, 900000000, 500000000) AS launch_ns, launch_ns + 1000,"
        f" {START_NS} + (seq + 1) * {SECOND_NS} - 1000 FROM numbers({n_steps * RANKS})"
        " SETTINGS max_partitions_per_insert_block = 0"
    )
    onset = n_steps // 2
    events = [_incident(number, onset) for number in range(INCIDENTS)]
    messages = [
        Message(topic=route(event)[0].name, key=route(event)[1], partition=0, offset=offset, value=encode(event))
        for offset, event in enumerate(events)
    ]
    for insert in gather(messages, ManualClock(START_NS)).inserts:
        store.insert(insert.table, insert.rows)
    keep_due_windows(store, time.time_ns() + 3600 * SECOND_NS, StoreSettings())


def _incident(number: int, onset: int) -> Incident:
    is_big = number == 0
    name = BIG if is_big else f"job{number % JOBS:03}"
    step = onset if is_big else number * 7 % STEPS_OF_A_JOB
    time_ns = START_NS + step * SECOND_NS if is_big else 0
    found = Finding(
        id=f"f{number}",
        job=name,
        attempt=0,
        kind="slow",
        verdict="culprit",
        cause="S1",
        culprits=(4097 if is_big else number % 64,),
        onset=Instant(step=step, time_ns=time_ns),
        detected=Instant(step=step + 9, time_ns=time_ns + 9 * SECOND_NS),
        relief=None if is_big else Instant(step=step + 100, time_ns=time_ns),
        magnitude=0.4,
        victims=tuple(rank for rank in range(RANKS) if rank != 4097) if is_big else (),
    )
    return Incident(
        id=BIG_INCIDENT if is_big else f"i{number}",
        version=0,
        job=name,
        attempt=0,
        time_ns=time_ns,
        state="open" if is_big else "closed",
        opened_ns=time_ns or START_NS + number * 2_592 * SECOND_NS,
        closed_ns=None if is_big else START_NS,
        closed_why=None if is_big else "relieved",
        findings=(found,),
        cost=Cost(excess_s=40.0, ranks=64, gpu_hours=0.7),
    )


def _asked(source: Source, n_steps: int) -> list[dict[str, Any]]:
    questions: dict[str, Callable[[], Any]] = {
        "jobs": lambda: jobs(source),
        "incidents": lambda: incidents(source),
        "fleet": lambda: fleet(source),
        "job of 16,384 ranks": lambda: job(source, BIG, 0),
        "its iteration times": lambda: steps(source, BIG, 0, 0, n_steps),
        "20,000 iterations of another": lambda: steps(source, "job007", 0, 0, STEPS_OF_A_JOB),
        "its ranks": lambda: places(source, BIG, 0),
        "its incident": lambda: incident(source, BIG_INCIDENT),
        "longest rounds": lambda: rounds(source, BIG_INCIDENT),
        "one round": lambda: one_round(source, BIG_INCIDENT, "world", n_steps // 2),
        "who waited": lambda: rank_times(source, BIG_INCIDENT),
        "what is new": lambda: source.rows("page/version"),
    }
    rows = []
    for name, question in questions.items():
        question()
        took_s = []
        for _ in range(TIMES):
            begun_s = time.perf_counter()
            question()
            took_s.append(time.perf_counter() - begun_s)
        rows.append({"case": name, "figure": "answered in", "value": 1e3 * statistics.median(took_s), "unit": "ms"})
    return rows


@contextmanager
def _served(source: Source, folder: Path) -> Iterator[str]:
    """The page on a free port, by a thread of its own."""
    server = PageServer(source=source, folder=folder, address=Address("127.0.0.1", 0))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(server.start(), loop).result(30)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _shown(address: str) -> list[dict[str, Any]]:
    """From a click to the view, and how long the browser is at work for what a hand does there."""
    from playwright.sync_api import expect, sync_playwright

    rows = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(address)
        page.get_by_role("heading", name="Jobs").wait_for()
        paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        rows.append({"case": "browser: jobs", "figure": "first paint", "value": page.evaluate(paint), "unit": "ms"})
        views = {
            "job of 16,384 ranks": f"#/job/{BIG}/0",
            "its ranks": f"#/job/{BIG}/0/ranks",
            "its incident": f"#/incident/{BIG_INCIDENT}",
            "one round": f"#/incident/{BIG_INCIDENT}/round/world/1500",
            "incidents": "#/incidents",
        }
        for name, fragment in views.items():
            begun_s = time.perf_counter()
            page.evaluate("fragment => { location.hash = fragment }", fragment)
            expect(page.locator("main")).to_have_attribute("data-shown", fragment, timeout=30_000)
            took = {"figure": "shown after", "value": 1e3 * (time.perf_counter() - begun_s), "unit": "ms"}
            rows.append({"case": f"browser: {name}", **took})
            for canvas in page.locator("main canvas:not(.colours canvas)").all()[:1]:
                worst_ms = page.evaluate(_MOVES, canvas.element_handle())
                rows.append({"case": f"browser: {name}", "figure": "longest frame", "value": worst_ms, "unit": "ms"})
        browser.close()
    return rows


_MOVES = """async (canvas) => {
    const box = canvas.getBoundingClientRect();
    let worst = 0;
    let last = performance.now();
    for (let i = 0; i < 60; i++) {
        const [x, y] = [box.left + (box.width * i) / 60, box.top + (box.height * i) / 60];
        const at = { clientX: x, clientY: y, bubbles: true };
        canvas.dispatchEvent(new PointerEvent("pointermove", at));
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        worst = Math.max(worst, now - last);
        last = now;
    }
    return worst;
}"""
"""A pointer over a picture, sixty frames long; the longest of them."""
