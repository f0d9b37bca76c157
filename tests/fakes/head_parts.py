"""In-memory parts for a head: a store that can be told to fail, a pipeline that says what it is told to say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa

from pacehound.errors import Unavailable
from pacehound.model.events import Decision, HostSample, Incident, ProcessState, Topology
from pacehound.runtime.event_loop import EventWorker
from pacehound.runtime.head.parts import Parts

_SIBLINGS = Path(__file__).resolve().parent / "siblings"


def stand_in(path):
    """A stand-in module loaded under a name of its own, so that it shadows nothing."""
    spec = importlib.util.spec_from_file_location(f"stand_in_{Path(path).stem}", _SIBLINGS / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class MemoryStore(EventWorker):
    """A store and who writes it; `fail_times` it does not answer."""

    kinds = (object,)

    def __init__(self, incidents=()):
        self.messages = []
        self.fail_times = 0
        self.closed = False
        self._taken = []
        self._known = list(incidents)

    def on_event(self, event, message):
        self._taken.append((event, message))
        return []

    def settle(self):
        if self.fail_times:
            self.fail_times -= 1
            raise Unavailable("no space left on device")
        self.messages += self._taken
        self._taken = []
        return []

    def events(self):
        return [event for event, _ in self.messages]

    def incidents(self, job=None):
        latest = {incident.id: incident for incident in self._known}
        for event in self.events():
            if isinstance(event, Incident) and job in (None, event.job):
                latest[event.id] = event
        return list(latest.values())

    def decisions(self):
        return [event for event in self.events() if isinstance(event, Decision)]

    def last_attempt(self, job):
        return max((event.attempt for event in self.events() if event.job == job), default=None)

    def earlier_runs(self, job, before_attempt):
        return []

    def usual_rounds(self):
        return []

    def answer(self, sql):
        return pa.table({"n": [len(self.messages)]})

    def close(self):
        self.closed = True
        return True


def parts(store=None, alerts=None):
    store = store or MemoryStore()
    return Parts(
        pipeline=stand_in("streams/pipeline.py").Pipeline(),
        store=store,
        writer=store,
        actuators=lambda wire: stand_in("actuators/worker.py").ActuatorWorker(lambda partition: ()),
        alerts=alerts,
    )


def open_stream(job, *hosts, is_complete=True):
    return SimpleNamespace(job=job, attempt=0, hosts=hosts or ("h",), is_complete=is_complete, quiet_s=0.0)


def sample(job="j", time_ns=1_000, stopped=(), closed=False, why="", attempt=0):
    processes = tuple(ProcessState(rank=rank, pid=1, state="stopped", since_ns=time_ns) for rank in stopped)
    return HostSample(
        job=job, attempt=attempt, time_ns=time_ns, host="h", processes=processes, closed=closed, closed_why=why
    )


def topology(job="j", communicator="c", time_ns=500):
    return Topology(
        job=job,
        attempt=0,
        time_ns=time_ns,
        host="h",
        communicator=communicator,
        name="default",
        is_world=True,
        members=(0, 1),
        host_ranks=(0, 1),
        world_size=2,
    )


def an_incident(**changes):
    fields = {
        "id": "i1",
        "version": 3,
        "job": "j",
        "attempt": 0,
        "time_ns": 70,
        "state": "open",
        "opened_ns": 50,
    }
    return Incident(**{**fields, **changes})
