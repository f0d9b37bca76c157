"""Recognises what a host has sent twice: an agent repeats whatever it has no acknowledgement for."""

from __future__ import annotations

from pacehound.model.events import HostEvidence, HostSample, HostVitals

HostEvent = HostSample | HostVitals | HostEvidence


class Repeats:
    """What each host has said last, by kind.

    A host's events of one kind are in order of time, and a repeated stretch is the same events in the same order. So
    one that is older than the last of its kind has been there, and one that equals it too.

    Attributes
    ----------
    count
        How many there were.

    Examples
    --------
    >>> samples = [HostSample(job="j", attempt=0, time_ns=t, host="h", processes=()) for t in (1, 2)]
    >>> repeats = Repeats()
    >>> [repeats.is_one(sample) for sample in [*samples, *samples]]
    [False, False, True, True]
    """

    def __init__(self) -> None:
        self.count = 0
        self._last: dict[tuple[str, str], HostEvent] = {}

    def is_one(self, event: HostEvent) -> bool:
        """Whether `event` has been there; if not, it is remembered."""
        key = (event.host, type(event).__name__)
        last = self._last.get(key)
        if last is not None and (event.time_ns < last.time_ns or event == last):
            self.count += 1
            return True
        self._last[key] = event
        return False
