"""What commands ask: incidents, SQL, status, shutdown and leases, over a unix socket that only this user can open."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from aiohttp import web

from pacehound.errors import InvalidInput, PacehoundError
from pacehound.model.events import CommandResult, Decision, Incident
from pacehound.model.json_documents import UNREADABLE_JSON
from pacehound.runtime.head.attempts import Answer, Question
from pacehound.runtime.head.client import Asked, Health, IncidentsAnswer, ResultsAnswer
from pacehound.runtime.metric_names import LEASES
from pacehound.runtime.telemetry import Telemetry

_LONGEST_SETTLE_S = 60.0


class Answers(Protocol):
    """What it asks the head."""

    def incidents(self, job: str | None = None) -> list[Incident]:
        """The latest version of each incident."""
        ...

    def decisions(self) -> list[Decision]:
        """Every decision."""
        ...

    def ask(self, name: str, parameters: Mapping[str, Any]) -> pa.Table:
        """Rows of one of the store's own named queries."""
        ...

    def query(self, sql: str) -> pa.Table:
        """Rows of a reading statement."""
        ...

    def settle(self, timeout_s: float) -> bool:
        """Wait until everything that has arrived is stored."""
        ...

    def jobs(self) -> list[str]:
        """Jobs that are being watched."""
        ...

    def health(self) -> Health:
        """What is not as it should be."""
        ...

    def attempt_for(self, question: Question) -> Answer:
        """Which attempt of its job a run is that begins now."""
        ...

    def take_command(self, body: bytes) -> None:
        """Take a signed order in, for the agents of its job."""
        ...

    def commands(self, job: str, after: int) -> tuple[bytes, int]:
        """Those that wait for the agents of a job, and the number to ask for next."""
        ...

    def when_told(self, call: Callable[[], object]) -> None:
        """Have this called with each command that comes, by any thread."""
        ...

    def results(self, job: str, after: int) -> tuple[list[CommandResult], int]:
        """What agents have answered, and the number to ask for next."""
        ...


class Leases:
    """Who holds this head open; when the last lease has gone, `on_last_gone` is called.

    >>> ended = []
    >>> leases = Leases(lambda: ended.append(True))
    >>> leases.take("job"), leases.take("job"), leases.give_back("job"), ended
    (None, None, None, [])
    >>> leases.give_back("job"), ended
    (None, [True])
    """

    def __init__(self, on_last_gone: Callable[[], object]) -> None:
        self._on_last_gone = on_last_gone
        self._jobs: list[str] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def take(self, job: str) -> None:
        """One more run."""
        self._jobs.append(job)

    def give_back(self, job: str) -> None:
        """One run less."""
        self._jobs.remove(job)
        if not self._jobs:
            self._on_last_gone()


def make_desk(
    *,
    head: Answers,
    leases: Leases,
    telemetry: Telemetry,
    info: dict[str, Any],
    shut_down: Callable[[], object],
) -> web.Application:
    """The web application behind the socket; `info` is added to what `/status` answers."""
    # Apart: whoever begins a run waits neither for a long question nor for those who wait for the end of theirs.
    questions = ThreadPoolExecutor(2, thread_name_prefix="questions")
    attempts = ThreadPoolExecutor(1, thread_name_prefix="attempts")
    threads = ThreadPoolExecutor(4, thread_name_prefix="desk")
    telemetry.observe(LEASES, lambda: float(len(leases)))

    async def aside(work: Callable[..., Any], *args: Any, on: ThreadPoolExecutor = threads) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(on, work, *args)
        except InvalidInput as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        except PacehoundError as error:
            raise web.HTTPServiceUnavailable(text=str(error)) from error

    async def status(request: web.Request) -> web.Response:
        health = msgspec.to_builtins(head.health())
        return _json({"pid": os.getpid(), "leases": len(leases), "jobs": head.jobs(), "health": health, **info})

    async def incidents(request: web.Request) -> web.Response:
        job = request.query.get("job")
        answer = IncidentsAnswer(incidents=await aside(head.incidents, job), decisions=await aside(head.decisions))
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    async def sql(request: web.Request) -> web.Response:
        try:
            statement = str((await request.json())["sql"])
        except (ValueError, KeyError, TypeError) as error:
            raise web.HTTPBadRequest(text='send {"sql": "SELECT …"}') from error
        return await rows(head.query, statement)

    async def ask(request: web.Request) -> web.Response:
        try:
            asked = msgspec.json.decode(await request.read(), type=Asked)
        except UNREADABLE_JSON as error:
            raise web.HTTPBadRequest(text=f'send {{"name": "QUERY", "parameters": {{…}}}}: {error}') from error
        return await rows(head.ask, asked.name, asked.parameters)

    async def rows(question: Callable[..., pa.Table], *words: Any) -> web.Response:
        table: pa.Table = await aside(question, *words, on=questions)
        body = await aside(_arrow, table, on=questions)
        return web.Response(body=body, content_type="application/vnd.apache.arrow.stream")

    async def settle(request: web.Request) -> web.Response:
        try:
            timeout_s = min(float(request.query.get("timeout_s", "10")), _LONGEST_SETTLE_S)
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"timeout_s: {error}") from error
        return _json({"settled": await aside(head.settle, timeout_s)})

    async def attempt(request: web.Request) -> web.Response:
        question = parse_question(await request.read())
        answer = await aside(head.attempt_for, question, on=attempts)
        return _json(answer.document())

    async def command(request: web.Request) -> web.Response:
        await aside(head.take_command, await request.read())
        return _json({"taken": True})

    async def results(request: web.Request) -> web.Response:
        try:
            after = int(request.query.get("after", "0"))
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"after: {error}") from error
        found, number = head.results(request.query.get("job", ""), after)
        return web.Response(
            body=msgspec.json.encode(ResultsAnswer(results=found, after=number)), content_type="application/json"
        )

    async def shutdown(request: web.Request) -> web.Response:
        asyncio.get_running_loop().call_later(0.1, shut_down)
        return _json({"ending": True})

    async def lease(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        job = request.query.get("job", "")
        leases.take(job)
        try:
            await response.write(b".")
            # The answer never ends: it is cancelled when the other side is gone, however it went (`serve`).
            await asyncio.Event().wait()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            leases.give_back(job)
        return response

    async def close(app: web.Application) -> None:
        for pool in (questions, attempts, threads):
            pool.shutdown(wait=False, cancel_futures=True)

    @web.middleware
    async def check_user(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        # The socket lies where others may have been given access to: the kernel says who is at its other end.
        if not is_from(request, os.getuid()):
            raise web.HTTPForbidden(text=f"this head answers user {os.getuid()} alone\n")
        return await handler(request)

    app = web.Application(middlewares=[check_user])
    app.router.add_get("/status", status)
    app.router.add_get("/incidents", incidents)
    app.router.add_post("/sql", sql)
    app.router.add_post("/ask", ask)
    app.router.add_post("/settle", settle)
    app.router.add_post("/v1/attempt", attempt)
    app.router.add_post("/command", command)
    app.router.add_get("/results", results)
    app.router.add_post("/shutdown", shutdown)
    app.router.add_get("/lease", lease)
    app.on_cleanup.append(close)
    return app


def is_from(request: web.Request, user: int) -> bool:
    """Whether it is the user's, or root's, over a unix socket."""
    asker = None if request.transport is None else request.transport.get_extra_info("socket")
    return asker is not None and is_of(asker, user)


def is_of(connection: socket.socket, user: int) -> bool:
    """Whether the process at the other end of a unix socket is the user's, or root's; nobody else's, nor from afar."""
    if connection.family != socket.AF_UNIX:
        return False
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return uid in (user, 0)


def parse_question(body: bytes) -> Question:
    """What is asked at `/v1/attempt`; anything else is answered with 400."""
    try:
        return msgspec.json.decode(body, type=Question)
    except UNREADABLE_JSON as error:
        raise web.HTTPBadRequest(text=f'send {{"job": "NAME", "host": "NAME"}}: {error}\n') from error


def _json(answer: dict[str, Any]) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream
