"""So many senders are heard at once and no more; one that is silent, or dribbles its headers, loses its place."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from pacehound.runtime.head.connections import listen

MOST = 3
ASK = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


@asynccontextmanager
async def served(silent_s: float) -> AsyncIterator[int]:
    """A port behind which there is an application without any path."""
    runner = web.AppRunner(web.Application(), keepalive_timeout=silent_s)
    await runner.setup()
    assert runner.server is not None
    listener = socket.create_server(("127.0.0.1", 0))
    listening = await listen(runner.server, listener, MOST)
    try:
        yield listener.getsockname()[1]
    finally:
        listening.close()
        await runner.cleanup()


async def first_line(port: int) -> tuple[bytes, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(ASK)
    return await asyncio.wait_for(reader.readline(), 10), writer


def test_whoever_comes_when_all_places_are_taken_is_told_to_come_again() -> None:
    async def scenario() -> None:
        async with served(silent_s=60.0) as port:
            answers = [await first_line(port) for _ in range(MOST + 2)]
            statuses = [line.split()[1] for line, _ in answers]
            assert statuses == [b"404"] * MOST + [b"503"] * 2
            for _, writer in answers:
                writer.close()
                await writer.wait_closed()
            while (again := await first_line(port))[0].split()[1] == b"503":
                await asyncio.sleep(0.01)
            assert again[0].split()[1] == b"404"
            again[1].close()

    asyncio.run(scenario())


def test_a_connection_that_dribbles_its_headers_is_closed() -> None:
    async def scenario() -> bytes:
        async with served(silent_s=0.3) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)

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
