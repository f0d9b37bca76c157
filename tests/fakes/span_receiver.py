"""An OTLP/HTTP receiver of traces, as an OpenTelemetry Collector has it; it reads by the published schema."""

from __future__ import annotations

import http.server
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes traces."""

    bodies: list[ExportTraceServiceRequest]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/v1/traces"
        assert "secret" not in str(self.headers)
        self.bodies.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def receiver() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    bodies: list[ExportTraceServiceRequest] = []
    server = http.server.HTTPServer(("127.0.0.1", 0), type("R", (Receiver,), {"bodies": bodies}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def spans_in(bodies: list[ExportTraceServiceRequest]) -> list[Span]:
    """All of them, in the order in which they came."""
    return [
        span
        for body in bodies
        for resource in body.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def by_trace(spans: list[Span]) -> dict[str, list[Span]]:
    """By the trace's id, as Jaeger and the rest write it."""
    found = defaultdict(list)
    for span in spans:
        found[span.trace_id.hex()].append(span)
    return found
