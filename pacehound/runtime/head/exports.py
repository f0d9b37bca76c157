"""Export requests of a head: taken in one by one, and answered when what they brought outlives this process."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from aiohttp import web

from pacehound.errors import BusFull, RejectedMessage
from pacehound.model.codec import MAX_MESSAGE_BYTES
from pacehound.runtime.head.connections import BODY_WITHIN_S, MOST_CONNECTIONS
from pacehound.runtime.metric_names import OTLP_BYTES
from pacehound.runtime.telemetry import Telemetry

PROTOBUF = "application/x-protobuf"
_STORED_WITHIN_S = 5.0
"""Half of what an exporter of OpenTelemetry waits, and our agents."""
_STORED_POLL_S = 0.02
_MOST_BODY_BYTES = 4 * MAX_MESSAGE_BYTES
"""Of all bodies that are read or wait for their turn at one time: 128 requests of agents, and as much as the bus."""
_MOST_UNCONFIRMED = MOST_CONNECTIONS
"""Each sender has one request on its way."""
_RETRY_AFTER_S = 1


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


def come_again(why: object) -> web.HTTPServiceUnavailable:
    """The answer to a sender that keeps what it has and sends it later."""
    return web.HTTPServiceUnavailable(text=f"{why}\n", headers={"Retry-After": str(_RETRY_AFTER_S)})


class Exports:
    """Takes in what export requests bring, on one thread, in the order in which they arrive.

    A request is answered when what it brought is stored, or stands in the journal, which the next head stores: whoever
    has the answer may forget it, also if this process is killed in the next moment. Where the store fails, or takes
    longer than senders wait, they keep what they have and come again (503); until it has written what it was given
    nothing more is taken in. What was taken in and not confirmed is known by its bytes when it comes again, and waited
    for instead of taken in twice: a store that is too slow does not get ever more to write.

    Parameters
    ----------
    log
        Tells when that is so.
    telemetry
        Counts bytes.

    """

    def __init__(self, log: Log, telemetry: Telemetry) -> None:
        self._log = log
        self._telemetry = telemetry
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="otlp")
        self._unconfirmed: dict[bytes, asyncio.Task[Taken]] = {}  # by the digest of the request
        self._late: set[asyncio.Task[Taken]] = set()  # those that a sender has waited for in vain
        self._body_bytes = 0

    async def taken(self, request: web.Request, take: Callable[[bytes], Taken]) -> Taken:
        """What became of the body of a request, which `take` takes in; anything else is an answer of HTTP, raised."""
        if request.content_type != PROTOBUF:
            raise web.HTTPUnsupportedMediaType(text=f"send {PROTOBUF}, not {request.content_type!a}\n")
        if request.headers.get("Content-Encoding", "identity") not in ("gzip", "identity"):
            raise web.HTTPUnsupportedMediaType(text="send gzip or no compression\n")
        self._make_sure_of_the_store()
        try:
            async with asyncio.timeout(BODY_WITHIN_S):
                body = await self._read(request)
        except TimeoutError as error:
            raise web.HTTPRequestTimeout(text=f"the body has not come within {BODY_WITHIN_S:g} s\n") from error
        except web.RequestPayloadError as error:
            raise web.HTTPBadRequest(text=f"the body cannot be read: {error}\n") from error
        self._telemetry.add(OTLP_BYTES, len(body))
        hashed = hashlib.blake2b(request.path.encode(), digest_size=16)
        hashed.update(body)
        name = hashed.digest()
        keeping = self._unconfirmed.get(name)
        if keeping is not None:
            self._body_bytes -= len(body)
        else:
            keeping = self._unconfirmed[name] = asyncio.create_task(self._keep(take, body))
            keeping.add_done_callback(self._ended)
            if len(self._unconfirmed) > _MOST_UNCONFIRMED:
                del self._unconfirmed[next(iter(self._unconfirmed))]
        await self._until_kept(keeping)
        self._unconfirmed.pop(name, None)
        try:
            return keeping.result()
        except BusFull as error:
            raise come_again(error) from error
        except RejectedMessage as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error

    def close(self) -> None:
        """Nothing more comes; waits for what is being taken in."""
        self._thread.shutdown(wait=True)

    async def _read(self, request: web.Request) -> bytes:
        body = bytearray()
        try:
            async for chunk in request.content.iter_any():
                body += chunk
                self._body_bytes += len(chunk)
                if len(body) > MAX_MESSAGE_BYTES:
                    raise web.HTTPRequestEntityTooLarge(max_size=MAX_MESSAGE_BYTES, actual_size=len(body))
                if self._body_bytes > _MOST_BODY_BYTES:
                    raise come_again(f"{self._body_bytes} bytes of requests are being read, {_MOST_BODY_BYTES} at most")
        except BaseException:
            self._body_bytes -= len(body)
            raise
        return bytes(body)

    async def _keep(self, take: Callable[[bytes], Taken], body: bytes) -> Taken:
        """Goes on when its sender has left: what was taken in must be known when it comes again."""
        try:
            taken = await asyncio.get_running_loop().run_in_executor(self._thread, self._take, take, body)
        finally:
            self._body_bytes -= len(body)
            del body
        position = self._log.arrived
        while self._log.kept < position:
            await asyncio.sleep(_STORED_POLL_S)
        return taken

    def _take(self, take: Callable[[bytes], Taken], body: bytes) -> Taken:
        if reason := self._why_not_now():  # it may have become so while this one waited for its turn
            raise BusFull(reason)
        return take(body)

    def _ended(self, keeping: asyncio.Task[Taken]) -> None:
        self._late.discard(keeping)
        if not keeping.cancelled():
            keeping.exception()  # whoever comes again is told; nobody may

    async def _until_kept(self, keeping: asyncio.Task[Taken]) -> None:
        waited_s = 0.0
        while not keeping.done():
            if self._log.not_stored_why or waited_s >= _STORED_WITHIN_S:
                self._late.add(keeping)
                self._make_sure_of_the_store()
            await asyncio.wait((keeping,), timeout=_STORED_POLL_S)
            waited_s += _STORED_POLL_S

    def _why_not_now(self) -> str:
        if self._log.not_stored_why:
            return f"nothing can be stored now: {self._log.not_stored_why}"
        return f"what came before has not been stored in {_STORED_WITHIN_S:g} s" if self._late else ""

    def _make_sure_of_the_store(self) -> None:
        if reason := self._why_not_now():
            raise come_again(reason)
