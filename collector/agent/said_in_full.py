"""What an agent has said in full of its communicators: what has changed since has to be said so again.

How far ranks are changes all the time, and heartbeats leave it out where iterations end as usual. Anything else that a
promise says changes hardly ever, and matters when it does (docs/adr/0032-large-jobs-in-few-messages.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pacehound.model.calls import CallBatch
from pacehound.model.digests import is_of_digests
from pacehound.model.events import Markers, Progress
from pacehound.model.flushes import HostCall


class SaidInFull:
    """The last promise for each communicator.

    Examples
    --------
    >>> said = SaidInFull()
    >>> one = Progress(job="j", attempt=0, time_ns=5, host="h", communicator="c", ranks=())
    >>> said.says_all([], [one])
    False
    >>> said.note([one])
    >>> said.says_all([], [replace(one, time_ns=9)]), said.says_all([], [replace(one, dropped_total=3)])
    (True, False)

    """

    def __init__(self) -> None:
        self._said: dict[tuple[int, str], Progress] = {}

    def says_all(self, settled: Iterable[HostCall], promised: Iterable[Progress]) -> bool:
        """Besides how far ranks are nothing is new in these promises, which stand behind iterations alone.

        Of a communicator that is told call by call it is waited for calls that a promise says are still to come.
        """
        return all(map(_is_of_iterations, settled)) and all(
            not one.closed and not one.edges and self._said.get(key_of(one)) == lasting(one) for one in promised
        )

    def note(self, promised: Iterable[Progress]) -> None:
        """These were said in full: all that there are."""
        self._said = {key_of(one): lasting(one) for one in promised}


def _is_of_iterations(said: HostCall) -> bool:
    return isinstance(said, Markers) or (isinstance(said, CallBatch) and is_of_digests(said.source))


def key_of(promise: Progress) -> tuple[int, str]:
    """Of what it is: attempt and communicator."""
    return promise.attempt, promise.communicator


def lasting(promise: Progress) -> Progress:
    """What does not change with each call."""
    return replace(promise, time_ns=0, ranks=(), edges=())
