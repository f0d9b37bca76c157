"""What a host says besides calls: in which order, and that its processes are as they were.

That travels on a topic of its own, and on Kafka either may be read first. So promises say behind which word they speak
of the host's processes (`pacehound.model.flushes.Heartbeat.behind_ns`): who has heard one of that time has heard it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import replace

from pacehound.model.events import HostEvidence, HostSample, HostVitals

SAMPLE_EVERY_NS = 60_000_000_000
"""What promises say of processes is said in full at least this often (chosen: who missed the last sample has the next
one), and up to twice as often: the hosts of a job begin together, and thousands would say it at the same moment."""


class HostWords:
    """The last sample of each attempt, and when its last word was.

    Examples
    --------
    >>> words = HostWords()
    >>> sample = HostSample(job="j", attempt=0, time_ns=0, host="h", processes=())
    >>> [len(words.changed([replace(sample, time_ns=time_s * 10**9)], 5 * 10**9)) for time_s in (0, 37, 38)]
    [1, 0, 1]
    >>> words.last_ns(0) // 10**9
    38
    >>> words.seen(HostVitals(job="j", attempt=0, time_ns=20 * 10**9, host="h"))  # it took long to look
    >>> len(words.changed([replace(sample, time_ns=39 * 10**9)], 0))
    1

    """

    def __init__(self) -> None:
        self._samples: dict[int, HostSample] = {}
        self._last_ns: dict[int, int] = {}

    def seen(self, word: HostVitals | HostEvidence) -> None:
        """What was seen is said; where it is no later than the word before, a sample behind it tells that it was."""
        before_ns = self.last_ns(word.attempt)
        self._last_ns[word.attempt] = max(word.time_ns, before_ns)
        if word.time_ns <= before_ns:
            self.forget_samples()

    def changed(self, samples: Iterable[HostSample], quiet_ns: int) -> list[HostSample]:
        """What has to be said of processes beside promises that hold for `quiet_ns`, as it is said."""
        return self.in_full(
            [replace(one, quiet_ns=SAMPLE_EVERY_NS) for one in samples if not self._has_said(one, quiet_ns)]
        )

    def in_full(self, samples: Iterable[HostSample]) -> list[HostSample]:
        """These are said, each behind the word before."""
        said = []
        for sample in samples:
            before_ns = self.last_ns(sample.attempt)
            said.append(sample if sample.time_ns > before_ns else replace(sample, time_ns=before_ns + 1))
            self._samples[sample.attempt] = said[-1]
            self._last_ns[sample.attempt] = said[-1].time_ns
        return said

    def forget_samples(self) -> None:
        """Whatever they say, the next ones are said in full."""
        self._samples.clear()

    def last_ns(self, attempt: int) -> int:
        """Of the latest word; 0 before the first."""
        return self._last_ns.get(attempt, 0)

    def _has_said(self, sample: HostSample, quiet_ns: int) -> bool:
        """It says what the last one of its attempt said, and that one will do for `quiet_ns` more."""
        last = self._samples.get(sample.attempt)
        return (
            last is not None
            and replace(sample, time_ns=last.time_ns, quiet_ns=last.quiet_ns) == last
            and sample.time_ns + quiet_ns <= last.time_ns + last.quiet_ns * _share(sample.host)
        )


def _share(host: str) -> float:
    """Of the longest time, by its name: from a half to all of it."""
    return 1 - zlib.crc32(host.encode()) / (1 << 33)
