"""When a stream has been silent long enough for a tick.

Operators know event time alone, and only what stands in the log may close a silence. A head therefore writes a
`Tick` into a stream that has fallen silent. It must not do so while somebody may still be catching up, or the rows
that arrive after the tick would be late through no fault of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping


class Silence:
    """Which streams are due for a tick; wall time is an argument, in monotonic seconds.

    Parameters
    ----------
    started_s
        When this head began to listen.
    silent_after_s
        A stream is silent when nothing has arrived for longer than this (the lateness that operators allow).
    every_s
        A silent stream gets one tick per this time.
    grace_s
        No ticks so soon after the start: agents that were cut off may be on their way back.

    Examples
    --------
    >>> silence = Silence(started_s=0.0, silent_after_s=5.0, every_s=1.0, grace_s=10.0)
    >>> silence.heard("c", "job", lag_s=0.1, now_s=8.0)
    >>> silence.due({"c": ("job", 0)}, now_s=12.0), silence.due({"c": ("job", 0)}, now_s=13.5)
    ([], ['c'])

    """

    def __init__(self, *, started_s: float, silent_after_s: float, every_s: float, grace_s: float) -> None:
        self._silent_after_s = max(silent_after_s, 1.0)
        self._every_s = every_s
        self._not_before_s = started_s + grace_s
        self._heard_s: dict[str, float] = {}
        self._ticked_s: dict[str, float] = {}
        self._behind_until_s: dict[str, float] = {}

    def heard(self, stream: str, job: str, *, lag_s: float, now_s: float) -> None:
        """Something arrived on `stream` that is `lag_s` older than now.

        A large lag means that an agent of the job is catching up; then its other streams are not silent but queued
        behind.
        """
        self._heard_s[stream] = now_s
        if lag_s > self._silent_after_s:
            self._behind_until_s[job] = now_s + self._silent_after_s

    def due(self, streams: Mapping[str, tuple[str, int]], now_s: float) -> list[str]:
        """Those of the open `streams` that get a tick now, in order; streams that are gone are forgotten."""
        for known in (self._heard_s, self._ticked_s):
            for gone in [stream for stream in list(known) if stream not in streams]:
                known.pop(gone, None)
        for job in [job for job, until_s in self._behind_until_s.items() if now_s >= until_s]:
            del self._behind_until_s[job]
        if now_s < self._not_before_s:
            return []
        found = []
        for stream in sorted(streams):
            if streams[stream][0] in self._behind_until_s:
                continue
            # One that was never heard here (restored state) has been silent since it was first seen to be open.
            silent_since_s = self._heard_s.setdefault(stream, now_s)
            if now_s - silent_since_s <= self._silent_after_s:
                continue
            if now_s - self._ticked_s.get(stream, -1e18) < self._every_s:
                continue
            self._ticked_s[stream] = now_s
            found.append(stream)
        return found
