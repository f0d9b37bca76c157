"""A request is answered when what it brought is stored, or when its sender would not wait any longer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pacehound.runtime.head import otlp_receiver
from pacehound.runtime.head.node import IngestResult
from pacehound.runtime.telemetry import Telemetry


@dataclass
class ManualLog:
    arrived: int = 0
    stored: int = 0

    def take(self, body: bytes) -> IngestResult:
        self.arrived += len(body)
        return IngestResult(accepted=len(body), rejected=0)


def made(log: ManualLog) -> TestServer:
    return TestServer(
        otlp_receiver.make_otlp_app(
            log=log,
            take_logs=log.take,
            take_spans=log.take,
            attempt_for=lambda question: 0,
            telemetry=Telemetry(),
            token="",
        )
    )


async def post(client: TestClient, path: str) -> int:
    response = await client.post(path, data=b"abc", headers={"Content-Type": "application/x-protobuf"})
    return response.status


@pytest.mark.parametrize("path", ["/v1/logs", "/v1/traces"])
def test_an_answer_waits_until_all_that_came_is_stored(path: str) -> None:
    async def scenario() -> None:
        log = ManualLog(arrived=4, stored=4)
        async with TestClient(made(log)) as client:
            asked = asyncio.create_task(post(client, path))
            for stored in (4, 6):
                log.stored = stored
                done, _ = await asyncio.wait({asked}, timeout=0.2)
                assert not done
            log.stored = 7
            assert await asked == 200

    asyncio.run(scenario())


def test_a_store_that_stands_still_does_not_make_senders_send_everything_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_receiver, "_STORED_WITHIN_S", 0.1)

    async def scenario() -> int:
        async with TestClient(made(ManualLog())) as client:
            return await post(client, "/v1/logs")

    assert asyncio.run(scenario()) == 200
