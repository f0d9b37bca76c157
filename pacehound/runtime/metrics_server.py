"""A process's metrics and health over HTTP, on a thread of their own.

`GET /metrics` answers in Prometheus text, `GET /health` with 200, or 503 and the reason.
"""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pacehound.errors import InvalidSetting
from pacehound.runtime.liveness import Pulse
from pacehound.runtime.telemetry import Telemetry

SLOWEST_CLIENT_S = 10.0


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
        is_v6 = ":" in host

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if is_v6 else socket.AF_INET
            daemon_threads = True

        class Handler(BaseHTTPRequestHandler):
            timeout = SLOWEST_CLIENT_S

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._answer(200, telemetry.render(), "text/plain; version=0.0.4; charset=utf-8")
                elif path == "/health":
                    complaint = pulse.complaint()
                    self._answer(503 if complaint else 200, (complaint or "well") + "\n", "text/plain; charset=utf-8")
                else:
                    self._answer(404, "there are /metrics and /health\n", "text/plain; charset=utf-8")

            def _answer(self, status: int, text: str, content_type: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """A scrape every few seconds is no news."""

        try:
            self._server = Server((host, int(port_text)), Handler)
        except (OSError, UnicodeError) as error:
            raise InvalidSetting(f"telemetry.listen={listen!r} cannot be listened on: {error}") from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
