"""Which streams need a tick: those in which somebody who should be heard is silent.

Used by the shell that has a clock (the head node, later a worker); operators see only the ticks that it writes into
the log, so a replay needs no clock.
"""

from __future__ import annotations

from collections.abc import Mapping

from pacehound.calls import CallBatch
from pacehound.events import HostSample, Markers, Progress, Topology
from pacehound.routing import Event, host_stream
from streams.pipeline import OpenStream


class SilenceWatch:
    """Remembers when each host was last heard in each stream, by the clock of whoever listens.

    Parameters
    ----------
    lateness_s
        Silence up to this is normal; a backlog that is being sent arrives faster.

    Examples
    --------
    >>> watch = SilenceWatch(lateness_s=5.0)
    >>> stream = OpenStream(job="j", attempt=0, hosts=("a",), is_complete=True)
    >>> watch.due({"c": stream}, now_s=10.0)
    []
    >>> watch.due({"c": stream}, now_s=16.0)
    ['c']

    """

    def __init__(self, lateness_s: float) -> None:
        self._lateness_s = lateness_s
        self._heard_s: dict[tuple[str, str], float] = {}

    def heard(self, event: Event, now_s: float) -> None:
        """An event has arrived."""
        match event:
            case HostSample():
                self._heard_s[host_stream(event.job, event.host), event.host] = now_s
            case CallBatch() | Progress() | Topology() | Markers():
                self._heard_s[event.communicator, event.host] = now_s
            case _:
                pass

    def due(self, streams: Mapping[str, OpenStream], now_s: float) -> list[str]:
        """The streams that hold their job up because an expected host, or an unknown one, has fallen silent.

        A host counts as heard when its stream is first asked for: whoever has just started waits for everybody.
        """
        due = []
        expected: set[tuple[str, str]] = set()
        for name, stream in sorted(streams.items()):
            hosts = stream.hosts if stream.is_complete else (*stream.hosts, "")
            keys = [(name, host) for host in hosts]
            expected.update(keys)
            if any(now_s - self._heard_s.setdefault(key, now_s) > self._lateness_s for key in keys):
                due.append(name)
        for key in self._heard_s.keys() - expected:
            if key[0] not in streams:
                del self._heard_s[key]
        return due
