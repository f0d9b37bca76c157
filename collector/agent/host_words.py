"""In which order a host says what it says besides calls.

That travels on a topic of its own, and on Kafka either may be read first. So promises say behind which word they speak
of the host's processes (`pacehound.model.flushes.Heartbeat.behind_ns`), and no word is of a time that was promised.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from pacehound.model.events import HostEvidence, HostSample, HostVitals

WordT = TypeVar("WordT", bound=HostSample | HostVitals | HostEvidence)


class HostWords:
    """The last word of each attempt, and up to when its processes were promised to be as they are.

    Examples
    --------
    >>> words = HostWords()
    >>> sample = HostSample(job="j", attempt=0, time_ns=10, host="h", processes=())
    >>> [words.next(one).time_ns for one in (sample, sample, replace(sample, time_ns=15))]
    [10, 11, 15]
    >>> words.promise(0, 20)
    15
    >>> words.next(replace(sample, time_ns=18)).time_ns
    21

    """

    def __init__(self) -> None:
        self._last_ns: dict[int, int] = {}
        self._promised_ns: dict[int, int] = {}

    def next(self, word: WordT) -> WordT:
        """As it is said: a look that took long counts from behind what was said meanwhile."""
        before_ns = max(self._last_ns.get(word.attempt, -1), self._promised_ns.get(word.attempt, -1))
        said = word if word.time_ns > before_ns else replace(word, time_ns=before_ns + 1)
        self._last_ns[word.attempt] = said.time_ns
        return said

    def promise(self, attempt: int, time_ns: int) -> int:
        """The processes of an attempt are promised; behind which word, 0 if there was none."""
        self._promised_ns[attempt] = max(time_ns, self._promised_ns.get(attempt, -1))
        return self._last_ns.get(attempt, 0)
