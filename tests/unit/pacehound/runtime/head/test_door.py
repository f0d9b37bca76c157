"""A request is answered when what it brought is stored, or when its sender would not wait any longer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pacehound.runtime.head import otlp_receiver, query_server
from pacehound.runtime.head.node import IngestResult
from pacehound.runtime.telemetry import Telemetry


@dataclass
class ManualLog:
    arrived: int = 0
    stored: int = 0
    not_stored_why: str = ""

    def take(self, body: bytes) -> IngestResult:
        self.arrived += len(body)
        return IngestResult(accepted=len(body), rejected=0)


def app(log: ManualLog, token: str) -> web.Application:
    return otlp_receiver.make_otlp_app(
        log=log,
        take_logs=log.take,
        take_spans=log.take,
        attempt_for=lambda question: 0,
        telemetry=Telemetry(),
        token=token,
    )


def made(log: ManualLog, token: str = "") -> TestServer:
    return TestServer(app(log, token))


ASK_METRICS = b"GET /metrics HTTP/1.1\r\nHost: h\r\n"
PROTOBUF = {"Content-Type": "application/x-protobuf"}


async def post(client: TestClient, path: str) -> int:
    response = await client.post(path, data=b"abc", headers=PROTOBUF)
    return response.status


async def said_to(server: TestServer, sent: bytes) -> bytes:
    """The first line of what is answered to these very bytes."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.readline(), 10)
    finally:
        writer.close()


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


@pytest.mark.parametrize("path", ["/v1/logs", "/v1/traces"])
def test_a_store_that_fails_confirms_nothing_and_says_so_at_once(path: str) -> None:
    async def scenario() -> None:
        log = ManualLog()
        async with TestClient(made(log)) as client:
            asked = asyncio.create_task(post(client, path))
            while not log.arrived:
                await asyncio.sleep(0.01)
            log.not_stored_why = "no space left on device"
            assert await asyncio.wait_for(asked, 1) == 503
            response = await client.post(path, data=b"abc", headers=PROTOBUF)
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert "no space left on device" in await response.text()
            assert log.arrived == 3, "what is refused is not taken in"
            log.not_stored_why, log.stored = "", 6
            assert await post(client, path) == 200

    asyncio.run(scenario())


@pytest.mark.parametrize("token", ["s3cret", "gehe\u00efm", "\udcff"])
@pytest.mark.parametrize("shown", [b"Bearer \xc3\xa9", b"Bearer \xff\xfe", b"\xe2\x82", b"Bearer s3cre", b""])
def test_a_token_of_any_bytes_is_refused_and_nothing_breaks(token: str, shown: bytes) -> None:
    async def scenario() -> bytes:
        async with made(ManualLog(), token) as server:
            return await said_to(server, ASK_METRICS + b"Authorization: " + shown + b"\r\n\r\n")

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 401 ")


def test_a_token_that_is_no_ascii_opens_the_door() -> None:
    async def scenario() -> bytes:
        async with made(ManualLog(), "gehe\u00efm") as server:
            shown = "Bearer gehe\u00efm".encode()
            return await said_to(server, ASK_METRICS + b"Authorization: " + shown + b"\r\n\r\n")

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 200 ")


def test_over_a_socket_the_kernel_says_who_it_is_and_this_user_needs_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> list[int]:
        runner = web.AppRunner(app(ManualLog(), "s3cret"))
        await runner.setup()
        await web.UnixSite(runner, str(tmp_path / "otlp.sock")).start()
        connector = aiohttp.UnixConnector(str(tmp_path / "otlp.sock"))
        async with aiohttp.ClientSession("http://head", connector=connector) as client:
            statuses = []
            for shown in ({}, {"Authorization": "Bearer s3cret"}):
                for is_ours in (True, False):
                    monkeypatch.setattr(query_server, "is_of", lambda asker, user, is_ours=is_ours: is_ours)
                    async with client.get("/metrics", headers=shown) as response:
                        statuses.append(response.status)
            monkeypatch.undo()
            async with client.get("/metrics") as response:
                statuses.append(response.status)
        await runner.cleanup()
        return statuses

    assert asyncio.run(scenario()) == [200, 401, 200, 200, 200]


def test_on_loopback_everybody_needs_the_token() -> None:
    async def scenario() -> bytes:
        async with made(ManualLog(), "s3cret") as server:
            return await said_to(server, ASK_METRICS + b"\r\n")

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 401 ")


def test_a_kind_of_content_that_is_no_text_is_refused_and_nothing_breaks() -> None:
    async def scenario() -> bytes:
        async with made(ManualLog()) as server:
            head = b"POST /v1/logs HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 0\r\n"
            return await said_to(server, head + b"Content-Type: a/\xff\xfe\r\n\r\n")

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 415 ")


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_receiver, "BODY_WITHIN_S", 0.1)

    async def scenario() -> bytes:
        async with made(ManualLog()) as server:
            head = b"POST /v1/logs HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 9\r\n"
            return await said_to(server, head + b"Content-Type: application/x-protobuf\r\n\r\nabc")

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 408 ")
