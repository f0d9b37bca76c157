"""When a stream has been silent long enough for a tick.

Operators know event time alone, and only what stands in the log may close a silence. A head therefore writes a
`Tick` into a stream in which a host has fallen silent. It must not do so while somebody may still be catching up, or
the rows that arrive after the tick would be late through no fault of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol


class OpenStream(Protocol):
    """A stream that is not closed, and who must be heard in it for its time to go on."""

    @property
    def job(self) -> str:
        """Whose it is."""
        ...

    @property
    def attempt(self) -> int:
        """Which restart of the job."""
        ...

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that have introduced themselves in it."""
        ...

    @property
    def is_complete(self) -> bool:
        """No host is missing that may still introduce itself."""
        ...

    @property
    def quiet_s(self) -> float:
        """So long a host may say nothing before it counts as silent."""
        ...


def quiet_s_of(event: object) -> float | None:
    """For how long its host may say nothing more on that stream; `None`: it says nothing of that.

    >>> quiet_s_of("a stack, a card's state") is None
    True
    """
    quiet_ns: int | None = getattr(event, "quiet_ns", None)
    return None if quiet_ns is None else quiet_ns / 1e9


# Stands for whoever has not introduced itself yet.
_UNKNOWN_HOST = ""


class Silence:
    """Which streams are due for a tick; wall time is an argument, in monotonic seconds.

    Parameters
    ----------
    started_s
        When this head began to listen.
    silent_after_s
        A host is silent when nothing of it has arrived for longer than this (the lateness that operators allow).
    every_s
        A stream with a silent host gets one tick per this time.
    grace_s
        No ticks so soon after the start: agents that were cut off may be on their way back.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> stream = SimpleNamespace(job="j", attempt=0, hosts=("h",), is_complete=True, quiet_s=0.0)
    >>> silence = Silence(started_s=0.0, silent_after_s=5.0, every_s=1.0, grace_s=10.0)
    >>> silence.heard("c", "j", "h", lag_s=0.1, now_s=8.0)
    >>> silence.due({"c": stream}, now_s=12.0), silence.due({"c": stream}, now_s=13.5)
    ([], ['c'])

    """

    def __init__(self, *, started_s: float, silent_after_s: float, every_s: float, grace_s: float) -> None:
        self._silent_after_s = max(silent_after_s, 1.0)
        self._every_s = every_s
        self._not_before_s = started_s + grace_s
        self._heard_s: dict[tuple[str, str], float] = {}  # by stream and host
        self._ticked_s: dict[str, float] = {}
        self._least_lag_s: dict[tuple[str, str], float] = {}  # by job and host
        self._behind_until_s: dict[str, float] = {}
        self._forgotten_s = started_s

    def heard(
        self, stream: str, job: str, host: str, *, lag_s: float | None, now_s: float, quiet_s: float | None = 0.0
    ) -> None:
        """Something of `host` arrived on `stream` that is `lag_s` older than now (`None`: it has no time).

        It says that for `quiet_s` nothing more may come; `None`: it says nothing of that, and what was said last holds.

        A lag much larger than the host's least so far means that its agent is catching up; then its other streams
        are not silent but queued behind. (The least lag, for a host's clock may be wrong by any amount.)
        """
        said_s = self._heard_s.get((stream, host), now_s) if quiet_s is None else now_s + quiet_s
        self._heard_s[stream, host] = max(said_s, now_s)
        if lag_s is None:
            return
        least_s = min(lag_s, self._least_lag_s.get((job, host), lag_s))
        self._least_lag_s[job, host] = least_s
        if lag_s - least_s > self._silent_after_s:
            self._behind_until_s[job] = now_s + self._silent_after_s

    def due(self, streams: Mapping[str, OpenStream], now_s: float) -> list[str]:
        """Those of the open `streams` that get a tick now, in order; streams that are gone are forgotten in time."""
        for job in [job for job, until_s in list(self._behind_until_s.items()) if now_s >= until_s]:
            self._behind_until_s.pop(job, None)
        if now_s - self._forgotten_s >= self._silent_after_s:  # of thousands of hosts it takes a while
            self._forget_all_but(streams, now_s)
            self._forgotten_s = now_s
        if now_s < self._not_before_s:
            return []
        found = []
        for name in sorted(streams):
            stream = streams[name]
            if stream.job in self._behind_until_s or not self._is_silent(name, stream, now_s):
                continue
            if now_s - self._ticked_s.get(name, float("-inf")) >= self._every_s:
                self._ticked_s[name] = now_s
                found.append(name)
        return found

    def may_wait_s(self, streams: Mapping[str, OpenStream], now_s: float) -> float:
        """For how long none of the open `streams` can be due, if nothing is heard; at least a hundredth of a period."""
        due_s = [self._due_s(name, stream, now_s) for name, stream in streams.items()]
        return max(min(due_s, default=math.inf) - now_s, self._every_s / 100)

    def _due_s(self, name: str, stream: OpenStream, now_s: float) -> float:
        """When a stream is due for a tick at the earliest."""
        ticked_s = self._ticked_s.get(name, float("-inf")) + self._every_s
        silent_s = self._silent_since_s(name, stream, now_s) + self._silent_after_s
        return max(self._not_before_s, self._behind_until_s.get(stream.job, float("-inf")), ticked_s, silent_s)

    def _is_silent(self, name: str, stream: OpenStream, now_s: float) -> bool:
        return now_s - self._silent_since_s(name, stream, now_s) > self._silent_after_s

    def _silent_since_s(self, name: str, stream: OpenStream, now_s: float) -> float:
        """When the one was heard last who has been silent for longest."""
        hosts = stream.hosts if stream.is_complete else (*stream.hosts, _UNKNOWN_HOST)
        # A host that was never heard here counts from when its stream was first seen to be open.
        heard_s = (self._heard_s.setdefault((name, host), now_s + stream.quiet_s) for host in hosts)
        return min(heard_s, default=math.inf)

    def _forget_all_but(self, streams: Mapping[str, OpenStream], now_s: float) -> None:
        # What was just heard may be on its way to the pipeline and not open yet.
        for key in [k for k, at_s in list(self._heard_s.items()) if k[0] not in streams and self._is_old(at_s, now_s)]:
            self._heard_s.pop(key, None)
        for name in [name for name in self._ticked_s if name not in streams]:
            del self._ticked_s[name]
        jobs = {stream.job for stream in streams.values()}
        hosts = {host for _, host in list(self._heard_s)}
        for pair in [pair for pair in list(self._least_lag_s) if pair[0] not in jobs and pair[1] not in hosts]:
            self._least_lag_s.pop(pair, None)

    def _is_old(self, at_s: float, now_s: float) -> bool:
        return now_s - at_s > self._silent_after_s
