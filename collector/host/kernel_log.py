"""Lines of the kernel's log that name a GPU error, a lack of memory, a link or storage that does not answer."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path

KMSG = Path("/dev/kmsg")
MAX_LINES = 50
SLACK_US = 60_000_000
"""The log has a clock of its own, which loses or gains seconds per month of uptime: lines this much older than the job
are still taken for its own."""
_RECORD_BYTES = 8192
_MOST_RECORDS = 100_000
_READ_ALL, _BUFFER_SIZE = 3, 10  # SYSLOG_ACTION_… of syslog(2)

_TELLING = re.compile(
    r"NVRM: Xid"
    r"|NVRM: GPU .* has fallen off"
    r"|[Oo]ut of memory: Killed process|oom-kill:"
    r"|\blink (is )?down\b|\bcarrier lost\b|\bhealth (compromised|recovery)"
    r"|nfs: server .* not responding"
    r"|\bI/O error\b"
    r"|blocked for more than \d+ seconds",
    re.IGNORECASE,
)
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
_PLAIN_LINE = re.compile(r"<(\d+)>\[ *(\d+)\.(\d+)\] ?(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """One line; its time is that of the kernel's log, in microseconds since boot."""

    time_us: int
    text: str


class KernelLog:
    """The telling lines since a job began, read on where the last look ended. May be used from several threads.

    Parameters
    ----------
    since_ns
        Monotonic time at which the job began.
    path
        The log's device. Where it cannot be opened the log is asked for by syslog(2), where that is allowed.

    """

    def __init__(self, since_ns: int, path: Path = KMSG) -> None:
        self._since_us = since_ns // 1000
        self._path = path
        self._lock = threading.Lock()
        self._file = -1
        self._is_open = False
        self._told: dict[tuple[int, str], KernelLine] = {}
        self._xids: dict[str, int] = {}

    def lines(self) -> tuple[str, ...]:
        """The latest lines, oldest first, each with its age at the job's beginning; nothing where none may be read."""
        with self._lock:
            self._read()
            return tuple(f"{(line.time_us - self._since_us) / 1e6:+.0f} s: {line.text}" for line in self._told.values())

    def xids(self) -> dict[str, int]:
        """The last XID error of each GPU, by PCI address."""
        with self._lock:
            self._read()
            return dict(self._xids)

    def _read(self) -> None:
        if not self._is_open:
            self._is_open = True
            try:
                self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                self._file = -1
        lines = _from_device(self._file) if self._file >= 0 else parse_plain(_whole_log())
        for line in lines:
            if line.time_us < self._since_us - SLACK_US or not _TELLING.search(line.text):
                continue
            self._told[line.time_us, line.text] = line
            match = _XID.search(line.text)
            if match:
                self._xids[match[1]] = int(match[2])
        while len(self._told) > MAX_LINES:
            del self._told[next(iter(self._told))]


def may_be_read(path: Path = KMSG) -> bool:
    """Whether this process may read the log in one of the two ways."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return _whole_log() != ""
    return True


def parse_record(record: bytes) -> KernelLine | None:
    r"""One record of /dev/kmsg, `None` for what the kernel did not write itself: anybody may write there.

    >>> parse_record(b"4,812,5000000,-;NVRM: Xid (PCI:0000:c3:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci\n")
    KernelLine(time_us=5000000, text='NVRM: Xid (PCI:0000:c3:00): 79, GPU has fallen off the bus.')
    >>> parse_record(b"12,813,5000001,-;NVRM: Xid (PCI:0000:c3:00): 79, so says a user") is None
    True
    """
    head, separator, text = record.partition(b";")
    fields = head.split(b",")
    if not separator or len(fields) < 3 or not fields[0].isdigit() or not fields[2].isdigit():
        return None
    if int(fields[0]) >> 3:  # the facility: 0 is the kernel
        return None
    return KernelLine(time_us=int(fields[2]), text=text.split(b"\n", 1)[0].decode(errors="replace")[:300])


def parse_plain(text: str) -> list[KernelLine]:
    r"""The lines of syslog(2).

    >>> parse_plain("<6>[   12.000345] mlx5_core 0000:3b:00.0: Link down\n<13>[   13.000000] said by a user")
    [KernelLine(time_us=12000345, text='mlx5_core 0000:3b:00.0: Link down')]
    """
    matches = [_PLAIN_LINE.match(line) for line in text.splitlines()]
    return [
        KernelLine(time_us=int(match[2]) * 1_000_000 + int(match[3]), text=match[4][:300])
        for match in matches
        if match and not int(match[1]) >> 3
    ]


def _from_device(file: int) -> list[KernelLine]:
    lines = []
    for _ in range(_MOST_RECORDS):
        try:
            record = os.read(file, _RECORD_BYTES)
        except BrokenPipeError:
            continue  # the oldest were written over; the next read goes on with what is left
        except OSError:
            break  # nothing more for now
        if not record:
            break  # a recorded file has an end
        line = parse_record(record)
        if line is not None:
            lines.append(line)
    return lines


def _whole_log() -> str:
    """What syslog(2) gives to those who may read it; empty for others."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "klogctl"):
        return ""
    klogctl = library.klogctl
    size = klogctl(_BUFFER_SIZE, None, 0)
    if size <= 0:
        return ""
    buffer = ctypes.create_string_buffer(size)
    read = klogctl(_READ_ALL, buffer, size)
    return buffer.raw[:read].decode(errors="replace") if read > 0 else ""
