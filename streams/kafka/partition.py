"""The state of one partition of a topic: which messages it has taken in, and what follows from that.

Pure: no clock, no bus. The shell (`worker.py`) feeds it messages, sends on what comes out, and keeps its snapshots.

Why nothing is lost and nothing counts twice, whatever dies, and whoever wakes up again:

- What comes out depends on the log alone. Whoever takes in the same messages sends the same outputs.
- Every output of a key carries the key's name, when its state began, and a number. Stage two takes exactly the next
  number of each key and drops every other one: repeats, and what lies behind a gap (it will be sent again).
- A snapshot says which offset it covers, for the partition and for each key. What a key's snapshot covers is skipped;
  a message that lies behind the next one is refused, and the shell goes back. A snapshot is written when everything
  that came out before it is in the log.
- Snapshots of each schema version stand side by side and are read by workers of that version alone. Where a snapshot
  of a key cannot be read, that key is begun anew where the log begins, and the others skip what they cover.
- Of several snapshots of a key the one that covers most counts. An owner that was replaced and wakes up can only write
  one that is right, and does so under a name of its own. What it relied on may have been removed by its successor:
  then the marker that covers most of those that are complete counts.

Snapshots are data, in a schema of their own (`streams.snapshots`): one that cannot be read is refused whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from pacehound.bus import Message
from pacehound.errors import MalformedMessage
from streams.kafka.snapshot_records import MARKER, Found, pieces_of, record_key
from streams.snapshots.codec import MalformedState, StateCodec, TooLarge, UnknownState
from streams.snapshots.values import Remembered

REMEMBERED = 1_000
"""Closed keys whose repeats are still recognised: what an agent sends twice may come when all is over."""


class KeyOperator(Protocol):
    """What works on the events of one key."""

    @property
    def is_closed(self) -> bool:
        """Nothing new is to come."""
        ...

    def shed(self) -> None:
        """It is closed: keep what tells a repeat, and nothing else."""
        ...


OperatorT = TypeVar("OperatorT", bound=KeyOperator)


@dataclass(slots=True)
class KeyState(Generic[OperatorT]):
    """One key: its operator, what it covers, and how many outputs it has had.

    Attributes
    ----------
    began
        Offset of the first message: a state that was lost and begun anew begins later.
    covered
        Offset of the last message that it has taken in.
    sent
        How many outputs there were; those that went to other keys than the job's are in `passed_on`, by key.
    taken
        By sender: when its state began, and how many of its outputs were taken in here.
    announced
        Records of the topic `topology` that are to be removed when the key has closed.
    is_begun_anew
        A state of before was lost: of a sender that it does not know it has missed the first outputs for good.
    remembered
        Of its last snapshot, what the next one has again.

    """

    operator: OperatorT
    began: int
    covered: int
    sent: int = 0
    passed_on: dict[str, int] = field(default_factory=dict)
    taken: dict[str, tuple[int, int]] = field(default_factory=dict)
    announced: dict[str, None] = field(default_factory=dict)
    is_begun_anew: bool = False
    remembered: Remembered = field(default_factory=Remembered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Which output of which key this is.

    >>> Stamp.of((Stamp(stream="calls/c", began=4, number=7).header(),))
    Stamp(stream='calls/c', began=4, number=7)
    """

    stream: str
    began: int
    number: int

    def header(self) -> tuple[str, bytes]:
        """As a header of a message."""
        return ("output", f"{self.began} {self.number} {self.stream}".encode())

    @classmethod
    def of(cls, headers: Iterable[tuple[str, bytes]]) -> Stamp | None:
        """The stamp of a message; `None` for one that no stage has sent.

        Raises
        ------
        MalformedMessage
            It has a stamp that cannot be read: whether it was taken in before cannot be told.

        """
        for name, value in headers:
            if name != "output":
                continue
            try:
                began, number, stream = value.decode().split(" ", 2)
                stamp = cls(stream=stream, began=int(began), number=int(number))
            except ValueError:
                stamp = None
            if stamp is None or stamp.began < 0 or stamp.number < 0:
                raise MalformedMessage(
                    f"the header {name!r} is {value[:60]!r}; it should hold two numbers from 0 on and a stream's name"
                )
            return stamp
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Messages are missing before this one: go back to `wanted`."""

    wanted: int


class Partition(Generic[OperatorT]):
    """One partition, and the keys that live on it.

    Parameters
    ----------
    topic, number
        Which partition.
    make
        A new operator for a key.
    codec
        Writes and reads the states of such operators.
    is_stamped
        Messages are outputs of another stage, with its stamps. Elsewhere a header of that name is somebody else's.

    """

    def __init__(
        self,
        topic: str,
        number: int,
        make: Callable[[str], OperatorT],
        codec: StateCodec,
        *,
        is_stamped: bool = True,
    ) -> None:
        self.topic = topic
        self.number = number
        self._make = make
        self._codec = codec
        self._is_stamped = is_stamped
        self.keys: dict[str, KeyState[OperatorT]] = {}
        self.next_offset = 0
        self._marked = 0  # where the last snapshot, or the log, says to go on
        self._dirty: set[str] = set()
        self._closed: dict[str, None] = {}  # in the order in which they were closed
        self._slots: dict[str, int] = {}  # of the last snapshot of each key
        self._superseded: tuple[bytes, ...] = ()  # records that the next snapshot replaces
        self._unwritten: dict[str, str] = {}  # keys whose state could not be written down, and why
        self._lost: frozenset[str] = frozenset()  # keys whose state was lost and has not been begun anew yet
        self.repeats = 0
        self.behind_gap = 0

    def admit(self, message: Message) -> KeyState[OperatorT] | Gap | None:
        """The state that takes this message in; `None` if it has been taken in before or is not the next one.

        The caller works on it and then calls `done`.

        Raises
        ------
        MalformedMessage
            It is the next one, and its stamp cannot be read: set it aside.

        """
        if message.offset < self.next_offset:
            self.repeats += 1
            return None
        if message.offset > self.next_offset:
            return Gap(wanted=self.next_offset)
        self.next_offset = message.offset + 1
        state = self.keys.get(message.key)
        if state is not None and message.offset <= state.covered:
            self.repeats += 1
            return None
        if state is None:
            state = KeyState(self._make(message.key), began=message.offset, covered=message.offset)
            state.is_begun_anew = message.key in self._lost
        if self._is_stamped and not self._is_next(state, Stamp.of(message.headers)):
            return None
        state.covered = message.offset
        return state

    def stamp(self, key: str, state: KeyState[OperatorT], to: str = "") -> Stamp:
        """For the next output of a key: of those to its job, or of those `to` another key, counted by themselves.

        Whoever takes them in knows a gap by their numbers.
        """
        if to:
            number = state.passed_on[to] = state.passed_on.get(to, -1) + 1
            return Stamp(stream=f"{self.topic}/{key} to {to}", began=state.began, number=number)
        state.sent += 1
        return Stamp(stream=f"{self.topic}/{key}", began=state.began, number=state.sent - 1)

    def done(self, key: str, state: KeyState[OperatorT]) -> None:
        """A message has been worked on: keep the state; of the closed ones those that were closed last."""
        self._dirty.add(key)
        self.keys[key] = state
        self._closed.pop(key, None)
        if not state.operator.is_closed:
            return
        state.operator.shed()
        self._closed[key] = None
        while len(self._closed) > REMEMBERED:
            oldest = next(iter(self._closed))
            del self._closed[oldest], self.keys[oldest]
            self._dirty.add(oldest)

    def _is_next(self, state: KeyState[OperatorT], stamp: Stamp | None) -> bool:
        if stamp is None:
            return True
        began, taken = state.taken.get(stamp.stream, (-1, 0))
        if began < 0 and state.is_begun_anew:
            began, taken = stamp.began, stamp.number
        if stamp.began > began:
            began, taken = stamp.began, 0
        if stamp.began < began or stamp.number < taken:
            self.repeats += 1
            return False
        if stamp.number > taken:
            self.behind_gap += 1
            return False
        state.taken[stamp.stream] = (began, taken + 1)
        return True

    def snapshot(self, owner: str) -> Snapshot | None:
        """What has changed since the last one; nothing if nothing has.

        Messages that have changed no key (they were set aside, or had come before) move the partition on all the same.

        `owner` is the name of whoever owns the partition now; nobody else has ever had it.

        Where a state is too large for now, the others are written and nothing is confirmed: each of them skips what it
        covers, and whoever takes over makes that one again from the log.

        Two slots take turns, so that a snapshot that is broken off in the middle has overwritten nothing: the next
        one of a key is made when the one before is whole.
        """
        if not self._dirty and self.next_offset == self._marked:
            return None
        records: list[tuple[bytes, bytes]] = []
        superseded = list(self._superseded)
        self._superseded = ()

        def write(key: str, covered: int, body: bytes) -> None:
            slot = self._slots[key] = 1 - self._slots.get(key, 1)
            place = (self.topic, self.number, self._codec.version, f"{owner}.{slot}")
            records.extend(pieces_of(*place, key, covered, body))

        too_large: dict[str, str] = {}
        for key in sorted(self._dirty):
            if key in self.keys:
                try:
                    body = self._codec.encode(_as_data(self.keys[key]), self.keys[key].remembered)
                except TooLarge as error:
                    too_large[key] = str(error)
                    continue
                except UnknownState as error:
                    self._unwritten[key] = str(error)
                    continue
                self._unwritten.pop(key, None)
                write(key, self.keys[key].covered, body)
            elif key in self._slots:
                del self._slots[key]
                superseded += [
                    record_key(self.topic, self.number, self._codec.version, f"{owner}.{slot}", 0, key)
                    for slot in (0, 1)
                ]
        self._dirty = set(too_large)
        self._unwritten = {key: why for key, why in self._unwritten.items() if key in self.keys}
        names = {name for name, _ in records}
        superseded = [name for name in superseded if name not in names]  # a key may have come again
        if too_large:
            self._superseded = tuple(superseded)
            return Snapshot(
                covered=self._marked - 1,
                records=tuple(records),
                superseded=(),
                unwritten=tuple(sorted(self._unwritten.items())),
                too_large=tuple(sorted(too_large.items())),
            )
        known = {key: state.covered for key, state in self.keys.items() if key not in self._unwritten}
        self._marked = self.next_offset
        covered = self.next_offset - 1
        write(MARKER, covered, self._codec.encode((covered, known)))
        return Snapshot(
            covered=covered,
            records=tuple(records),
            superseded=tuple(superseded),
            unwritten=tuple(sorted(self._unwritten.items())),
        )

    def restore(self, oldest: int, found: Found | None = None) -> list[str]:
        """Go on where the snapshots end, or begin where the log begins.

        Parameters
        ----------
        oldest
            Offset of the first message that is still there: without it a gap before the first message that is
            delivered could not be told.
        found
            What was read of the snapshots.

        Returns
        -------
        list[str]
            Why a state is lost and begun anew; empty if none is.

        """
        self.next_offset = self._marked = oldest
        if found is None:
            return []
        self._superseded = (*found.records, *(key for key, covered in found.foreign.items() if covered + 1 < oldest))
        known: dict[str, tuple[int, KeyState[OperatorT]]] = {}
        reasons = []
        named = {*found.keys, *found.names_elsewhere}
        for key, bodies in found.keys.items():
            for covered, body in bodies:
                try:
                    known[key] = (covered, self._read(key, body))
                    break  # one that cannot be read does not stand before one that can
                except MalformedState as error:
                    reasons.append(f"{key}: {error}")
        self._dirty = set(known)
        for body in found.markers:
            try:
                covered, least = self._read_marker(body)
            except MalformedState as error:
                reasons.append(str(error))
                continue
            named |= least.keys()
            # One that has woken up may have written a marker over snapshots that its successor had already removed.
            short = [key for key, at in least.items() if key not in known or known[key][0] < at]
            if short:
                reasons.append(f"the snapshot that covers {covered} lacks {', '.join(short[:4])}")
                continue
            # What is not in the marker and covers more was written for a later one that never came.
            self._take_over({key: state for key, (at, state) in known.items() if key in least or at > covered})
            self.next_offset = self._marked = covered + 1
            return []
        if not found.markers and not found.names_elsewhere:
            return []
        # Each snapshot of a key is right by itself: that key skips what it covers while the others catch up.
        self._take_over({key: state for key, (_, state) in known.items()})
        self._lost = frozenset(named - known.keys())
        if found.names_elsewhere and not found.markers:
            reasons.append(f"there are snapshots of other schema versions than {self._codec.version} alone")
        return reasons

    def _take_over(self, states: dict[str, KeyState[OperatorT]]) -> None:
        self.keys, self._dirty = states, set(states)
        closed = [key for key, state in states.items() if state.operator.is_closed]
        self._closed = dict.fromkeys(sorted(closed, key=lambda key: self.keys[key].covered))

    def _read(self, key: str, body: bytes) -> KeyState[OperatorT]:
        match self._codec.decode(body):
            case (
                operator,
                int(began),
                int(covered),
                int(sent),
                dict(passed_on),
                dict(taken),
                list(announced),
                bool(is_begun_anew),
            ) if (
                type(operator) is type(self._make(key))
                and type(operator.is_closed) is bool
                and all(isinstance(to, str) and isinstance(number, int) for to, number in passed_on.items())
                and all(map(_is_taken, taken.items()))
                and all(isinstance(name, str) for name in announced)
            ):
                return KeyState(
                    operator, began, covered, sent, passed_on, taken, dict.fromkeys(announced), is_begun_anew
                )
            case other:
                raise MalformedState(f"a state of something else: {str(other)[:60]}")

    def _read_marker(self, body: bytes) -> tuple[int, dict[str, int]]:
        match self._codec.decode(body):
            case (int(covered), dict(least)) if all(
                isinstance(key, str) and isinstance(at, int) for key, at in least.items()
            ):
                return covered, least
            case other:
                raise MalformedState(f"a marker of something else: {str(other)[:60]}")


def _as_data(state: KeyState[Any]) -> tuple[Any, ...]:
    values = (state.operator, state.began, state.covered, state.sent, state.passed_on, state.taken)
    return *values, list(state.announced), state.is_begun_anew


def _is_taken(entry: tuple[Any, Any]) -> bool:
    match entry:
        case (str(), (int(), int())):
            return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What is to be written down of a partition.

    Attributes
    ----------
    covered
        Everything up to this offset need not be read again once the records are written.
    records
        Keys and values for the compacted topic, in order: the marker is the last.
    superseded
        Keys of records that may be removed when the others are written.
    unwritten
        Keys whose state cannot be written, with the reason, a fault of ours: whoever takes over begins them anew.
    too_large
        Keys whose state is larger than may be written: nothing more is covered than before.

    """

    covered: int
    records: tuple[tuple[bytes, bytes], ...]
    superseded: tuple[bytes, ...]
    unwritten: tuple[tuple[str, str], ...] = ()
    too_large: tuple[tuple[str, str], ...] = ()
