"""What an agent has said in full of its communicators and processes: what has changed since has to be said so again.

How far ranks are changes all the time, and heartbeats leave it out where iterations end as usual. Anything else that a
promise or a sample says changes hardly ever, and matters when it does (docs/adr/0032-large-jobs-in-few-messages.md).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import replace

from pacehound.model.calls import CallBatch
from pacehound.model.digests import is_of_digests
from pacehound.model.events import HostSample, Markers, Progress
from pacehound.model.flushes import HostCall

SAMPLE_EVERY_NS = 60_000_000_000
"""What promises say of processes is said in full at least this often (chosen: who missed the last sample has the next
one), and up to twice as often: the hosts of a job begin together, and thousands would say it at the same moment."""


class SaidInFull:
    """The last promise for each communicator, and the last sample of each attempt.

    Examples
    --------
    >>> said = SaidInFull()
    >>> one = Progress(job="j", attempt=0, time_ns=5, host="h", communicator="c", ranks=())
    >>> said.says_all([], [one])
    False
    >>> said.note([one])
    >>> said.says_all([], [replace(one, time_ns=9)]), said.says_all([], [replace(one, dropped_total=3)])
    (True, False)
    >>> sample = HostSample(job="j", attempt=0, time_ns=0, host="h", processes=(), quiet_ns=SAMPLE_EVERY_NS)
    >>> said.note_samples([sample])
    >>> [said.has_said(replace(sample, time_ns=time_s * 10**9), quiet_ns=5 * 10**9) for time_s in (37, 38)]
    [True, False]

    """

    def __init__(self) -> None:
        self._said: dict[tuple[int, str], Progress] = {}
        self._samples: dict[int, HostSample] = {}

    def says_all(self, settled: Iterable[HostCall], promised: Iterable[Progress]) -> bool:
        """Besides how far ranks are nothing is new in these promises, which stand behind iterations alone.

        Of a communicator that is told call by call it is waited for calls that a promise says are still to come.
        """
        return all(map(_is_of_iterations, settled)) and all(
            not one.closed and not one.edges and self._said.get(_key(one)) == _lasting(one) for one in promised
        )

    def note(self, promised: Iterable[Progress]) -> None:
        """These were said in full: all that there are."""
        self._said = {_key(one): _lasting(one) for one in promised}

    def in_short(self, samples: Iterable[HostSample], quiet_ns: int) -> list[HostSample]:
        """What has to be said of processes beside promises that hold for `quiet_ns`: these are noted."""
        said = [replace(one, quiet_ns=SAMPLE_EVERY_NS) for one in samples if not self.has_said(one, quiet_ns)]
        self.note_samples(said)
        return said

    def has_said(self, sample: HostSample, quiet_ns: int) -> bool:
        """It says what the last one of its attempt said, and that one will do for `quiet_ns` more."""
        last = self._samples.get(sample.attempt)
        return (
            last is not None
            and replace(sample, time_ns=last.time_ns, quiet_ns=last.quiet_ns) == last
            and sample.time_ns + quiet_ns <= last.time_ns + last.quiet_ns * _share(sample.host)
        )

    def note_samples(self, samples: Iterable[HostSample]) -> None:
        """These were said."""
        self._samples |= {sample.attempt: sample for sample in samples}

    def forget_samples(self) -> None:
        """Whatever they say, the next ones are said in full."""
        self._samples.clear()


def _share(host: str) -> float:
    """Of the longest time, by its name: from a half to all of it."""
    return 1 - zlib.crc32(host.encode()) / (1 << 33)


def _is_of_iterations(said: HostCall) -> bool:
    return isinstance(said, Markers) or (isinstance(said, CallBatch) and is_of_digests(said.source))


def _key(promise: Progress) -> tuple[int, str]:
    return promise.attempt, promise.communicator


def _lasting(promise: Progress) -> Progress:
    """What does not change with each call."""
    return replace(promise, time_ns=0, ranks=(), edges=())
