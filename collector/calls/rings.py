"""Reads the rings that training processes write (collector/native/ring.h), without waiting and without trust.

A ring is read with `pread`, not through a mapping: a file that is cut short while it is mapped kills its reader
with SIGBUS, and the page cache gives both the same bytes. One read of 16 bytes tells that there is nothing new;
what is new is copied at once into a structured NumPy array.

A record is taken when its stamp says complete and the writer had not come round to its slot by the end of the copy:
the writer touches the slot of record `i` again only after `written` has reached `i + capacity`.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from collector.calls.shared_file import SharedFile
from pacehound.errors import RejectedMessage
from pacehound.model.believed import MAX_ATTEMPT
from pacehound.model.codes import DTYPE_BYTES
from pacehound.model.events.calls_of_hosts import MAX_WORLD_RANKS

RING_MAGIC = 0x31474E5248434150
RING_VERSION = 2
HEADER_BYTES = 4096
RECORD_BYTES = 128
MAX_CAPACITY = 1 << 22

GROUP, MEMBERS, LAUNCH, COMPLETE, MARKER, EXIT, DESTROY, PLACE, OPERATION, EDGE = range(1, 11)
CAPTURED, FAILED, ASYNC, END_BOUND, LOCAL_PEER, TIMED = 1, 2, 4, 8, 16, 32
MEMBERS_PER_RECORD = 23

_HEADER = struct.Struct("<QIIIIIIQiiiiQ")
_CURSOR = struct.Struct("=QI")  # native order reads eight bytes at once
_CURSOR_OFFSET = 128
OFF = 2
"""PH_RING_OFF: an error of ours has switched the writers of its process off."""
_MEASURED = struct.Struct("=QQ")
MEASURED_OFFSET = 144


def _layout(*fields: tuple[str, str, int]) -> np.dtype[Any]:
    names, formats, offsets = zip(*fields, strict=True)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": RECORD_BYTES})


_PREFIX = (("stamp", "<u8", 0), ("kind", "u1", 8), ("rank", "<u4", 12), ("handle", "V16", 16))

CALL = _layout(
    *_PREFIX,
    ("handle_high", "<u8", 16),
    ("handle_low", "<u8", 24),
    ("op", "u1", 32),
    ("dtype", "u1", 33),
    ("redop", "u1", 34),
    ("direction", "u1", 35),
    ("flags", "u1", 36),
    ("source", "u1", 37),
    ("channels", "<u2", 38),
    ("peer", "<i4", 40),
    ("algorithm", "u1", 44),
    ("protocol", "u1", 45),
    ("seq", "<i8", 48),
    ("count", "<i8", 56),
    ("launch_ns", "<u8", 64),
    ("start_ns", "<u8", 72),
    ("end_ns", "<u8", 80),
    ("stream", "<u8", 88),
    ("group", "<u8", 96),
    ("send_count", "<i8", 104),
    ("recv_count", "<i8", 112),
    ("send_rate", "<f4", 120),
    ("recv_rate", "<f4", 124),
)
GROUP_BODY = _layout(
    *_PREFIX,
    ("created_ns", "<u8", 32),
    ("generation", "<i4", 40),
    ("world_size", "<i4", 44),
    ("n_members", "<i4", 48),
    ("is_world", "u1", 52),
    ("backend", "u1", 53),
    ("timeout_ms", "<u4", 56),
    ("name", "V68", 60),
)
MEMBERS_BODY = _layout(*_PREFIX, ("n_members", "<i4", 32), ("members", f"({MEMBERS_PER_RECORD},)<i4", 36))
PLACE_BODY = _layout(*_PREFIX, ("n_members", "<i4", 32), ("index", "<i4", 36))
EDGE_BODY = _layout(
    *_PREFIX,
    ("index", "<i4", 32),
    ("peer", "<i4", 36),
    ("algorithm", "u1", 40),
    ("channel", "u1", 41),
    ("direction", "u1", 42),
)
MARKER_BODY = _layout(
    *_PREFIX, ("time_ns", "<u8", 32), ("step", "<i8", 40), ("marker", "<u4", 48), ("ordinal", "<u4", 52)
)
OPERATION_BODY = _layout(
    *_PREFIX,
    ("start_ns", "<u8", 32),
    ("end_ns", "<u8", 40),
    ("step", "<i8", 48),
    ("optype", "<i4", 56),
    ("stage", "<i4", 60),
    ("chunk", "<i4", 64),
    ("micro_batch", "<i4", 68),
    ("pipeline", "<i4", 72),
    ("seq", "<i4", 76),
)
EXIT_BODY = _layout(*_PREFIX, ("time_ns", "<u8", 32), ("failed", "<u4", 40), ("text", "V84", 44))

Records = npt.NDArray[np.void]
"""Ring records, shape `(n_records,)`: whole as `RAW`, or viewed as the body that their kind says.

They are cut, joined and kept as `RAW`: NumPy may leave out the bytes that no field covers when it copies the others.
"""

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MAX_WRITTEN = 1 << 48
"""A thread that wrote a million records a second would get there in nine years; what was lost of them is added up."""

RAW = np.dtype(f"V{RECORD_BYTES}")
NO_RECORDS: Records = np.empty(0, RAW)


def is_timed(calls: Records) -> BoolArray:
    """Which calls, viewed as `CALL`, have times of the device although their source sees launches only."""
    timed: BoolArray = ((calls["flags"] & TIMED) != 0) & (calls["end_ns"] > 0)
    return timed


def last_time_ns(records: Records) -> int:
    """The latest time that some records tell of calls, markers and exits, monotonic; 0 where they tell none."""
    calls = records.view(CALL)
    of_calls = calls[(calls["kind"] == LAUNCH) | (calls["kind"] == COMPLETE)]
    of_moments = records.view(MARKER_BODY)[(calls["kind"] == MARKER) | (calls["kind"] == EXIT)]
    columns = (of_calls["launch_ns"], of_calls["end_ns"], of_moments["time_ns"])
    return max(int(column.max(initial=0)) for column in columns)


_WIDTHS = np.array(DTYPE_BYTES, np.int64)


def size_bytes(calls: Records) -> Int64Array:
    """`count` times the size of `dtype`, viewed as `CALL`; 0 where either is unknown, as a newer writer's code is."""
    known = np.where(calls["dtype"] < len(_WIDTHS), calls["dtype"], 0)
    sizes: Int64Array = np.maximum(calls["count"], 0) * _WIDTHS[known]
    return sizes


class UnreadableRing(RejectedMessage):
    """A file that is no ring, or no longer one; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class RingHeader:
    """Who writes a ring, as its header says; in the order of the fields there."""

    capacity: int
    pid: int
    tid: int
    process_start_ticks: int
    rank: int
    local_rank: int
    world_size: int
    attempt: int
    created_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRead:
    """What one look at a ring gave: whole records in order, and how many were lost before the first of them."""

    records: Records
    lost: int = 0


def marked(records: Records, mark: int) -> Records:
    """The same with this laid over their communicators' ids (exclusive or, over the first half); 0 changes nothing."""
    if not mark:
        return records
    copy = records.copy()
    highs = copy.view(CALL)["handle_high"]
    highs[highs != 0] ^= np.uint64(mark)  # of none: the record is of no communicator
    return copy


def text_of(value: Any) -> str:
    """A text of a fixed size, as a record has it."""
    return bytes(value).split(b"\0", 1)[0].decode(errors="replace")


def parse_header(head: bytes, file_bytes: int) -> RingHeader:
    """The header of a ring file.

    Parameters
    ----------
    head
        The first bytes of the file, at least 72 of them in a whole ring.
    file_bytes
        How long the file is.

    Raises
    ------
    UnreadableRing
        The bytes are no ring of this version, or the file is shorter than it says.

    """
    if len(head) < _HEADER.size:
        raise UnreadableRing(f"{file_bytes} bytes are too few for a ring header")
    magic, version, header_bytes, record_bytes, *fields = _HEADER.unpack_from(head)
    header = RingHeader(*fields)
    if magic != RING_MAGIC:
        raise UnreadableRing(f"magic is {magic:#018x}, not {RING_MAGIC:#018x}: no ring")
    if version != RING_VERSION:
        raise UnreadableRing(f"ring version {version}; this build reads version {RING_VERSION}")
    if (header_bytes, record_bytes) != (HEADER_BYTES, RECORD_BYTES):
        raise UnreadableRing(f"header of {header_bytes} and records of {record_bytes} bytes, not 4096 and 128")
    capacity = header.capacity
    if not 0 < capacity <= MAX_CAPACITY or capacity & (capacity - 1):
        raise UnreadableRing(f"capacity is {capacity}, not a power of two up to {MAX_CAPACITY}")
    if file_bytes < HEADER_BYTES + capacity * RECORD_BYTES:
        raise UnreadableRing(f"{file_bytes} bytes are too few for {capacity} records")
    if header.pid < 1 or not -1 <= header.rank < MAX_WORLD_RANKS or not 0 <= header.attempt <= MAX_ATTEMPT:
        who = f"pid {header.pid}, rank {header.rank}, attempt {header.attempt}"
        raise UnreadableRing(f"{who} in the header: no process has these")
    return header


class RingReader(SharedFile):
    """One ring file, read from a position on.

    Parameters
    ----------
    path
        The ring file.
    position
        The index of the first record that is still wanted.

    Attributes
    ----------
    is_drained
        The last look came to the end of what was written.
    is_finished
        Its thread has left in good order, and everything was read.

    Raises
    ------
    UnreadableRing
        The file is not a whole ring.
    OSError
        The file cannot be opened.

    """

    def __init__(self, path: Path, position: int = 0) -> None:
        self.path = path
        self.position = position
        self.is_drained = self.is_finished = self.is_off = False
        self._stalled = False
        super().__init__(path)

    def _check(self) -> None:
        self.header = parse_header(os.pread(self._fd, _HEADER.size, 0), os.fstat(self._fd).st_size)

    def read(self) -> RingRead:
        """What was written since the last time.

        Raises
        ------
        UnreadableRing
            The file was cut short, or its stamps contradict its header.

        """
        capacity = self.header.capacity
        written, closed = self._cursor()
        self.is_off = closed == OFF
        self.is_drained = False
        if not self.position - 1 <= written <= MAX_WRITTEN:
            # One torn read of the counter may say so; a counter that stays there went backwards, or was never one.
            if not self._stall():
                raise UnreadableRing(f"it says {written} records are written, of which {self.position} were read")
            return RingRead(records=NO_RECORDS)
        written = max(written, self.position)
        first = max(self.position, written - capacity)
        # A writer that died between its last stamp and its count left one whole record more.
        raw = self._copy(first, written - first + 1)
        records = raw.view(CALL)
        expected = 2 * (first + np.arange(len(records), dtype=np.uint64)) + np.uint64(2)
        stamps = records["stamp"]
        whole = stamps == expected
        overwritten = stamps > expected
        overtaken = self._overtaken(first, records)
        overwritten |= overtaken
        whole &= ~overtaken
        known = whole | overwritten
        end = len(records) if known.all() else int(np.argmin(known))
        if end < written - first and not self._stall():
            # It was not complete the last time either, and its writer had moved on: it never will be.
            if end == 0 and not known[: written - first].any() and written - first > 1:
                raise UnreadableRing(
                    f"it says {written} records are written, and none of the last {written - first} has its stamp"
                )
            end = int(written - first)
        elif end >= written - first:
            self._stalled = False
        taken = raw[:end][whole[:end]]
        self.is_drained = first + end >= written
        self.is_finished = closed != 0 and not self.is_off and self.is_drained
        if end == 0:
            return RingRead(records=NO_RECORDS)
        lost = first - self.position + end - len(taken)
        self.position = first + end
        return RingRead(records=taken, lost=lost)

    def measured(self) -> tuple[int, int]:
        """Calls whose own cost their writer has measured, and nanoseconds that it took in them; 0 where none is."""
        try:
            measured = os.pread(self._fd, _MEASURED.size, MEASURED_OFFSET)
        except OSError:
            return 0, 0
        if len(measured) < _MEASURED.size:
            return 0, 0
        calls, took_ns = _MEASURED.unpack(measured)
        return int(calls), int(took_ns)

    def _stall(self) -> bool:
        """Whether this is the first look in a row at which the ring made no sense."""
        first_time = not self._stalled
        self._stalled = first_time
        return first_time

    def _cursor(self) -> tuple[int, int]:
        """How many records are written, and whether the thread has left in good order, or is switched `OFF`."""
        cursor = os.pread(self._fd, _CURSOR.size, _CURSOR_OFFSET)
        if len(cursor) < _CURSOR.size:
            raise UnreadableRing("it was cut short inside its header")
        written, closed = _CURSOR.unpack(cursor)
        return int(written), int(closed)

    def _copy(self, first: int, count: int) -> Records:
        """`count` slots from record `first` on, whatever they hold; two reads where they wrap around."""
        slots = np.empty(count, RAW)
        target = memoryview(slots.view(np.uint8))  # type: ignore[arg-type]
        done = 0
        while done < count:
            slot = (first + done) % self.header.capacity
            n_slots = min(count - done, self.header.capacity - slot)
            part = target[done * RECORD_BYTES : (done + n_slots) * RECORD_BYTES]
            if os.preadv(self._fd, [part], HEADER_BYTES + slot * RECORD_BYTES) != len(part):
                raise UnreadableRing(f"it was cut short: record {first + done} is missing")
            done += n_slots
        return slots

    def _overtaken(self, first: int, records: Records) -> BoolArray:
        """Which of the copied records the writer may have been changing while they were copied."""
        overtaken = np.zeros(len(records), np.bool_)
        # Records below this index may have been touched: the writer works on record `written` now.
        touched = min(max(self._cursor()[0] + 1 - self.header.capacity - first, 0), len(records))
        if touched:
            again = self._copy(first, touched).view(CALL)
            overtaken[:touched] = again["stamp"] != records["stamp"][:touched]
        return overtaken
