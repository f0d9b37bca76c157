"""The OTLP receiver: logs and spans over HTTP, as every OpenTelemetry exporter and Collector sends them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

import msgspec
from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from pacehound.bus.otlp_headers import AFTER_HEADER, COMMANDS_PATH
from pacehound.errors import BusFull, PacehoundError, RejectedMessage
from pacehound.model.codec import MAX_MESSAGE_BYTES
from pacehound.model.json_documents import UNREADABLE_JSON
from pacehound.runtime.head.attempts import Question
from pacehound.runtime.head.connections import BODY_WITHIN_S, MOST_CONNECTIONS
from pacehound.runtime.head.query_server import is_from, parse_question
from pacehound.runtime.metric_names import OTLP_BYTES, OTLP_REQUESTS
from pacehound.runtime.telemetry import Telemetry

logger = logging.getLogger(__name__)

PROTOBUF = "application/x-protobuf"
_STORED_WITHIN_S = 5.0
"""Half of what an exporter of OpenTelemetry waits, and our agents."""
_STORED_POLL_S = 0.02
_MOST_BODY_BYTES = 4 * MAX_MESSAGE_BYTES
"""Of all bodies that are read or wait for their turn at one time: 128 requests of agents, and as much as the bus."""
_MOST_UNCONFIRMED = MOST_CONNECTIONS
"""Each sender has one request on its way."""
_RETRY_AFTER_S = 1
_LONGEST_WAIT_S = 10.0
"""For commands: less than what proxies let a connection be silent for."""
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class CommandQuestion(msgspec.Struct, kw_only=True, frozen=True):
    """What an agent asks: commands for its job that came after a number."""

    job: str
    after: int = 0
    wait_s: float = 0.0
    """So long the answer may take, where there is none yet."""


class Taken(Protocol):
    """What became of the records of one request."""

    @property
    def rejected(self) -> int:
        """Records that went to the dead letters."""
        ...

    @property
    def reason(self) -> str:
        """Why, in short."""
        ...


class Log(Protocol):
    """What has arrived, and how much of it outlives this process."""

    @property
    def arrived(self) -> int:
        """Messages that were taken in."""
        ...

    @property
    def kept(self) -> int:
        """How many of them, from the first on, outlive this process, or were given up and counted."""
        ...

    @property
    def not_stored_why(self) -> str:
        """Why nothing can be stored now; empty where it can."""
        ...


def make_otlp_app(
    *,
    log: Log,
    take_logs: Callable[[bytes], Taken],
    take_spans: Callable[[bytes], Taken],
    attempt_for: Callable[[Question], int],
    commands: Callable[[str, int], tuple[bytes, int]],
    when_told: Callable[[Callable[[], object]], object],
    telemetry: Telemetry,
    token: str,
) -> web.Application:
    """The web application; `take_logs` and `take_spans` run on one thread, in the order in which requests arrive.

    A request is answered when what it brought is stored, or stands in the journal, which the next head stores: whoever
    has the answer may forget it, also if this process is killed in the next moment. Where the store fails, or takes
    longer than senders wait, they keep what they have and come again (503); until it has written what it was given
    nothing more is taken in. What was taken in and not confirmed is known by its bytes when it comes again, and waited
    for instead of taken in twice: a store that is too slow does not get ever more to write.

    Parameters
    ----------
    log
        Tells when that is so.
    take_logs, take_spans
        The body of an export request in; `BusFull` and `RejectedMessage` become 503 and 400.
    attempt_for
        Which attempt of its job a run is that begins now; runs on a thread of its own.
    commands
        What waits for the agents of a job, and the number to ask for next.
    when_told
        Has something called with each command that comes, by any thread.
    telemetry
        Counts requests and bytes, and is rendered at `/metrics`.
    token
        Asked for as `Authorization: Bearer …` on every path but `/healthz`, of all but this user and root where they
        come over a unix socket; empty: nobody is asked.

    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="otlp")
    # A command waits for the answer: it does not queue behind what is being taken in.
    asked = ThreadPoolExecutor(1, thread_name_prefix="attempts")
    unconfirmed: dict[bytes, asyncio.Task[Taken]] = {}  # by the digest of the request
    body_bytes = 0
    late: set[asyncio.Task[Taken]] = set()  # those that a sender has waited for in vain
    waiting: set[asyncio.Event] = set()  # of agents that have asked for commands
    is_ending = False

    @web.middleware
    async def check_token(request: web.Request, handler: _Handler) -> web.StreamResponse:
        if token and request.path != "/healthz" and not is_from(request, os.getuid()):
            # What is no UTF-8 comes as halves of characters, from the network and from the environment alike.
            shown = request.headers.get("Authorization", "").encode(errors="surrogateescape")
            if not hmac.compare_digest(shown, f"Bearer {token}".encode(errors="surrogateescape")):
                raise web.HTTPUnauthorized(
                    text="show the head's token as 'Authorization: Bearer TOKEN'\n",
                    headers={"WWW-Authenticate": "Bearer"},
                )
        return await handler(request)

    @web.middleware
    async def count(request: web.Request, handler: _Handler) -> web.StreamResponse:
        path = request.path if request.match_info.route.resource is not None else "other"
        try:
            response = await handler(request)
        except web.HTTPException as error:
            telemetry.add(OTLP_REQUESTS, path=path, status=str(error.status))
            raise
        telemetry.add(OTLP_REQUESTS, path=path, status=str(response.status))
        return response

    async def export(request: web.Request, take: Callable[[bytes], Taken]) -> Taken:
        if request.content_type != PROTOBUF:
            raise web.HTTPUnsupportedMediaType(text=f"send {PROTOBUF}, not {request.content_type!a}\n")
        if request.headers.get("Content-Encoding", "identity") not in ("gzip", "identity"):
            raise web.HTTPUnsupportedMediaType(text="send gzip or no compression\n")
        make_sure_of_the_store()
        try:
            async with asyncio.timeout(BODY_WITHIN_S):
                body = await read_body(request)
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(text=f"the body has not come within {BODY_WITHIN_S:g} s\n") from error
        except web.RequestPayloadError as error:
            raise web.HTTPBadRequest(text=f"the body cannot be read: {error}\n") from error
        telemetry.add(OTLP_BYTES, len(body))
        hashed = hashlib.blake2b(request.path.encode(), digest_size=16)
        hashed.update(body)
        name = hashed.digest()
        keeping = unconfirmed.get(name)
        if keeping is not None:
            give_back(len(body))
        else:
            keeping = unconfirmed[name] = asyncio.create_task(keep(take, body))
            keeping.add_done_callback(ended)
            if len(unconfirmed) > _MOST_UNCONFIRMED:
                del unconfirmed[next(iter(unconfirmed))]
        await until_kept(keeping)
        unconfirmed.pop(name, None)
        try:
            return keeping.result()
        except BusFull as error:
            raise come_again(error) from error
        except RejectedMessage as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error

    async def read_body(request: web.Request) -> bytes:
        nonlocal body_bytes
        body = bytearray()
        try:
            async for chunk in request.content.iter_any():
                body += chunk
                body_bytes += len(chunk)
                if len(body) > MAX_MESSAGE_BYTES:
                    raise web.HTTPRequestEntityTooLarge(max_size=MAX_MESSAGE_BYTES, actual_size=len(body))
                if body_bytes > _MOST_BODY_BYTES:
                    raise come_again(f"{body_bytes} bytes of requests are being read, {_MOST_BODY_BYTES} at most")
        except BaseException:
            give_back(len(body))
            raise
        return bytes(body)

    def give_back(n_bytes: int) -> None:
        nonlocal body_bytes
        body_bytes -= n_bytes

    async def keep(take: Callable[[bytes], Taken], body: bytes) -> Taken:
        """Goes on when its sender has left: what was taken in must be known when it comes again."""
        try:
            taken = await asyncio.get_running_loop().run_in_executor(thread, take_if_it_can_be_stored, take, body)
        finally:
            give_back(len(body))
            del body
        position = log.arrived
        while log.kept < position:
            await asyncio.sleep(_STORED_POLL_S)
        return taken

    def ended(keeping: asyncio.Task[Taken]) -> None:
        late.discard(keeping)
        if not keeping.cancelled():
            keeping.exception()  # whoever comes again is told; nobody may

    async def until_kept(keeping: asyncio.Task[Taken]) -> None:
        waited_s = 0.0
        while not keeping.done():
            if log.not_stored_why or waited_s >= _STORED_WITHIN_S:
                late.add(keeping)
                make_sure_of_the_store()
            await asyncio.wait((keeping,), timeout=_STORED_POLL_S)
            waited_s += _STORED_POLL_S

    def take_if_it_can_be_stored(take: Callable[[bytes], Taken], body: bytes) -> Taken:
        if reason := why_not_now():  # it may have become so while this one waited for its turn
            raise BusFull(reason)
        return take(body)

    def why_not_now() -> str:
        if log.not_stored_why:
            return f"nothing can be stored now: {log.not_stored_why}"
        return f"what came before has not been stored in {_STORED_WITHIN_S:g} s" if late else ""

    def make_sure_of_the_store() -> None:
        if reason := why_not_now():
            raise come_again(reason)

    async def logs(request: web.Request) -> web.Response:
        taken = await export(request, take_logs)
        answer = ExportLogsServiceResponse()
        if taken.rejected:
            answer.partial_success.rejected_log_records = taken.rejected
            answer.partial_success.error_message = taken.reason
        return web.Response(body=answer.SerializeToString(), content_type=PROTOBUF)

    async def traces(request: web.Request) -> web.Response:
        taken = await export(request, take_spans)
        answer = ExportTraceServiceResponse()
        if taken.rejected:
            answer.partial_success.rejected_spans = taken.rejected
            answer.partial_success.error_message = taken.reason
        return web.Response(body=answer.SerializeToString(), content_type=PROTOBUF)

    async def attempt(request: web.Request) -> web.Response:
        question = parse_question(await request.read())
        try:
            number = await asyncio.get_running_loop().run_in_executor(asked, attempt_for, question)
        except PacehoundError as error:
            raise come_again(error) from error
        return web.Response(text=json.dumps({"attempt": number}), content_type="application/json")

    async def orders(request: web.Request) -> web.Response:
        try:
            asked = msgspec.json.decode(await request.read(), type=CommandQuestion)
        except UNREADABLE_JSON as error:
            raise web.HTTPBadRequest(text=f'send {{"job": "NAME", "after": 0}}: {error}\n') from error
        news = asyncio.Event()
        waiting.add(news)
        try:
            body, number = commands(asked.job, asked.after)
            async with asyncio.timeout(min(max(asked.wait_s, 0.0), _LONGEST_WAIT_S)):
                while not (body or is_ending):
                    await news.wait()
                    news.clear()
                    body, number = commands(asked.job, asked.after)
        except TimeoutError:
            pass
        finally:
            waiting.discard(news)
        return web.Response(body=body, content_type=PROTOBUF, headers={AFTER_HEADER: str(number)})

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=telemetry.render(), headers={"Content-Type": "text/plain; version=0.0.4"})

    def wake() -> None:
        for news in waiting:
            news.set()

    async def begin(app: web.Application) -> None:
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(wake)

        when_told(tell)

    async def end(app: web.Application) -> None:
        nonlocal is_ending
        is_ending = True
        wake()

    async def close(app: web.Application) -> None:
        thread.shutdown(wait=True)
        asked.shutdown(wait=False, cancel_futures=True)  # it only reads, and the store may take long to answer

    def come_again(why: object) -> web.HTTPServiceUnavailable:
        return web.HTTPServiceUnavailable(text=f"{why}\n", headers={"Retry-After": str(_RETRY_AFTER_S)})

    app = web.Application(middlewares=[count, check_token], client_max_size=MAX_MESSAGE_BYTES)
    app.router.add_post("/v1/logs", logs)
    app.router.add_post("/v1/traces", traces)
    app.router.add_post("/v1/attempt", attempt)
    app.router.add_post(COMMANDS_PATH, orders)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", metrics)
    app.on_startup.append(begin)
    app.on_shutdown.append(end)
    app.on_cleanup.append(close)
    return app
