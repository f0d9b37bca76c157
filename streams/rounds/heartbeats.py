"""What the hosts of a shard have promised, and its heartbeats that communicators have not been told of.

Of a job of thousands of hosts nearly each promise is of many communicators, and of none of them more follows from it
than that time goes on once the last host has spoken. So the last heartbeat of each host is kept, and all are told, and
all promises concluded from, at once when no host holds back what is waited for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any

from pacehound.model.flushes import Heartbeat
from streams.rounds.merge import CLOSED_NS


class ToldBeats:
    """Heartbeats that communicators are told of.

    Attributes
    ----------
    beats, times_ns
        By host.
    n_hosts
        By communicator, how many of them name it.
    go_back
        A host may have promised more before.

    """

    def __init__(self, beats: dict[str, Heartbeat], *, go_back: bool) -> None:
        self.beats, self.go_back = beats, go_back
        self.times_ns = {host: beat.time_ns for host, beat in beats.items()}
        self.n_hosts = Counter(chain.from_iterable(beat.communicators for beat in beats.values()))

    def of(self, communicator: str, hosts: Iterable[str]) -> list[tuple[str, Heartbeat]]:
        """Those of these hosts that name it."""
        known = ((host, self.beats.get(host)) for host in hosts)
        return [(host, beat) for host, beat in known if beat is not None and communicator in beat.communicators]


class Heartbeats:
    """The last heartbeat of each host that waits, and up to when each host has promised.

    `longest_ns` is how much later one may promise than another since all were told last: then all are told again,
    whoever holds them back.

    Examples
    --------
    >>> beats = Heartbeats(longest_ns=100)
    >>> beats.expect(["a", "b"], wanted_ns=10)
    >>> beats.wait("a", Heartbeat(time_ns=12, communicators=("c",)))
    >>> beats.promises("a", 12)
    >>> beats.are_due
    False
    >>> beats.wait("b", Heartbeat(time_ns=11, communicators=("c", "d")))
    >>> beats.promises("b", 11)
    >>> told = beats.take()
    >>> beats.are_due, told.n_hosts, [host for host, _ in told.of("d", ["a", "b"])]
    (False, Counter({'c': 2, 'd': 1}), ['b'])

    """

    def __init__(self, longest_ns: int) -> None:
        self._longest_ns = longest_ns
        self._waiting: dict[str, Heartbeat] = {}
        self._promised_ns: dict[str, int] = {}
        self._highest_ns: dict[str, int] = {}  # of what it has ever promised
        self._goes_back = False  # some host has promised less than before, since all were told
        self._known: dict[str, tuple[str, ...]] = {}  # by host, communicators that have taken a heartbeat of it
        self._behind: set[str] | None = None  # who holds back what is waited for; `None`: nobody has asked yet
        self._wanted_ns = 0
        self._since_ns: tuple[int, int] | None = None  # of what was promised since all were told, the oldest and newest

    def __getstate__(self) -> dict[str, Any]:
        """Without what is found out again; when all are told next is not."""
        state = {name: value for name, value in self.__dict__.items() if name != "_known"}
        return state | {"_behind": None if self._behind is None else tuple(sorted(self._behind))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Which communicators take a heartbeat is found out again."""
        self.__dict__.update(state)
        self._known, self._behind = {}, None if state["_behind"] is None else set(state["_behind"])

    def is_known(self, host: str, heartbeat: Heartbeat) -> bool:
        """Its communicators have taken one of this host before: they take this one, too."""
        return self._known.get(host) == heartbeat.communicators

    def note_taken(self, host: str, heartbeat: Heartbeat) -> None:
        """Its communicators have taken it."""
        self._known[host] = heartbeat.communicators

    def forget_known(self) -> None:
        """A communicator is over."""
        self._known.clear()

    def wait(self, host: str, heartbeat: Heartbeat) -> None:
        """Keep it, in the place of what this host said before."""
        self._waiting[host] = heartbeat

    def promises(self, host: str, time_ns: int, *, is_last: bool = False) -> None:
        """A host has promised something, in whatever form; after the last it holds nobody back."""
        highest_ns = self._highest_ns.get(host, time_ns)
        self._goes_back |= time_ns < highest_ns
        self._highest_ns[host] = max(time_ns, highest_ns)
        oldest_ns, newest_ns = self._since_ns or (time_ns, time_ns)
        self._since_ns = min(oldest_ns, time_ns), max(newest_ns, time_ns)
        self._promised_ns[host] = until_ns = CLOSED_NS if is_last else time_ns
        if self._behind is not None and until_ns >= self._wanted_ns:
            self._behind.discard(host)

    def lowest_ns(self, hosts: Iterable[str]) -> int:
        """The lowest of what these hosts have promised; -1 before all of them have."""
        return min((self._promised_ns.get(host, -1) for host in hosts), default=-1)

    def expect(self, hosts: Iterable[str], wanted_ns: int) -> None:
        """What is waited for is that all these hosts have promised so much, or have promised their last.

        Of one that has, and is in more communicators than its last promise was of, more may come.
        """
        self._wanted_ns = min(wanted_ns, CLOSED_NS)
        self._behind = {host for host in hosts if self._promised_ns.get(host, -1) < self._wanted_ns}

    @property
    def are_due(self) -> bool:
        """No host holds back what is waited for, or one has promised something for too long."""
        if self._since_ns is None:
            return False
        oldest_ns, newest_ns = self._since_ns
        return not self._behind or newest_ns - oldest_ns >= self._longest_ns

    def take(self, hosts: Iterable[str] | None = None) -> ToldBeats:
        """Those of some hosts, or all: they wait no more."""
        if hosts is None:
            told = ToldBeats(self._waiting, go_back=self._goes_back)
            self._waiting, self._goes_back, self._since_ns = {}, False, None
            return told
        chosen = {host: self._waiting.pop(host) for host in hosts if host in self._waiting}
        return ToldBeats(chosen, go_back=self._goes_back)
