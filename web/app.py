"""The page's web application: its files, what its views ask, and a stream that says when there is something new."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import msgspec
from aiohttp import web

from pacehound.errors import InvalidInput, PacehoundError
from web.answers.fleet import fleet
from web.answers.incidents import incident, incidents
from web.answers.job import job, steps
from web.answers.jobs import jobs
from web.answers.places import places
from web.answers.prices import prices, straggling
from web.answers.rounds import one_round, rank_times, rounds
from web.approving import Approvals, Approving
from web.gate import HEADERS, SESSION_S, Gate
from web.live import News
from web.source import Source

logger = logging.getLogger(__name__)

MOST_QUESTIONS = 2
"""At a time: who looks at the page must not hold up who writes the store."""
MOST_WAITING = 200
"""Questions that wait; the next is told to come again."""
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_LARGEST_STEP = 2**62
Answer = dict[str, Any] | None
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_page(
    source: Source, gate: Gate, *, is_tls: bool = False, approvals: Approvals | None = None
) -> web.Application:
    """The application; it changes nothing, but hands over what whoever may answer says to what waits (`approvals`)."""
    pool = ThreadPoolExecutor(MOST_QUESTIONS, thread_name_prefix="page")
    waiting = 0

    async def asked(question: Callable[..., Any], *words: Any) -> Any:
        nonlocal waiting
        if waiting >= MOST_WAITING:
            raise web.HTTPServiceUnavailable(
                text="too many questions at once: ask again\n", headers={"Retry-After": "1"}
            )
        waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, question, source, *words)
        except InvalidInput as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        except PacehoundError as error:
            raise _busy(str(error), after_s=2) from error
        finally:
            waiting -= 1

    async def version() -> str:
        try:
            return str(await asked(lambda source: source.rows("page/version")[0]))
        except web.HTTPException as error:
            logger.warning("the page does not know what is new: %s", error.text)
            return ""

    news = News(version)

    def view(question: Callable[..., Answer], *parameters: Callable[[web.Request], Any]) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            found = await asked(question, *(read(request) for read in parameters))
            if found is None:
                raise web.HTTPNotFound(text="the history knows nothing of it\n")
            return web.Response(body=msgspec.json.encode(found), content_type="application/json")

        return answer

    async def shares(request: web.Request) -> web.Response:
        found = await asked(rank_times, request.match_info["incident"])
        if found is None:
            raise web.HTTPNotFound(text="no calls are kept for this incident\n")
        about, cells = found
        # A line of JSON, then the cells as they lie in memory: numbers of a million cells are no text.
        body = msgspec.json.encode(about) + b"\n" + cells.astype("<f4").tobytes()
        return web.Response(body=body, content_type="application/octet-stream")

    async def session(request: web.Request) -> web.Response:
        if not gate.knows(request.headers.get("Authorization", "")):
            raise web.HTTPUnauthorized(text="this is not the token of this page\n")
        response = web.Response(status=204)
        session = gate.session(request.headers.get("Authorization", ""))
        response.set_cookie(
            gate.cookie, session, max_age=SESSION_S, httponly=True, samesite="Strict", secure=is_tls, path="/"
        )
        return response

    async def answering(request: web.Request) -> web.Response:
        """Whether this browser may answer what waits."""
        may = gate.may_answer(request.headers.get("Authorization", ""), request.cookies.get(gate.cookie, ""))
        return web.json_response({"may_answer": may and approvals is not None})

    async def live(request: web.Request) -> web.StreamResponse:
        if news.is_full:
            raise _busy("too many pages listen already", after_s=30)
        queue = news.listen()
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
            await response.prepare(request)
            await response.write(b"retry: 3000\n\n")
            while True:
                try:
                    said = await asyncio.wait_for(queue.get(), 15.0)
                    await response.write(f"data: {said}\n\n".encode())
                except TimeoutError:
                    await response.write(b": nothing new\n\n")  # finds out whether anybody still listens
        except (ConnectionError, asyncio.CancelledError):
            return response
        finally:
            await news.leave(queue)

    static = _static()

    async def file(request: web.Request) -> web.Response:
        found = static.get(request.path.lstrip("/") or "index.html")
        if found is None:
            raise web.HTTPNotFound(text="there is no such page\n")
        content_type, body = found
        return web.Response(
            body=body, content_type=content_type, charset="utf-8", headers={"Cache-Control": "no-cache"}
        )

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        is_open = not request.path.startswith("/api/") or request.path == "/api/session"
        is_answer = request.method == "POST" and request.path.startswith("/api/decisions/")
        refused = gate.refusal(
            request.method,
            request.headers.get("Host", ""),
            request.headers,
            request.cookies,
            is_open=is_open,
            is_answer=is_answer,
        )
        if refused is not None:
            return web.Response(status=refused.status, text=f"{refused.reason}\n", headers=dict(HEADERS))
        return await handler(request)

    async def put_headers(request: web.Request, response: web.StreamResponse) -> None:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if request.path.startswith("/api/"):
            response.headers.setdefault("Cache-Control", "no-store")

    async def close(app: web.Application) -> None:
        pool.shutdown(wait=False, cancel_futures=True)

    app = web.Application(middlewares=[guard], client_max_size=1024)
    app.on_response_prepare.append(put_headers)
    app.on_cleanup.append(close)
    app.router.add_get("/api/jobs", view(jobs))
    app.router.add_get("/api/job", view(job, _text("job"), _optional("attempt")))
    app.router.add_get("/api/steps", view(steps, _text("job"), _whole("attempt"), _whole("first"), _whole("until")))
    app.router.add_get("/api/places", view(places, _text("job"), _whole("attempt")))
    app.router.add_get("/api/prices", view(prices, _text("job"), _whole("attempt")))
    window = (_text("job"), _whole("attempt"), _whole("first"), _whole("until"))
    app.router.add_get("/api/straggling", view(straggling, *window))
    app.router.add_get("/api/incidents", view(incidents))
    app.router.add_get("/api/incidents/{incident}", view(incident, _named))
    app.router.add_get("/api/incidents/{incident}/rounds", view(rounds, _named))
    app.router.add_get("/api/incidents/{incident}/round", view(one_round, _named, _text("communicator"), _whole("seq")))
    app.router.add_get("/api/incidents/{incident}/shares", shares)
    app.router.add_get("/api/fleet", view(fleet))
    app.router.add_get("/api/live", live)
    app.router.add_get("/api/answering", answering)
    app.router.add_post("/api/session", session)
    if approvals is not None:
        approving = Approving(approvals, source, asked)
        app.router.add_get("/approve/{decision:[0-9a-f]{32}}", approving.show)
        app.router.add_post("/approve/{decision:[0-9a-f]{32}}", approving.answer)
        app.router.add_post("/api/decisions/{decision:[0-9a-f]{32}}", approving.answer_on_the_page)
    app.router.add_get("/{path:.*}", file)
    return app


def _busy(why: str, *, after_s: int) -> web.HTTPServiceUnavailable:
    return web.HTTPServiceUnavailable(text=f"{why}\n", headers={"Retry-After": str(after_s)})


def _named(request: web.Request) -> str:
    return request.match_info["incident"]


def _text(name: str) -> Callable[[web.Request], str]:
    def read(request: web.Request) -> str:
        if name not in request.query:
            raise web.HTTPBadRequest(text=f"{name} is missing\n")
        return request.query[name]

    return read


def _whole(name: str) -> Callable[[web.Request], int]:
    def read(request: web.Request) -> int:
        text = _text(name)(request)
        try:
            number = int(text[:20])
        except ValueError:
            raise web.HTTPBadRequest(text=f"{name}={text[:80]!r} is no whole number\n") from None
        if abs(number) > _LARGEST_STEP:
            raise web.HTTPBadRequest(text=f"{name}={number} is too large\n")
        return number

    return read


def _optional(name: str) -> Callable[[web.Request], int | None]:
    return lambda request: _whole(name)(request) if name in request.query else None


def _static() -> dict[str, tuple[str, bytes]]:
    """The files of the page by their path: read once, so that no request touches the disk."""
    found: dict[str, tuple[str, bytes]] = {}

    def walk(folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                walk(entry, f"{prefix}{entry.name}/")
            elif (suffix := f".{entry.name.rpartition('.')[2]}") in _TYPES:
                found[prefix + entry.name] = (_TYPES[suffix], entry.read_bytes())

    walk(files("web").joinpath("static"), "")
    return found
