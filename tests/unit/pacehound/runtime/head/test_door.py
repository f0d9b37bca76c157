"""A request is confirmed when what it brought outlives the head, else it comes again; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from head_parts import MemoryStore, parts, sample

from collector.agent.background import ThreadTaskRunner
from collector.agent.delivery import Delivery, Outcome
from collector.agent.outbox import Outbox, Outgoing
from pacehound.bus.mailbox import Mailbox
from pacehound.bus.otlp import OtlpProducer
from pacehound.bus.otlp_headers import COMMANDS_PATH
from pacehound.clock import ManualClock
from pacehound.model import codec
from pacehound.model.events import Command, DeadLetter
from pacehound.runtime.head import exports, otlp_receiver, query_server
from pacehound.runtime.head.attempts import Answer
from pacehound.runtime.head.intake import IngestResult
from pacehound.runtime.head.node import Head
from pacehound.runtime.status import Scrape
from pacehound.runtime.survey import scrape_process
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import Settings


@dataclass
class ManualLog:
    arrived: int = 0
    kept: int = 0
    not_stored_why: str = ""

    def take(self, body: bytes) -> IngestResult:
        self.arrived += len(body)
        return IngestResult(accepted=len(body), rejected=0)


def door_of(head: Head) -> TestServer:
    return TestServer(
        otlp_receiver.make_otlp_app(
            log=head,
            take_logs=head.ingest,
            take_spans=head.ingest,
            attempt_for=head.attempt_for,
            commands=head.commands,
            when_told=head.when_told,
            telemetry=head.telemetry,
            token="",
        )
    )


def app_of(log: ManualLog, token: str = "", **others: Any) -> web.Application:
    commands = {"commands": lambda job, after: (b"", after), "when_told": lambda call: None} | others
    return otlp_receiver.make_otlp_app(
        log=log,
        take_logs=log.take,
        take_spans=log.take,
        attempt_for=lambda question: Answer(0),
        telemetry=Telemetry(),
        token=token,
        **commands,
    )


def made(log: ManualLog, token: str = "") -> TestServer:
    return TestServer(app_of(log, token))


ASK_METRICS = b"GET /metrics HTTP/1.1\r\nHost: h\r\n"
PROTOBUF = {"Content-Type": "application/x-protobuf"}


async def post(client: TestClient, path: str, body: bytes = b"abc") -> int:
    response = await client.post(path, data=body, headers=PROTOBUF)
    return response.status


async def taken(client: TestClient, path: str, body: bytes = b"abc") -> bool:
    """What a sender does: it comes again until it is confirmed."""
    async with asyncio.timeout(5):
        while (status := await post(client, path, body)) == 503:
            pass
    return status == 200


async def asked(client: TestClient, job: str, wait_s: float) -> bytes:
    response = await client.post(COMMANDS_PATH, json={"job": job, "after": 0, "wait_s": wait_s})
    return await response.read()


def command(job: str) -> Command:
    return Command(job=job, attempt=0, time_ns=5, order=b"", key="", signature=b"")


def test_whoever_asks_for_commands_hears_of_one_when_it_comes_and_not_of_others() -> None:
    async def scenario() -> None:
        box = Mailbox(first=0)

        def commands(job: str, after: int) -> tuple[bytes, int]:
            found, number = box.commands(job, after, now_ns=6)
            return b"".join(map(codec.encode, found)), number

        app = app_of(ManualLog(), commands=commands, when_told=box.when_told)
        async with TestClient(TestServer(app)) as client:
            assert await asyncio.wait_for(asked(client, "j", 0.0), 5) == b""
            assert await asyncio.wait_for(asked(client, "j", 0.05), 5) == b""
            waiting = asyncio.create_task(asked(client, "j", 10.0))
            for job, is_done in (("k", False), ("j", True)):
                await asyncio.wait({waiting}, timeout=0.2)
                assert not waiting.done()
                await asyncio.to_thread(box.put, command(job), 6)
                await asyncio.wait({waiting}, timeout=5.0 if is_done else 0.2)
                assert waiting.done() == is_done
            assert codec.decode(await waiting) == [command("j")]
            assert codec.decode(await asked(client, "j", 10.0)) == [command("j")], "it is there already"

    asyncio.run(scenario())


def test_a_head_that_ends_keeps_nobody_waiting_for_commands() -> None:
    async def scenario() -> None:
        async with TestClient(TestServer(app_of(ManualLog()))) as client:
            waiting = asyncio.create_task(asked(client, "j", 10.0))
            await asyncio.wait({waiting}, timeout=0.2)
            assert not waiting.done()
            await asyncio.wait_for(client.server.app.shutdown(), 5)
            assert await asyncio.wait_for(waiting, 5) == b""

    asyncio.run(scenario())


async def said_to(server: TestServer, sent: bytes) -> bytes:
    """The first line of what is answered to these very bytes."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        writer.write(sent)
        return await asyncio.wait_for(reader.readline(), 10)
    finally:
        writer.close()


@pytest.mark.parametrize("path", ["/v1/logs", "/v1/traces"])
def test_an_answer_waits_until_all_that_came_outlives_the_process(path: str) -> None:
    async def scenario() -> None:
        log = ManualLog(arrived=4, kept=4)
        async with TestClient(made(log)) as client:
            asked = asyncio.create_task(post(client, path))
            for kept in (4, 6):
                log.kept = kept
                done, _ = await asyncio.wait({asked}, timeout=0.2)
                assert not done
            log.kept = 7
            assert await asked == 200

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["/v1/logs", "/v1/traces"])
def test_a_store_that_hangs_confirms_nothing_takes_nothing_more_and_nothing_twice(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_STORED_WITHIN_S", 0.1)

    async def scenario() -> None:
        log = ManualLog(arrived=4, kept=4)
        async with TestClient(made(log)) as client:
            assert await post(client, path) == 503
            assert log.arrived == 7
            monkeypatch.setattr(exports, "_STORED_WITHIN_S", 60.0)
            for body in (b"abc", b"others"):
                response = await asyncio.wait_for(client.post(path, data=body, headers=PROTOBUF), 1)
                assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert log.arrived == 7, "what is refused is not looked at"
            log.kept = 7
            assert await taken(client, path)
            assert log.arrived == 7, "it was there already"
            asked = asyncio.create_task(post(client, path))
            while log.arrived < 10:  # what was confirmed and is said again is somebody else's
                await asyncio.sleep(0.01)
            log.kept = 10
            assert await asked == 200

    asyncio.run(scenario())


def test_a_store_that_is_always_too_slow_gets_everything_once_and_confirms_it_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exports, "_STORED_WITHIN_S", 0.05)

    async def scenario() -> None:
        log = ManualLog()
        async with TestClient(made(log)) as client:
            for body in (b"1", b"22", b"333"):
                assert await post(client, "/v1/logs", body) == 503
                log.kept = log.arrived  # after longer than anybody waits
                assert await taken(client, "/v1/logs", body)
            assert log.arrived == 6

    asyncio.run(scenario())


def test_all_bodies_that_are_read_at_one_time_have_a_bound_and_the_next_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exports, "_MOST_BODY_BYTES", 1_000)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow_body() -> AsyncIterator[bytes]:
        yield 900 * b"a"
        begun.set()
        await go_on.wait()
        yield b"a"

    async def scenario() -> None:
        log = ManualLog(kept=10_000)
        async with TestClient(made(log)) as client:
            slow = asyncio.create_task(client.post("/v1/logs", data=slow_body(), headers=PROTOBUF))
            await begun.wait()
            for _ in range(3):  # what is turned away is given back
                response = await client.post("/v1/logs", data=200 * b"b", headers=PROTOBUF)
                while response.status == 200:  # the other one is still on its way
                    response = await client.post("/v1/logs", data=200 * b"b", headers=PROTOBUF)
                assert (response.status, response.headers["Retry-After"]) == (503, "1")
                assert "bytes of requests are being read, 1000 at most" in await response.text()
            go_on.set()
            assert (await slow).status == 200
            for _ in range(9):  # and what was taken, too
                assert await post(client, "/v1/logs", 900 * b"c") == 200

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["/v1/logs", "/v1/traces"])
def test_where_taking_in_hangs_senders_are_told_as_well(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that does not answer holds up the first note about a new job."""
    monkeypatch.setattr(exports, "_STORED_WITHIN_S", 0.1)
    may = threading.Event()

    class Hanging(ManualLog):
        def take(self, body: bytes) -> IngestResult:
            may.wait()
            self.kept += len(body)
            return super().take(body)

    async def scenario() -> None:
        log = Hanging()
        async with TestClient(made(log)) as client:
            try:
                assert [await post(client, path, body) for body in (b"abc", b"abc", b"others")] == [503] * 3
            finally:
                may.set()
            assert await taken(client, path)
            assert log.arrived == 3

    asyncio.run(scenario())


@dataclass
class HangingStore(MemoryStore):
    """Takes what it is given, and does not return before it `may`."""

    may: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__()

    def settle(self) -> list[object]:
        self.may.wait()
        return super().settle()  # type: ignore[no-any-return]


def test_what_an_agent_sends_to_a_hanging_store_is_there_once_when_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that cannot be read among it, and more waiting each time that it comes again."""
    monkeypatch.setattr(exports, "_STORED_WITHIN_S", 0.1)
    store = HangingStore()
    clock = ManualClock(0)
    head = Head(settings=Settings(), parts=parts(store), clock=clock)
    head.start()
    outbox = Outbox(None, 1 << 20)
    messages = [codec.encode(sample(time_ns=n)) for n in range(6)]
    messages[1] = messages[1].replace(b"pacehound.host", b"pacehound.hose")

    async def scenario(server: TestServer) -> None:
        async with server:
            tasks: ThreadTaskRunner[Outcome] = ThreadTaskRunner("sending")
            delivery = Delivery(outbox, OtlpProducer(str(server.make_url(""))), tasks)
            for now_s in itertools.count(0, 100):  # no pause is that long
                outbox.save([Outgoing(kind="host", stream="h", payload=one) for one in messages[:2]], b"", 0)
                del messages[:2]
                delivery.step(now_s * 10**9)
                while not tasks.is_idle() and not tasks.finished.is_set():
                    await asyncio.sleep(0.01)
                tasks.finished.clear()
                if now_s == 300:
                    clock.advance_s(7.0)
                    assert "store waits: no answer for 7 s" in head.health().problems
                    assert delivery.receiver_said
                    store.may.set()
                if not messages and delivery.is_done:
                    break
            assert delivery.counts.taken_messages == 6
            assert delivery.counts.rejected_records == 1
            tasks.close(5.0)

    asyncio.run(scenario(door_of(head)))
    assert head.stop()
    times = [event.time_ns for event in store.events() if not isinstance(event, DeadLetter)]
    assert sorted(times) == [0, 2, 3, 4, 5]
    assert len(store.events()) == 6, "and the letter once"


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
            log.not_stored_why, log.kept = "", 6
            assert await taken(client, path)
            assert log.arrived == 3, "it was there already"

    asyncio.run(scenario())


@pytest.mark.parametrize("token", ["s3cret", "gehe\u00efm", "\udcff"])
@pytest.mark.parametrize("shown", [b"Bearer \xc3\xa9", b"Bearer \xff\xfe", b"\xe2\x82", b"Bearer s3cre", b""])
def test_a_token_of_any_bytes_is_refused_and_nothing_breaks(token: str, shown: bytes) -> None:
    async def scenario() -> bytes:
        async with made(ManualLog(), token) as server:
            return await said_to(server, ASK_METRICS + b"Authorization: " + shown + b"\r\n\r\n")

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    ("token", "problem"), [("s3cret", ""), ("", "it asks for a token"), ("wrong", "it asks for another token")]
)
def test_a_survey_shows_the_token_to_a_head_that_asks_for_it(token: str, problem: str) -> None:
    async def scenario() -> Scrape:
        async with made(ManualLog(), "s3cret") as server:
            return await asyncio.to_thread(scrape_process, str(server.make_url("")), ManualClock(), token)

    found = asyncio.run(scenario())
    assert problem in found.problem
    assert bool(found.problem) == bool(problem) == (not found.samples)


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
        runner = web.AppRunner(app_of(ManualLog(), "s3cret"))
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
    monkeypatch.setattr(exports, "BODY_WITHIN_S", 0.1)

    async def scenario() -> bytes:
        async with made(ManualLog()) as server:
            head = b"POST /v1/logs HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 9\r\n"
            return await said_to(server, head + b"Content-Type: application/x-protobuf\r\n\r\nabc")

    assert asyncio.run(scenario()).startswith(b"HTTP/1.1 408 ")
