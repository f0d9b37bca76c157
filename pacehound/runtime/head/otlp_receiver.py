"""The OTLP receiver: logs and spans over HTTP, as every OpenTelemetry exporter and Collector sends them."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

from aiohttp import web
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from pacehound.bus.otlp_headers import COMMANDS_PATH
from pacehound.errors import PacehoundError
from pacehound.model.codec import MAX_MESSAGE_BYTES
from pacehound.runtime.head.attempts import Answer, Question
from pacehound.runtime.head.exports import PROTOBUF, Exports, Log, Taken, come_again
from pacehound.runtime.head.held_questions import HeldQuestions
from pacehound.runtime.head.query_server import is_from, parse_question
from pacehound.runtime.metric_names import OTLP_REQUESTS
from pacehound.runtime.telemetry import Telemetry

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_otlp_app(
    *,
    log: Log,
    take_logs: Callable[[bytes], Taken],
    take_spans: Callable[[bytes], Taken],
    attempt_for: Callable[[Question], Answer],
    commands: Callable[[str, int], tuple[bytes, int]],
    when_told: Callable[[Callable[[], object]], object],
    telemetry: Telemetry,
    token: str,
) -> web.Application:
    """The web application; when a request is answered, `Exports` says.

    Parameters
    ----------
    log
        Tells what has been stored.
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
    exports = Exports(log, telemetry)
    questions = HeldQuestions(commands, when_told)
    # A command waits for the answer: it does not queue behind what is being taken in.
    asked = ThreadPoolExecutor(1, thread_name_prefix="attempts")

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

    async def logs(request: web.Request) -> web.Response:
        taken = await exports.taken(request, take_logs)
        answer = ExportLogsServiceResponse()
        if taken.rejected:
            answer.partial_success.rejected_log_records = taken.rejected
            answer.partial_success.error_message = taken.reason
        return web.Response(body=answer.SerializeToString(), content_type=PROTOBUF)

    async def traces(request: web.Request) -> web.Response:
        taken = await exports.taken(request, take_spans)
        answer = ExportTraceServiceResponse()
        if taken.rejected:
            answer.partial_success.rejected_spans = taken.rejected
            answer.partial_success.error_message = taken.reason
        return web.Response(body=answer.SerializeToString(), content_type=PROTOBUF)

    async def attempt(request: web.Request) -> web.Response:
        question = parse_question(await request.read())
        try:
            answer = await asyncio.get_running_loop().run_in_executor(asked, attempt_for, question)
        except PacehoundError as error:
            raise come_again(error) from error
        return web.Response(text=json.dumps(answer.document()), content_type="application/json")

    async def healthz(request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=telemetry.render(), headers={"Content-Type": "text/plain; version=0.0.4"})

    async def close(app: web.Application) -> None:
        exports.close()
        asked.shutdown(wait=False, cancel_futures=True)  # it only reads, and the store may take long to answer

    app = web.Application(middlewares=[count, check_token], client_max_size=MAX_MESSAGE_BYTES)
    app.router.add_post("/v1/logs", logs)
    app.router.add_post("/v1/traces", traces)
    app.router.add_post("/v1/attempt", attempt)
    app.router.add_post(COMMANDS_PATH, questions.answer)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", metrics)
    app.on_startup.append(questions.begin)
    app.on_shutdown.append(questions.end)
    app.on_cleanup.append(close)
    return app
