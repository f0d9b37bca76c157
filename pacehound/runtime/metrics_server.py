"""A process's metrics and health over HTTP, on a thread of their own.

`GET /metrics` is prometheus-client's own answer, `GET /health` is 200, or 503 and the reason.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app

from pacehound.errors import InvalidSetting
from pacehound.runtime.liveness import Pulse
from pacehound.runtime.telemetry import Telemetry

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

SLOWEST_CLIENT_S = 10.0


class _Handler(WSGIRequestHandler):
    timeout = SLOWEST_CLIENT_S

    def log_message(self, *_: object) -> None:
        """A scrape every few seconds is no news."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _ServerV6(_Server):
    address_family = socket.AF_INET6


class MetricsServer:
    """Answers until it is closed.

    Parameters
    ----------
    listen
        `HOST:PORT`, `:PORT` for every interface, or `[IPv6]:PORT`; port 0 is any free one.
    telemetry, pulse
        What is shown.

    Raises
    ------
    InvalidSetting
        `listen` cannot be listened on.

    """

    def __init__(self, listen: str, telemetry: Telemetry, pulse: Pulse) -> None:
        host, separator, port_text = listen.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not separator or not port_text.isdecimal() or int(port_text) > 65535:
            raise InvalidSetting(f"telemetry.listen={listen!r} is no address; write HOST:PORT, as in 0.0.0.0:9464")
        registry = CollectorRegistry(auto_describe=True)
        registry.register(telemetry)
        metrics = make_wsgi_app(registry)

        def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            if environ["PATH_INFO"] == "/metrics":
                return metrics(environ, start_response)  # type: ignore[no-any-return]
            status, text = "404 Not Found", "there are /metrics and /health"
            if environ["PATH_INFO"] == "/health":
                complaint = pulse.complaint()
                status, text = ("503 Service Unavailable", complaint) if complaint else ("200 OK", "well")
            start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{text}\n".encode()]

        try:
            self._server = (_ServerV6 if ":" in host else _Server)((host, int(port_text)), _Handler)
        except (OSError, UnicodeError) as error:
            raise InvalidSetting(f"telemetry.listen={listen!r} cannot be listened on: {error}") from error
        self._server.set_app(app)
        self.port: int = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
