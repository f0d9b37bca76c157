"""A pipeline that says: whoever stops holds the job up, and it is over when the host says that the job has ended."""

from __future__ import annotations

import dataclasses
import pickle
from types import SimpleNamespace

from pacehound.errors import InvalidEvent
from pacehound.model.events import Finding, HostSample, Incident, Instant, Topology
from pacehound.model.evidence.leaving import Process
from pacehound.model.routing import host_stream


class Pipeline:
    def __init__(self, settings=None):
        self._streams = {}
        self._open = {}
        self.seen = []

    def streams(self):
        return self._streams

    def changed(self, *, everything=False):
        return {"all": pickle.dumps((self._streams, self._open))}, {"all"}

    def take_back(self, parts):
        self._streams, self._open = pickle.loads(parts["all"])

    def open_incidents(self):
        return {incident.id for incident in self._open.values()}

    def on_event(self, event):
        self.seen.append(event)
        if event.job == "explode":
            raise RuntimeError("a fault of ours")
        if event.job == "refuse":
            raise InvalidEvent("this cannot be")
        if isinstance(event, Topology):
            self._streams[event.communicator] = opened(event)
        if not isinstance(event, HostSample):
            return []
        self._streams[host_stream(event.job, event.host)] = opened(event)
        known = self._open.get(event.job)
        stopped = [p.rank for p in event.processes if p.state == "stopped"]
        if stopped and known is None:
            finding = Finding(
                id=f"finding-{event.job}",
                job=event.job,
                attempt=0,
                kind="hang",
                verdict="culprit",
                cause="H1",
                culprits=tuple(stopped),
                onset=Instant(step=7, time_ns=event.time_ns),
                evidence=(Process(rank=stopped[0], pid=1, state="stopped"),),
                pages=True,
            )
            incident = Incident(
                id=f"incident-{event.job}",
                version=0,
                job=event.job,
                attempt=0,
                time_ns=event.time_ns,
                state="open",
                opened_ns=event.time_ns,
                findings=(finding,),
            )
            self._open[event.job] = incident
            return [incident]
        if event.closed:
            self._streams = {s: of for s, of in self._streams.items() if of.job != event.job}
            if known is not None:
                del self._open[event.job]
                return [
                    dataclasses.replace(
                        known,
                        version=known.version + 1,
                        time_ns=event.time_ns,
                        state="closed",
                        closed_ns=event.time_ns,
                        closed_why=event.closed_why,
                    )
                ]
        return []


def opened(event):
    return SimpleNamespace(job=event.job, attempt=event.attempt, hosts=(event.host,), is_complete=True, quiet_s=0.0)
