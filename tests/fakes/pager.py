"""Stand-ins for PagerDuty and Slack that check what they are sent against the published schemas, and keep state.

PagerDuty: developer.pagerduty.com, Events API v2, "Send an alert event". Slack: docs.slack.dev, "Incoming webhooks" and
"Block Kit" (header, section and context blocks).
"""

from __future__ import annotations

import datetime
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

_EVENT = {"routing_key", "event_action", "dedup_key", "payload", "images", "links", "client", "client_url"}
_PAYLOAD = {"summary", "source", "severity", "timestamp", "component", "group", "class", "custom_details"}
_ENTITY = re.compile(r"&(?!amp;|lt;|gt;)")
_MARKUP = re.compile(r"<(?!https?://[^<>|]+\|[^<>]*>)")


@dataclass
class FakePagerDuty:
    """A service of PagerDuty: which incidents are open there, and how often somebody was paged."""

    answers: list[int] = field(default_factory=lambda: [202])
    incidents: dict[str, str] = field(default_factory=dict)
    pages: int = 0
    wrong: list[str] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if status >= 300:
            return httpx.Response(status)
        event = json.loads(request.content)
        found = list(_wrong_event(event))
        self.wrong += found
        if found or request.method != "POST" or request.url.path != "/v2/enqueue":
            return httpx.Response(400, json={"status": "invalid event", "errors": found})
        self.events.append(event)
        key, action = event["dedup_key"], event["event_action"]
        if action == "trigger":
            self.pages += key not in self.incidents
            self.incidents.setdefault(key, "triggered")
        elif action == "acknowledge" and key in self.incidents:
            self.incidents[key] = "acknowledged"
        elif action == "resolve":
            self.incidents.pop(key, None)
        return httpx.Response(202, json={"status": "success", "message": "Event processed", "dedup_key": key})


def _wrong_event(event: dict[str, Any]):
    if extra := set(event) - _EVENT:
        yield f"unknown fields {extra}"
    if not re.fullmatch(r"[A-Za-z0-9]{32}", event.get("routing_key", "")):
        yield "routing_key"
    if event.get("event_action") not in ("trigger", "acknowledge", "resolve"):
        yield "event_action"
    if not 1 <= len(event.get("dedup_key", "")) <= 255:
        yield "dedup_key"
    if event.get("event_action") != "trigger":
        return
    payload = event.get("payload", {})
    if extra := set(payload) - _PAYLOAD:
        yield f"unknown fields {extra} in the payload"
    if not 1 <= len(payload.get("summary", "")) <= 1024:
        yield f"summary of {len(payload.get('summary', ''))} characters"
    if not payload.get("source"):
        yield "source"
    if payload.get("severity") not in ("critical", "error", "warning", "info"):
        yield "severity"
    if "timestamp" in payload:
        datetime.datetime.fromisoformat(payload["timestamp"])
    for link in event.get("links", []):
        if set(link) - {"href", "text"} or not link["href"].startswith("http"):
            yield "links"
    if len(json.dumps(event)) > 512 * 1024:
        yield "larger than 512 KB"


@dataclass
class FakeSlack:
    """A channel of Slack."""

    answers: list[int] = field(default_factory=lambda: [200])
    messages: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if status >= 300:
            return httpx.Response(status)
        message = json.loads(request.content)
        found = list(_wrong_message(message))
        self.wrong += found
        if found:
            return httpx.Response(400, text="invalid_blocks")
        self.messages.append(message)
        return httpx.Response(200, text="ok")


def _wrong_message(message: dict[str, Any]):
    if extra := set(message) - {"text", "blocks", "unfurl_links", "unfurl_media", "thread_ts"}:
        yield f"unknown fields {extra}"
    if not message.get("text") or len(message["text"]) > 40_000:
        yield "text"
    yield from _wrong_markup(message["text"])
    blocks = message.get("blocks", [])
    if not 1 <= len(blocks) <= 50:
        yield f"{len(blocks)} blocks"
    for block in blocks:
        match block["type"]:
            case "header":
                if block["text"]["type"] != "plain_text" or not 1 <= len(block["text"]["text"]) <= 150:
                    yield "header"
            case "section":
                if block["text"]["type"] != "mrkdwn" or not 1 <= len(block["text"]["text"]) <= 3000:
                    yield f"section of {len(block['text']['text'])} characters"
                yield from _wrong_markup(block["text"]["text"])
            case "context":
                if not 1 <= len(block["elements"]) <= 10:
                    yield "context"
                for element in block["elements"]:
                    yield from _wrong_markup(element["text"])
            case other:
                yield f"block {other}"


def _wrong_markup(text: str):
    if _ENTITY.search(text) or _MARKUP.search(text):
        yield f"markup in {text[:100]!r}"


@contextmanager
def served(answer: Callable[[httpx.Request], httpx.Response]) -> Iterator[str]:
    """A stand-in at a URL of loopback, for processes."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                response = answer(httpx.Request("POST", f"http://h{self.path}", content=content))
            self.send_response(response.status_code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
