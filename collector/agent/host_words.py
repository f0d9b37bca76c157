"""In which order a host says what it says besides calls.

That travels on a topic of its own, and on Kafka either may be read first. So promises say behind which word they speak
of the host's processes (`pacehound.model.flushes.Heartbeat.behind_ns`): who has heard one of that time has heard it.
"""

from __future__ import annotations

from dataclasses import replace

from pacehound.model.events import HostEvidence, HostSample, HostVitals


class HostWords:
    """When the last word of each attempt was.

    Examples
    --------
    >>> words = HostWords()
    >>> sample = HostSample(job="j", attempt=0, time_ns=10, host="h", processes=())
    >>> [words.next_sample(one).time_ns for one in (sample, sample, replace(sample, time_ns=15))]
    [10, 11, 15]
    >>> [words.note(HostVitals(job="j", attempt=0, time_ns=time_ns, host="h")) for time_ns in (20, 18)]
    [True, False]
    >>> words.last_ns(0)
    20

    """

    def __init__(self) -> None:
        self._last_ns: dict[int, int] = {}

    def note(self, word: HostVitals | HostEvidence) -> bool:
        """What was seen is said; whether it is of a later time than the word before, so that its own time names it."""
        before_ns = self.last_ns(word.attempt)
        self._last_ns[word.attempt] = max(word.time_ns, before_ns)
        return word.time_ns > before_ns

    def next_sample(self, sample: HostSample) -> HostSample:
        """How processes are, as it is said: behind the word before."""
        before_ns = self.last_ns(sample.attempt)
        said = sample if sample.time_ns > before_ns else replace(sample, time_ns=before_ns + 1)
        self._last_ns[sample.attempt] = said.time_ns
        return said

    def last_ns(self, attempt: int) -> int:
        """Of the latest word; 0 before the first."""
        return self._last_ns.get(attempt, 0)
