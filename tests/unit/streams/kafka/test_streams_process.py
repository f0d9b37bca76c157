"""The process of a streams worker: in which order it does what, and what it compiles."""

import os
import signal

import pytest

from pacehound.settings import Settings
from streams.kafka.process import compile_loops, run
from streams.level import level_series
from streams.whatif import warm


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


@pytest.fixture
def compiled(monkeypatch):
    found = []
    monkeypatch.setattr(level_series, "warm_up", lambda: found.append("detectors"))
    monkeypatch.setattr(warm, "warm_up", lambda: found.append("what-if"))
    return found


def test_everything_is_compiled_before_the_worker_joins_its_group(compiled):
    """And before it asks for Kafka: told to stop meanwhile, it never joins."""
    settings = Settings.load({}, ["ops.every_steps=10"])
    status = run(settings, await_topics=lambda _: compiled.append("topics"), make=lambda *_: App(compiled))
    assert compiled == ["detectors", "what-if", "topics", "join", "leave"]
    assert status == 1  # nobody had told it to stop


def test_told_to_stop_while_it_compiles_it_never_joins():
    done = []
    status = run(
        Settings(),
        prepare=lambda _: os.kill(os.getpid(), signal.SIGTERM),
        await_topics=lambda _: done.append("topics"),
        make=lambda *_: App(done),
    )
    assert (status, done) == (0, [])


def test_what_no_job_needs_is_not_compiled(compiled):
    compile_loops(Settings())
    assert compiled == ["detectors"]
