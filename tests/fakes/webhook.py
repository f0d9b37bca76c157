"""A receiver of webhooks on loopback that remembers what it was sent and answers as it is told."""

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Received:
    """One request."""

    key: str
    body: dict
    answered: int


@dataclass
class FakeWebhook:
    """`answers` are given in order, the last one for ever; use it in a `with` block.

    >>> with FakeWebhook(answers=[503, 200]) as webhook:
    ...     webhook.url.startswith("http://127.0.0.1:")
    True
    """

    answers: list = field(default_factory=lambda: [200])
    received: list = field(default_factory=list)

    def __enter__(self):
        fake = self
        self._arrived = threading.Condition()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                length = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(length))
                with fake._arrived:
                    status = fake.answers.pop(0) if len(fake.answers) > 1 else fake.answers[0]
                    fake.received.append(Received(self.headers["Idempotency-Key"], body, status))
                    fake._arrived.notify_all()
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait_for(self, n_requests, timeout_s=10.0):
        """Whether that many requests arrive in time."""
        with self._arrived:
            return self._arrived.wait_for(lambda: len(self.received) >= n_requests, timeout_s)

    @property
    def delivered(self):
        """(incident, state) of what was answered with success, in order."""
        return [(r.body["incident"]["id"], r.body["state"]) for r in self.received if 200 <= r.answered < 300]
