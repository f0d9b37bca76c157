"""The launcher's question, against real HTTP servers: every answer a stranger may give, and none at all."""

from __future__ import annotations

import os
import re
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

from pacehound.bus.tls import Trust
from pacehound.launcher.attempt import (
    RESTARTS_WITHIN,
    WITHIN_S,
    ask_endpoint,
    ask_store,
    parse_answer,
    unknown_attempt,
)
from pacehound.launcher.destination import Destination
from pacehound.launcher.run_dir import RunDir
from pacehound.launcher.watch import Plan, Watch
from pacehound.model import codec
from pacehound.runtime.head.attempts import FILE_NAME, Answer, AttemptsFile, highest_attempt
from pacehound.runtime.head.certificate import certificate_for
from pacehound.runtime.head.client import HeadClient
from pacehound.settings import TlsSettings
from tests.fakes import head_node as fake


class Seen:
    """What a receiver was asked, and what it answers next: (status, body), the last one for ever."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, str, bytes]] = []


def asking_watch(destination: Destination, store: Path, said: list[str]) -> Watch:
    """A run without its agent."""
    watch = Watch.__new__(Watch)
    watch._plan = Plan(job="j", host="h", store=store, destination=destination, environ=dict(os.environ))
    watch._say = said.append
    watch.run_dir = RunDir("j", "h", (store,))
    return watch


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
        assert ask_endpoint(destination, "j", "h") == Answer(7)
    assert seen.requests == [("/v1/attempt", "Bearer s3cret", b'{"job": "j", "host": "h"}')]


@pytest.mark.parametrize("status", [302, 400, 401, 404, 405, 415])
def test_a_receiver_that_does_not_know_the_question_is_asked_once_and_means_zero(status: int) -> None:
    seen = Seen((status, b"404 page not found"))
    with receiver(seen) as destination:
        assert ask_endpoint(destination, "j", "h") == Answer(0)
    assert len(seen.requests) == 1


def test_a_head_that_is_starting_is_asked_again() -> None:
    seen = Seen((503, b""), (429, b""), (200, b'{"attempt": 2}'))
    with receiver(seen) as destination:
        assert ask_endpoint(destination, "j", "h") == Answer(2)


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
        said: list[str] = []
        destination = Destination(url=f"http://127.0.0.1:{silent.getsockname()[1]}")
        asking, beside = (asking_watch(destination, tmp_path, said) for _ in range(2))
        before = unknown_attempt(time.time())
        with ThreadPoolExecutor() as threads:
            first, second = sorted(one.result() for one in [threads.submit(w.attempt) for w in (asking, beside)])
        after = unknown_attempt(time.time())
        assert before <= first <= after
        assert second - first >= RESTARTS_WITHIN
    assert before > 100_000_000  # no head has counted so far
    named = [int(found[1]) for line in said if (found := re.search(r" has not said .* is called attempt (\d+),", line))]
    assert [before <= one <= after for one in named] == [True, True]
    (told,) = [line for line in said if "another run" in line]
    assert f"is live on this host (attempt {first}): this one is attempt {second}," in told
    for event in codec.decode(codec.encode(sample(attempt=second))):
        assert event.attempt == second
    assert second <= highest_attempt(time.time())


def test_who_comes_when_the_ranks_have_met_is_told_of_them(tmp_path: Path) -> None:
    said: list[str] = []
    with receiver(Seen((200, b'{"attempt": 3, "live": 2}'))) as destination:
        assert asking_watch(destination, tmp_path, said).attempt() == 3
    (line,) = said
    assert line.startswith("job j runs on other hosts already (attempt 2), and its ranks have met without this one")


def test_a_head_with_another_certificate_costs_a_line_that_names_both_and_not_the_command(tmp_path: Path) -> None:
    own = certificate_for(TlsSettings(), tmp_path, asked=True, is_reachable=False)
    assert own is not None
    with fake.head_node(own.context) as node:
        said: list[str] = []
        asking = asking_watch(Destination(url=node.endpoint, trust=Trust(pin="0" * 64)), tmp_path, said)
        began_s, before = time.monotonic(), unknown_attempt(time.time())
        assert asking.attempt() >= before
        assert time.monotonic() - began_s < WITHIN_S, "it is not waited for"
    (line,) = said
    assert f"{node.endpoint} is not trusted: its certificate is sha256:{own.pin}, and the token names sha256:" in line
    assert "It was not asked which attempt of job j this is: it is called attempt" in line


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", b'{"attempt": -1}', b'{"attempt": true}', b'{"attempt": 9999999999}', b"\xff"],
)
def test_an_answer_that_is_no_attempt_means_zero(body: bytes) -> None:
    assert parse_answer(body) == Answer(0)


def test_without_a_head_the_note_beside_the_store_answers(tmp_path: Path) -> None:
    AttemptsFile(tmp_path / FILE_NAME).note("j", 3)
    assert ask_store(None, tmp_path, "j", "h") == Answer(4)
    gone = HeadClient(tmp_path / "head.sock", timeout_s=0.5)
    assert ask_store(gone, tmp_path, "j", "h") == Answer(4)
