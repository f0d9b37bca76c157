"""The launcher's question, against real HTTP servers: every answer a stranger may give, and none at all."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from head_parts import sample

from pacehound.launcher.attempt import RESTARTS_WITHIN, ask_endpoint, ask_store, parse_answer, unknown_attempt
from pacehound.launcher.destination import Destination
from pacehound.launcher.run_dir import RunDir
from pacehound.launcher.watch import Plan, Watch
from pacehound.model import codec
from pacehound.runtime.head.attempts import FILE_NAME, AttemptsFile, highest_attempt
from pacehound.runtime.head.client import HeadClient


class Seen:
    """What a receiver was asked, and what it answers next: (status, body), the last one for ever."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, str, bytes]] = []


@contextmanager
def receiver(seen: Seen) -> Iterator[Destination]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.requests.append((self.path, self.headers.get("Authorization", ""), body))
            status, answer = seen.answers.pop(0) if len(seen.answers) > 1 else seen.answers[0]
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield Destination(url=f"http://127.0.0.1:{server.server_port}", headers={"authorization": "Bearer s3cret"})
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_head_is_asked_with_its_token_and_its_answer_counts() -> None:
    seen = Seen((200, b'{"attempt": 7}'))
    with receiver(seen) as destination:
        assert ask_endpoint(destination, "j", "h") == 7
    assert seen.requests == [("/v1/attempt", "Bearer s3cret", b'{"job": "j", "host": "h"}')]


@pytest.mark.parametrize("status", [302, 400, 401, 404, 405, 415])
def test_a_receiver_that_does_not_know_the_question_is_asked_once_and_means_zero(status: int) -> None:
    seen = Seen((status, b"404 page not found"))
    with receiver(seen) as destination:
        assert ask_endpoint(destination, "j", "h") == 0
    assert len(seen.requests) == 1


def test_a_head_that_is_starting_is_asked_again() -> None:
    seen = Seen((503, b""), (429, b""), (200, b'{"attempt": 2}'))
    with receiver(seen) as destination:
        assert ask_endpoint(destination, "j", "h") == 2


def test_nobody_there_costs_the_given_time_and_no_more() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        refused = Destination(url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert ask_endpoint(refused, "j", "h", within_s=0.3) is None
        silent.listen()  # takes the connection and says nothing
        began_s = time.monotonic()
        assert ask_endpoint(refused, "j", "h", within_s=0.3) is None
        assert time.monotonic() - began_s < 1.0


def test_runs_of_which_nobody_says_which_they_are_count_as_no_earlier_one_and_not_as_each_other(
    tmp_path: Path,
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        plan = Plan(
            job="j",
            host="h",
            store=tmp_path,
            destination=Destination(url=f"http://127.0.0.1:{silent.getsockname()[1]}"),
            environ=dict(os.environ),
        )
        said: list[str] = []
        asking = Watch.__new__(Watch)  # without the agent that a run has
        beside = Watch.__new__(Watch)
        before = unknown_attempt(time.time())
        for one in (asking, beside):
            one._plan, one._say, one.run_dir = plan, said.append, RunDir("j", "h", (tmp_path,))
        with ThreadPoolExecutor() as threads:
            first, second = sorted(one.result() for one in [threads.submit(w.attempt) for w in (asking, beside)])
        assert before <= first <= unknown_attempt(time.time())
        assert second - first >= RESTARTS_WITHIN
    assert before > 100_000_000  # no head has counted so far
    assert sum(f"attempt {before}"[:-3] in line and "has not said" in line for line in said) == 2
    (told,) = [line for line in said if "another run" in line]
    assert f"is live on this host (attempt {first}): this one is attempt {second}," in told
    for event in codec.decode(codec.encode(sample(attempt=second))):
        assert event.attempt == second
    assert second <= highest_attempt(time.time())


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", b'{"attempt": -1}', b'{"attempt": true}', b'{"attempt": 9999999999}', b"\xff"],
)
def test_an_answer_that_is_no_attempt_means_zero(body: bytes) -> None:
    assert parse_answer(body) == 0


def test_without_a_head_the_note_beside_the_store_answers(tmp_path: Path) -> None:
    AttemptsFile(tmp_path / FILE_NAME).note("j", 3)
    assert ask_store(None, tmp_path, "j", "h") == 4
    gone = HeadClient(tmp_path / "head.sock", timeout_s=0.5)
    assert ask_store(gone, tmp_path, "j", "h") == 4
