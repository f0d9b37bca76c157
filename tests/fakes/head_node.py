"""A small real HTTP server that takes OTLP logs, and answers as a test tells it to."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse

from pacehound.model import codec


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def partial_success(rejected: int, message: str) -> bytes:
    response = ExportLogsServiceResponse()
    response.partial_success.rejected_log_records = rejected
    response.partial_success.error_message = message
    return bytes(response.SerializeToString())


class HeadNode:
    """`answers` are given in turn, then 200 with an empty body."""

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None, listener: socket.socket | None = None) -> None:
        self.requests: list[Request] = []
        self.answers: list[Answer] = []
        self.lock = threading.Lock()
        self.is_closed = False
        node = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                with node.lock:
                    answer = node.answers.pop(0) if node.answers else Answer()
                    headers = {key.lower(): value for key, value in self.headers.items()}
                    node.requests.append(Request(self.path, headers, body))
                self.send_response(answer.status)
                for key, value in answer.headers.items():
                    self.send_header(key, value)
                self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler, bind_and_activate=listener is None)
        self._server.daemon_threads = True
        if listener is not None:
            self._server.socket.close()
            self._server.socket = listener
        self.port = self._server.server_address[1]
        self.endpoint = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def messages(self) -> list[bytes]:
        """Each message once, in order of first arrival: the same bytes twice are one message."""
        with self.lock:
            bodies = [request.body for request in self.requests]
        return list(dict.fromkeys(codec.single(*found) for body in bodies for found in codec.records_of(body)))


def is_otlp_request(body: bytes) -> bool:
    """What any OpenTelemetry Collector would check: the body is an export request with log records."""
    request = ExportLogsServiceRequest.FromString(body)
    return all(scope.log_records for resource in request.resource_logs for scope in resource.scope_logs)


@contextmanager
def head_node(tls: ssl.SSLContext | None = None) -> Iterator[HeadNode]:
    node = HeadNode(tls=tls)
    try:
        yield node
    finally:
        node.close()
