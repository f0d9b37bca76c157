"""`pacehound top` on a real pseudo-terminal: it draws, obeys keys, and gives the terminal back however it ends."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from pacehound import cli
from storage.client import Store
from tests.fakes.events import START_NS, incident, topology
from tests.store.test_store_contract import write

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 60.0
ENTERS, LEAVES = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def folder(own_store: Store, tmp_path: Path) -> Path:
    write(own_store, [topology(), incident(job="j", time_ns=START_NS, opened_ns=START_NS)])
    own_store.close()
    return tmp_path / "store"


class Terminal:
    """The other end of it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.seen = b""
        self.poll = select.poll()  # a test before this one may have left more files open than `select` can take
        self.poll.register(fd, select.POLLIN)

    def shows(self, text: bytes) -> bool:
        """Wait for something to be drawn after what was last waited for."""
        deadline_s = time.monotonic() + WITHIN_S
        while text not in self.seen and time.monotonic() < deadline_s:
            if self.poll.poll(200):
                try:
                    self.seen += os.read(self.fd, 65_536)
                except OSError:  # nobody holds the other end any more
                    break
        _, found, self.seen = self.seen.partition(text)
        return bool(found)


@contextmanager
def drawn(folder: Path) -> Iterator[tuple[Terminal, subprocess.Popen[bytes]]]:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-m", "pacehound", "top", "--every", "0.5", "--store", str(folder)]
    environ = os.environ | {"TERM": "xterm", "COLUMNS": "90", "LINES": "24"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environ)
    try:
        yield Terminal(ours), process
        assert termios.tcgetattr(theirs) == before, "keys are echoed again, line by line"
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def test_it_is_drawn_anew_and_keys_lead_into_a_job_and_out_of_it(folder: Path) -> None:
    with drawn(folder) as (terminal, process):
        assert terminal.shows(ENTERS)
        assert terminal.shows(b"no open incidents"), "nobody watches: nothing in it can be open"
        os.write(terminal.fd, b"\r")
        assert terminal.shows(b"incidents of j")
        assert terminal.shows(b"Rank 2 slows the job down")
        os.write(terminal.fd, b"\x1b")
        assert terminal.shows(b"no open incidents")
        os.write(terminal.fd, b"q")
        assert terminal.shows(LEAVES)
        assert process.wait(WITHIN_S) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_gives_the_terminal_back(folder: Path, number: signal.Signals) -> None:
    with drawn(folder) as (terminal, process):
        assert terminal.shows(b"no open incidents")
        process.send_signal(number)
        assert terminal.shows(LEAVES)
        assert process.wait(WITHIN_S) == 0


def test_what_is_no_terminal_gets_it_once_and_a_store_that_is_not_there_is_said_first(folder: Path) -> None:
    once = CliRunner().invoke(cli.pacehound, ["top", "--store", str(folder)])
    assert once.exit_code == 0, once.output
    assert "open incidents: 0" in once.stdout
    assert "\x1b" not in once.stdout
    nowhere = CliRunner().invoke(cli.pacehound, ["top", "--store", str(folder / "nowhere")])
    assert (nowhere.exit_code, nowhere.stdout) == (2, "")
    assert "there is no store in" in nowhere.stderr
