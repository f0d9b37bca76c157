"""The process of a streams worker: in which order it does what."""

import os
import signal

import pytest

from pacehound.errors import Unavailable
from pacehound.settings import Settings
from streams import native_loops
from streams.kafka.process import run


class App:
    """Ends as soon as it has started."""

    crash_reason = None

    def __init__(self, done):
        self.done = done

    async def start(self):
        self.done.append("join")

    async def wait_until_stopped(self):
        """At once."""

    async def stop(self):
        self.done.append("leave")


def test_a_worker_joins_when_the_topics_are_there_and_leaves_in_order():
    done = []
    status = run(Settings(), await_topics=lambda _: done.append("topics"), make=lambda *_: App(done))
    assert done == ["topics", "join", "leave"]
    assert status == 1  # nobody had told it to stop


def test_told_to_stop_while_it_waits_for_topics_it_never_joins():
    done = []

    def away(_):
        os.kill(os.getpid(), signal.SIGTERM)
        raise Unavailable("no broker")

    assert (run(Settings(), await_topics=away, make=lambda *_: App(done)), done) == (0, [])


def test_a_worker_without_its_loops_says_so_and_never_joins(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    native_loops.loaded.cache_clear()
    done = []
    with pytest.raises(Unavailable, match="Install a C compiler"):
        run(Settings(), await_topics=lambda _: done.append("topics"), make=lambda *_: App(done))
    native_loops.loaded.cache_clear()
    assert done == []
