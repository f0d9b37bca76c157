"""Questions over the socket: none waits for another of a different kind, and a strange user is asked nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pyarrow as pa
import pytest
from aiohttp import web

from pacehound.model.events import Decision, Incident
from pacehound.model.evidence.levels import Level
from pacehound.runtime.head.attempts import Answer
from pacehound.runtime.head.client import HeadClient, Health
from pacehound.runtime.head.query_server import Leases, is_of, make_desk
from pacehound.runtime.telemetry import Telemetry
from tests.fakes.events import finding, incident

INCIDENT = incident(findings=(finding(evidence=(Level(before_s=0.1, after_s=0.2, since_step=7),)),))


class BusyHead:
    """Answers no SQL and settles nothing until `let_go`."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def query(self, sql: str) -> pa.Table:
        self.let_go.wait()
        return pa.table({"n": [1]})

    def settle(self, timeout_s: float) -> bool:
        return self.let_go.wait()

    def jobs(self) -> list[str]:
        return []

    def health(self) -> Health:
        return Health()

    def attempt_for(self, question: object) -> Answer:
        return Answer(7)

    def incidents(self, job: str | None) -> list[Incident]:
        return [] if job else [INCIDENT]

    def decisions(self) -> list[Decision]:
        return []


@asynccontextmanager
async def desk(head: BusyHead, path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    app = make_desk(head=head, leases=Leases(lambda: None), telemetry=Telemetry(), info={}, shut_down=lambda: None)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    try:
        async with aiohttp.ClientSession("http://head", connector=aiohttp.UnixConnector(str(path))) as client:
            yield client
    finally:
        await runner.cleanup()


def test_incidents_come_over_the_socket_with_their_evidence(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with desk(BusyHead(), tmp_path / "s"):
            asked = HeadClient(tmp_path / "s")
            assert await asyncio.to_thread(asked.incidents) == ([INCIDENT], [])
            assert await asyncio.to_thread(asked.incidents, "j") == ([], [])

    asyncio.run(scenario())


def test_the_kernel_says_who_asks_and_another_user_is_not_answered() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        assert is_of(ours, os.getuid())
        assert is_of(ours, os.getuid() + 1) == (os.getuid() == 0)  # root may ask everybody's
    with socket.socket() as from_afar:
        assert not is_of(from_afar, os.getuid())


def test_another_user_gets_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with desk(BusyHead(), tmp_path / "s") as client:
            assert (await client.get("/status")).status == 200
            monkeypatch.setattr("pacehound.runtime.head.query_server.is_of", lambda asker, user: False)
            assert (await client.get("/status")).status == 403
            assert (await client.post("/shutdown")).status == 403

    asyncio.run(scenario())


def test_whoever_begins_a_run_waits_for_nobodys_long_question(tmp_path: Path) -> None:
    async def scenario() -> None:
        head = BusyHead()
        async with desk(head, tmp_path / "s") as client:
            long = [asyncio.create_task(client.post("/sql", json={"sql": "SELECT 1"})) for _ in range(6)]
            long += [asyncio.create_task(client.post("/settle")) for _ in range(6)]
            answer = await asyncio.wait_for(client.post("/v1/attempt", json={"job": "j", "host": "h"}), 5)
            assert await answer.json() == {"attempt": 7}
            head.let_go.set()
            assert {(await task).status for task in long} == {200}

    asyncio.run(scenario())
