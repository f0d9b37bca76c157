"""Until when a host's processes are as it has said: its promises travel on one topic, its other words on another."""

from __future__ import annotations


class HostPromises:
    """What hosts have promised behind a word that has not been heard yet.

    A host's words come in the order in which it has said them, each at a later time: whoever has heard one has heard
    those before it, and one that never comes was given up by its host, which goes on to say others.

    Examples
    --------
    >>> promises = HostPromises()
    >>> promises.promised_ns("h", 20, behind_ns=15), promises.promised_ns("h", 25, behind_ns=15)
    (None, None)
    >>> promises.promised_ns("h", 30, behind_ns=26)
    >>> [promises.heard_ns("h", word_ns) for word_ns in (14, 15, 26)]
    [None, 25, 30]
    >>> promises.promised_ns("h", 40, behind_ns=15)
    40

    """

    def __init__(self) -> None:
        self._heard_ns: dict[str, int] = {}
        self._waiting: dict[str, dict[int, int]] = {}  # by host and word, the last promise behind it

    def promised_ns(self, host: str, time_ns: int, behind_ns: int) -> int | None:
        """A promise that speaks of a host's processes; up to when they are known with it."""
        if behind_ns <= self._heard_ns.get(host, 0):
            return time_ns
        waiting = self._waiting.setdefault(host, {})
        waiting[behind_ns] = max(time_ns, waiting.get(behind_ns, 0))
        return None

    def heard_ns(self, host: str, word_ns: int) -> int | None:
        """A word of a host; up to when its processes are known with the promises that have waited for it."""
        heard_ns = self._heard_ns[host] = max(word_ns, self._heard_ns.get(host, 0))
        if not (waiting := self._waiting.get(host)):
            return None
        due = [behind_ns for behind_ns in waiting if behind_ns <= heard_ns]
        return max((waiting.pop(behind_ns) for behind_ns in due), default=None)
