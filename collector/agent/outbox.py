"""What has been said and not yet been acknowledged, bounded, and beside it the state it came from.

The messages live in memory, in order; a SQLite file keeps the same messages and the agent's state in one
transaction, so that an agent that is killed sends the same bytes again and goes on from the state that belongs to
them. `synchronous=OFF`: what a process has written survives its kill -9 (the kernel has it); only a crash of the
machine could lose it, and that ends the job too. When the file cannot be written (a full disk), or would take more than
its share of what is free there, the outbox takes it away, goes on in memory, says so, and writes everything again once
it can.

Beyond `max_bytes` room is made in this order: progress that a later one of the same communicator supersedes, the
oldest vitals, evidence and operations (they explain what the rest shows), the oldest calls, and when nothing else is
left the oldest host samples and markers. Topology and closing messages stay. Calls go with the promise that is said
with them, an iteration's digests with their marks as well, and what is said later loses its promise.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from pacehound.errors import RejectedMessage
from pacehound.model import codec
from pacehound.model.flushes import Flush
from pacehound.model.shards import is_of_shard

Kind = Literal["calls", "iteration", "progress", "host", "diagnostics", "markers", "keep"]
"""`iteration`: calls with the promise that stands behind them."""

_OF_CALLS: tuple[Kind, ...] = ("calls", "iteration")
_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    stream TEXT NOT NULL,
    calls INTEGER NOT NULL,
    reported INTEGER NOT NULL,
    payload BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value BLOB NOT NULL);
"""
_ENTRY = ("kind", "stream", "calls", "reported", "payload")
_LEFT_BEHIND = b"This outbox could not be written any more; its messages were kept in memory.\n"
RETRY_FILE_NS = 10_000_000_000
DISK_SHARE = 0.1
"""Of what is free where the file lies, the file itself counted in: whoever fills a disk beside us finds most of it."""
_LOG_BYTES = 4 * 1024 * 1024
_WRITTEN_TWICE = 2
"""What is added stands in the log and in the file until SQLite has carried it over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One encoded message on its way.

    Attributes
    ----------
    kind
        What may be done to it when room is needed; `keep` is never touched.
    stream
        Its communicator or its shard, or its host's stream.
    calls
        How many calls go missing if it is dropped.
    reported
        How many lost calls it tells about; somebody else has to tell if it is dropped.

    """

    kind: Kind
    stream: str
    calls: int = 0
    reported: int = 0
    payload: bytes = field(repr=False)


@dataclass(slots=True)
class Lost:
    """What dropping messages of one communicator has cost."""

    calls: int = 0
    reported: int = 0


@dataclass(slots=True)
class OutboxCounts:
    """What did not go the ordinary way, since this process started."""

    dropped_messages: int = 0
    dropped_calls: int = 0
    merged_progress: int = 0
    file_errors: int = 0
    last_file_error: str = ""

    @property
    def gone(self) -> int:
        """Messages that were never sent, for want of room."""
        return self.dropped_messages + self.merged_progress


class Outbox:
    """Messages in order, saved with the state they came from.

    Parameters
    ----------
    path
        The SQLite file; made where it is missing. A file that is damaged is moved aside and `was_damaged` is set.
        `None`: there is no place for one, and it lives in memory alone.
    max_bytes
        Payload bytes held; `make_room` keeps to it.

    """

    def __init__(self, path: Path | None, max_bytes: int) -> None:
        self.path = path
        self.max_bytes = max_bytes
        self.counts = OutboxCounts()
        self.state: bytes | None = None
        self.was_damaged = False
        self._entries: OrderedDict[int, Outgoing] = OrderedDict()
        self._held_bytes = 0
        self._next_id = 1
        self._retry_file_ns = 0
        self._in_flight_to = 0
        self._doomed: list[int] = []
        self._changed: list[int] = []  # of what is in the file
        self._file: sqlite3.Connection | None = None
        if path is None:
            return
        try:
            if not path.exists():  # what an earlier agent has left is read whatever the room
                self._check_room(path, 0)
            self._file = self._open(path)
            self._load(self._file)
        except OSError as error:
            self._note_file_error(error, 0)
        except (sqlite3.DatabaseError, msgspec.ValidationError, ValueError, TypeError) as error:
            self.discard(error)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def held_bytes(self) -> int:
        """Payload bytes that wait."""
        return self._held_bytes

    @property
    def is_saved(self) -> bool:
        """False while it lives in memory alone."""
        return self._file is not None

    def make_room(self, coming_bytes: int) -> dict[str, Lost]:
        """Drop what may be dropped until `coming_bytes` fit; what that cost, by communicator."""
        limit = max(self.max_bytes - coming_bytes, 0)
        lost: dict[str, Lost] = {}
        if self._held_bytes <= limit:
            return lost
        gone = self._superseded_progress()
        self.counts.merged_progress += len(gone)
        for number in gone:
            self._forget(number)
        gone_from: set[str] = set()
        kinds: tuple[tuple[Kind, ...], ...] = (("diagnostics",), _OF_CALLS, ("host", "markers"))
        for droppable in kinds:
            for number, entry in list(self._entries.items()):
                if self._held_bytes <= limit:
                    break
                if number <= self._in_flight_to or entry.kind not in droppable:
                    continue
                for communicator, cost in _cost(entry):
                    costs = lost.setdefault(communicator, Lost())
                    costs.calls += cost.calls
                    costs.reported += cost.reported
                if entry.kind in _OF_CALLS:
                    gone_from.add(entry.stream)
                self._forget(number)
                gone.append(number)
                self.counts.dropped_messages += 1
                self.counts.dropped_calls += entry.calls
        # A queued promise about calls that are no longer there would be a lie; the next one tells.
        waiting = [number for number in self._entries if number > self._in_flight_to] if gone_from else []
        for number in waiting:
            entry = self._entries[number]
            if entry.stream not in gone_from:
                continue
            if entry.kind == "progress":
                self._forget(number)
                gone.append(number)
            elif entry.kind == "iteration":
                self._entries[number] = unpromised = _unpromised(entry)
                self._held_bytes += len(unpromised.payload) - len(entry.payload)
                self._changed.append(number)
        # They leave the file together with the state that counts them, or a kill in between would hide the loss.
        self._doomed += gone
        return lost

    def save(self, messages: Iterable[Outgoing], state: bytes, now_ns: int) -> None:
        """Append `messages` and replace the state, both or neither."""
        added = []
        for message in messages:
            self._entries[self._next_id] = message
            self._held_bytes += len(message.payload)
            added.append(self._next_id)
            self._next_id += 1
        self.state = state
        if self.path is None:
            return
        if self._file is None:
            if now_ns >= self._retry_file_ns:
                self._write_all(self.path, now_ns)
            return
        try:
            self._check_room(self.path, sum(len(self._entries[number].payload) for number in added))
            self._write(self._file, [*(number for number in self._changed if number in self._entries), *added])
        except (sqlite3.DatabaseError, OSError) as error:
            self._lose_file(error, now_ns)

    def take(self, max_bytes: int, again_to: int = 0) -> tuple[int, list[bytes]]:
        """The oldest messages, at least one and up to `max_bytes`, and the number to `acknowledge` them with.

        With `again_to`, the number of a former `take`, no later ones: a receiver knows what it has got before.
        """
        taken: list[bytes] = []
        size, last = 0, 0
        for number, entry in self._entries.items():
            if taken and (size + len(entry.payload) > max_bytes or number > again_to > 0):
                break
            taken.append(entry.payload)
            size += len(entry.payload)
            last = number
        self._in_flight_to = last
        return last, taken

    @property
    def is_all_taken(self) -> bool:
        """Nothing is there that was not taken last."""
        return next(reversed(self._entries), 0) <= self._in_flight_to

    def release(self) -> None:
        """What was taken did not get through: it may be dropped again if room is needed."""
        self._in_flight_to = 0

    def acknowledge(self, last: int) -> None:
        """Everything up to `last` has arrived, or never will."""
        done = []
        for number in self._entries:
            if number > last:
                break
            done.append(number)
        for number in done:
            self._forget(number)
        self._in_flight_to = 0
        self._delete(done)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def discard(self, reason: Exception) -> None:
        """What the file holds makes no sense: move it aside and begin anew."""
        self.close()
        self._note_file_error(reason, 0)
        self._retry_file_ns = 0
        self.was_damaged = True
        self._move_aside()
        self._entries.clear()
        self._held_bytes, self._next_id, self.state = 0, 1, None

    # Memory.

    def _forget(self, number: int) -> None:
        self._held_bytes -= len(self._entries.pop(number).payload)

    def _superseded_progress(self) -> list[int]:
        latest: dict[str, int] = {}
        superseded = []
        for number, entry in self._entries.items():
            if entry.kind != "progress" or number <= self._in_flight_to:
                continue
            if entry.stream in latest:
                superseded.append(latest[entry.stream])
            latest[entry.stream] = number
        return superseded

    # The file.

    def _check_room(self, path: Path, coming_bytes: int) -> None:
        """An `OSError` where the file would take more than its share."""
        where = os.statvfs(path.parent)
        free_bytes = where.f_bavail * where.f_frsize
        taken_bytes = sum(one.stat().st_size for one in _companions(path) if one.exists())
        allowed_bytes = round(DISK_SHARE * (free_bytes + taken_bytes))
        if taken_bytes + _WRITTEN_TWICE * coming_bytes > allowed_bytes:
            raise OSError(
                errno.ENOSPC,
                f"{free_bytes:,} bytes are free there, of which the outbox takes a tenth: {allowed_bytes:,}",
                str(path.parent),
            )

    def _open(self, path: Path) -> sqlite3.Connection:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite's own is open to read
        file = sqlite3.connect(path, isolation_level=None, timeout=1.0)
        try:
            # One agent per folder (RunFolder.lock): no shared index file, which a network's disk could not hold.
            file.execute("PRAGMA locking_mode=EXCLUSIVE")
            file.execute("PRAGMA journal_mode=WAL")
            file.execute("PRAGMA synchronous=OFF")
            file.execute(f"PRAGMA journal_size_limit={_LOG_BYTES}")
            version = file.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _SCHEMA_VERSION):
                raise sqlite3.DatabaseError(f"outbox version {version}; this build writes version {_SCHEMA_VERSION}")
            file.executescript(_SCHEMA)
            file.execute(f"PRAGMA user_version={_SCHEMA_VERSION}")
        except BaseException:
            file.close()
            raise
        return file

    def _load(self, file: sqlite3.Connection) -> None:
        query = f"SELECT id, {', '.join(_ENTRY)} FROM messages ORDER BY id"
        for number, *entry in file.execute(query):
            self._entries[number] = msgspec.convert(
                dict(zip(_ENTRY, entry, strict=True)), Outgoing, builtin_types=(bytes,)
            )
            self._held_bytes += len(self._entries[number].payload)
        values = dict(file.execute("SELECT name, value FROM state"))
        self.state = values.get("agent")
        if self.state is not None and values.get("agent_crc32") not in (None, zlib.crc32(self.state)):
            raise ValueError("the agent's state is not as it was saved")
        self._next_id = max(int(values.get("next_id", 1)), next(reversed(self._entries), 0) + 1)

    def _write(self, file: sqlite3.Connection, numbers: Sequence[int]) -> None:
        file.execute("BEGIN IMMEDIATE")
        try:
            file.executemany(
                "INSERT OR REPLACE INTO messages VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (n, e.kind, e.stream, e.calls, e.reported, e.payload)
                    for n, e in ((n, self._entries[n]) for n in numbers)
                ),
            )
            file.executemany("DELETE FROM messages WHERE id = ?", ((number,) for number in self._doomed))
            values = (
                ("agent", self.state),
                ("agent_crc32", zlib.crc32(self.state or b"")),  # what in it contradicts itself would fail at any step
                ("next_id", self._next_id),
            )
            file.executemany("INSERT OR REPLACE INTO state VALUES (?, ?)", values)
            file.execute("COMMIT")
            self._doomed.clear()
            self._changed.clear()
        except BaseException:
            if file.in_transaction:
                file.execute("ROLLBACK")
            raise

    def _delete(self, numbers: Sequence[int]) -> None:
        if self._file is None or not numbers:
            return
        try:
            self._file.execute("BEGIN IMMEDIATE")
            self._file.executemany("DELETE FROM messages WHERE id = ?", ((number,) for number in numbers))
            self._file.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            self._lose_file(error, 0)

    def _write_all(self, path: Path, now_ns: int) -> None:
        """Start the file anew from memory: what stands in the old one is older than what is known here."""
        try:
            _remove(path)
            self._check_room(path, self._held_bytes)
            file = self._open(path)
            try:
                self._write(file, list(self._entries))
            except BaseException:
                file.close()
                raise
            self._file = file
        except (sqlite3.DatabaseError, OSError) as error:
            self._note_file_error(error, now_ns)
            _leave_behind(path)

    def _lose_file(self, error: Exception, now_ns: int) -> None:
        """Go on in memory, and see to it that nobody goes on from a file that is behind."""
        self.close()
        self._note_file_error(error, now_ns)
        if self.path is not None:
            _leave_behind(self.path)

    def _note_file_error(self, error: Exception, now_ns: int) -> None:
        self.counts.file_errors += 1
        self.counts.last_file_error = f"{type(error).__name__}: {error}"
        self._retry_file_ns = now_ns + RETRY_FILE_NS

    def _move_aside(self) -> None:
        if self.path is None:
            return
        try:
            for path in _companions(self.path):
                if path.exists():
                    path.replace(path.with_name(path.name + ".damaged"))
        except OSError as error:  # it stays where it is, and this agent lives in memory
            self._note_file_error(error, 0)


def _cost(entry: Outgoing) -> list[tuple[str, Lost]]:
    """What goes missing with it, by communicator."""
    if entry.kind not in _OF_CALLS:
        return []
    if not is_of_shard(entry.stream):
        return [(entry.stream, Lost(entry.calls, entry.reported))]
    try:
        told = [event for event in codec.decode(entry.payload) if isinstance(event, Flush)]
    except RejectedMessage:  # the file was damaged: so many calls, nobody can tell whose
        return [(entry.stream, Lost(entry.calls, entry.reported))]
    return [(part.communicator, Lost(part.n_rows, part.dropped)) for flush in told for part in flush.parts]


def _unpromised(entry: Outgoing) -> Outgoing:
    """Calls without the promises or the heartbeat that stand behind them."""
    try:
        told = [
            replace(one, promises=(), heartbeat=None) if isinstance(one, Flush) else one
            for one in codec.decode(entry.payload)
        ]
    except RejectedMessage:  # the file was damaged: nobody believes what it promises
        return replace(entry, kind="calls")
    return replace(entry, kind="calls", payload=b"".join(map(codec.encode, told)))


def _companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]


def _remove(path: Path) -> None:
    for one in _companions(path):
        one.unlink(missing_ok=True)


def _leave_behind(path: Path) -> None:
    """Nothing but a few bytes, which say that this is no outbox any more: whatever was half written is gone."""
    try:
        _remove(path)
        path.write_bytes(_LEFT_BEHIND)  # removing the file has made room for a few bytes
    except OSError:  # nothing can be written or removed here: the next agent finds what there is
        pass
