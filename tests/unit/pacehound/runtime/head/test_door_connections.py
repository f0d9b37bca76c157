"""So many senders are heard at once and no more; one that is silent, or dribbles its headers, loses its place."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from pacehound.bus.tls import Trust
from pacehound.runtime.head import connections
from pacehound.runtime.head.certificate import Certificate, certificate_for
from pacehound.runtime.head.connections import listen
from pacehound.settings import TlsSettings

MOST = 3
ASK = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.fixture(params=["plain", "tls"])
def certificate(request: pytest.FixtureRequest, tmp_path: Path) -> Certificate | None:
    return certificate_for(TlsSettings(), tmp_path, asked=request.param == "tls", is_reachable=False)


@pytest.fixture
def own(tmp_path: Path) -> Certificate:
    made = certificate_for(TlsSettings(), tmp_path, asked=True, is_reachable=False)
    assert made is not None
    return made


@asynccontextmanager
async def served(silent_s: float, certificate: Certificate | None) -> AsyncIterator[int]:
    """A port behind which there is an application without any path."""
    runner = web.AppRunner(web.Application(), keepalive_timeout=silent_s)
    await runner.setup()
    assert runner.server is not None
    listener = socket.create_server(("127.0.0.1", 0))
    listening = await listen(runner.server, listener, MOST, certificate.context if certificate is not None else None)
    try:
        yield listener.getsockname()[1]
    finally:
        listening.close()
        await runner.cleanup()


async def connected(port: int, certificate: Certificate | None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    tls = Trust(pin=certificate.pin).context() if certificate is not None else None
    return await asyncio.open_connection("127.0.0.1", port, ssl=tls)


async def answer(port: int, certificate: Certificate | None) -> tuple[str, asyncio.StreamWriter | None]:
    """The status of an answer; nothing, where TLS does not even begin."""
    try:
        reader, writer = await connected(port, certificate)
    except OSError:
        return "", None
    writer.write(ASK)
    return (await asyncio.wait_for(reader.readline(), 10)).split()[1].decode(), writer


async def answer_when_there_is_a_place(port: int, certificate: Certificate | None) -> str:
    while (found := await answer(port, certificate))[0] in ("", "503"):
        await asyncio.sleep(0.01)
    assert found[1] is not None
    found[1].close()
    return found[0]


def test_whoever_comes_when_all_places_are_taken_is_told_to_come_again(certificate: Certificate | None) -> None:
    async def scenario() -> None:
        async with served(silent_s=60.0, certificate=certificate) as port:
            answers = [await answer(port, certificate) for _ in range(MOST + 2)]
            told = "503" if certificate is None else ""
            assert [status for status, _ in answers] == ["404"] * MOST + [told] * 2
            for _, writer in answers:
                if writer is not None:
                    writer.close()
                    await writer.wait_closed()
            assert await answer_when_there_is_a_place(port, certificate) == "404"

    asyncio.run(scenario())


def test_whoever_is_silent_before_tls_has_begun_takes_a_place_and_not_for_long(
    own: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HANDSHAKE_WITHIN_S", 1.0)

    async def scenario() -> None:
        async with served(silent_s=60.0, certificate=own) as port:
            silent = [await connected(port, None) for _ in range(MOST)]
            late, gone = await connected(port, None)
            assert await asyncio.wait_for(late.read(), 10) == b""
            assert not any(reader.at_eof() for reader, _ in silent), "it is turned away at once, before they are"
            gone.close()
            for reader, writer in silent:
                assert await asyncio.wait_for(reader.read(), 10) == b""
                writer.close()
            assert await answer_when_there_is_a_place(port, own) == "404"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "sent",
    [ASK, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40), b"\xff" * 70_000, b"\x16"],
    ids=["plain HTTP", "half a hello", "garbage", "one byte, and gone"],
)
def test_whoever_speaks_no_tls_is_let_go_and_nobody_else_waits(
    sent: bytes, own: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with served(silent_s=60.0, certificate=own) as port:
            for _ in range(3 * MOST):
                _, writer = await connected(port, None)
                writer.write(sent)
                if writer.can_write_eof():
                    writer.write_eof()
                assert await answer_when_there_is_a_place(port, own) == "404"
                writer.close()

    asyncio.run(scenario())
    assert caplog.records == [], "a stranger writes nothing into the log"


def test_a_request_in_the_same_packet_as_the_end_of_the_handshake_is_answered(own: Certificate) -> None:
    """Most clients send it so."""

    def client(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            secured = Trust(pin=own.pin).context().wrap_bio(incoming, outgoing)
            while True:
                try:
                    secured.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    raw.sendall(outgoing.read())
                    incoming.write(raw.recv(65_536))
            secured.write(ASK)
            raw.sendall(outgoing.read())
            while True:
                try:
                    return secured.read(12)
                except ssl.SSLWantReadError:
                    incoming.write(raw.recv(65_536))

    async def scenario() -> bytes:
        async with served(silent_s=60.0, certificate=own) as port:
            return await asyncio.to_thread(client, port)

    assert asyncio.run(scenario()) == b"HTTP/1.1 404"


def test_a_connection_that_dribbles_its_headers_is_closed(certificate: Certificate | None) -> None:
    async def scenario() -> bytes:
        async with served(silent_s=0.3, certificate=certificate) as port:
            reader, writer = await connected(port, certificate)

            async def dribble() -> None:
                for byte in ASK * 100:
                    writer.write(bytes([byte]) if byte != ASK[-1] else b"x")
                    await asyncio.sleep(0.02)

            dribbling = asyncio.create_task(dribble())
            try:
                return await asyncio.wait_for(reader.read(), 10)
            except ConnectionError:
                return b""
            finally:
                dribbling.cancel()
                writer.close()

    assert asyncio.run(scenario()) == b""
