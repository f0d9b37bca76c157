"""Questions over the socket: none waits for another of a different kind, and a strange user is asked nothing."""

from __future__ import annotations

import asyncio
import threading

import pyarrow as pa
from aiohttp.test_utils import TestClient, TestServer

from pacehound.runtime.head.client import Health
from pacehound.runtime.head.query_server import Leases, make_desk
from pacehound.runtime.telemetry import Telemetry


class BusyHead:
    """Answers no SQL and settles nothing until `let_go`."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def query(self, sql: str) -> pa.Table:
        self.let_go.wait()
        return pa.table({"n": [1]})

    def settle(self, timeout_s: float) -> bool:
        return self.let_go.wait()

    def health(self) -> Health:
        return Health()

    def attempt_for(self, question: object) -> int:
        return 7


def desk(head: BusyHead) -> TestServer:
    return TestServer(
        make_desk(head=head, leases=Leases(lambda: None), telemetry=Telemetry(), info={}, shut_down=lambda: None)
    )


def test_whoever_begins_a_run_waits_for_nobodys_long_question() -> None:
    async def scenario() -> None:
        head = BusyHead()
        async with TestClient(desk(head)) as client:
            long = [asyncio.create_task(client.post("/sql", json={"sql": "SELECT 1"})) for _ in range(6)]
            long += [asyncio.create_task(client.post("/settle")) for _ in range(6)]
            answer = await asyncio.wait_for(client.post("/v1/attempt", json={"job": "j", "host": "h"}), 5)
            assert await answer.json() == {"attempt": 7}
            head.let_go.set()
            assert {(await task).status for task in long} == {200}

    asyncio.run(scenario())
