"""What the operators of a head were told since their state was last written, on disk.

Messages have numbers without gaps, in the order of the bus, over the lives of a store's heads. A file holds those from
one number on; a new one begins whenever a state has been written, and those that this state covers are removed. What is
written here survives the end of the process, not that of the machine: nothing waits for a disk.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from pacehound.bus import Message
from pacehound.bus.recording import Recording, RecordingWriter
from pacehound.errors import InvalidInput
from pacehound.model import topics

logger = logging.getLogger(__name__)

KEPT = frozenset(topic.name for topic in (topics.CALLS, topics.HOSTS, topics.OPS))
"""What the operators of a head read."""
_BEGIN, _END = "journal-", ".rec"


class Journal:
    """Any thread appends; one says what is covered.

    Parameters
    ----------
    folder
        Its own.
    first
        The number of the first message that comes.
    on_lost
        Called when the disk takes nothing: nobody can go on from a state after which something is missing.

    Attributes
    ----------
    next
        The number of the next message.
    lost
        How many messages were to be kept and are not: the disk took nothing.

    """

    def __init__(self, folder: Path, first: int, on_lost: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self.next = first
        self.lost = 0
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._writer: RecordingWriter | None = None
        self._begin()

    def append(self, topic: str, key: str, value: bytes) -> int:
        """Keep a message; its number, -1 where nobody needs it. A disk that takes nothing costs a warning.

        Until another state is written nothing more is kept then: a journal with a gap would be refused.
        """
        if topic not in KEPT:
            return -1
        with self._lock:
            number, self.next = self.next, self.next + 1
            if self._writer is not None:
                message = Message(topic=topic, key=key, partition=0, offset=number, value=value)
                try:
                    self._writer.write(message)
                    self._writer.flush()
                except OSError as error:
                    self._lost(error)
            self.lost += self._writer is None
        return number

    def cover(self, first: int) -> None:
        """A state covers everything before this number: begin a new file, and remove those that hold nothing else."""
        with self._lock:
            self._close()
            self._begin()
        files = _files(self._folder)
        for (_, path), (following, _) in pairwise(files):
            if following <= first:
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Nobody needs it any more."""
        with self._lock:
            self._close()
        remove_journal(self._folder)

    def close(self) -> None:
        """Leave it as it is."""
        with self._lock:
            self._close()

    def _begin(self) -> None:
        try:
            path = self._folder / f"{_BEGIN}{self.next:020d}{_END}"
            path.unlink(missing_ok=True)  # the same number: nothing has come since, or a former head wrote nothing
            self._writer = RecordingWriter(path)
            self._writer.flush()
        except (OSError, InvalidInput) as error:
            self._lost(error)

    def _lost(self, error: Exception) -> None:
        logger.warning("a next head cannot go on from here until the state is written again: %s", error)
        self._close()
        self._on_lost()

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except OSError as error:
                logger.warning("the end of the journal is lost: %s", error)


def read_journal(folder: Path, first: int) -> Iterator[Message]:
    """The messages of a former head from this number on, each with its number.

    Raises
    ------
    InvalidInput
        One is missing, or a file is damaged. (One that its writer was killed in the middle of was not answered for.)

    """
    expected = first
    for begin, path in _files(folder):
        if begin > expected:
            raise InvalidInput(f"the journal in {folder} goes on at message {begin}, and {expected} is missing")
        for message in Recording(path):
            if message.offset < first:
                continue
            if message.offset != expected:
                raise InvalidInput(f"{path} goes on at message {message.offset}, and {expected} is missing")
            expected += 1
            yield message


def what_can_be_read(folder: Path) -> Iterator[Message]:
    """The messages of a former head from which none goes on, up to where each file is damaged."""
    for _, path in _files(folder):
        with suppress(InvalidInput):
            yield from Recording(path)


def last_written_ns(folder: Path) -> int:
    """When the journal was last written to, Unix time; 0 where there is none."""
    return max((path.stat().st_mtime_ns for _, path in _files(folder)), default=0)


def remove_journal(folder: Path) -> None:
    """Nobody goes on from there."""
    for _, path in _files(folder):
        path.unlink(missing_ok=True)


def _files(folder: Path) -> list[tuple[int, Path]]:
    found = []
    for path in folder.glob(f"{_BEGIN}*{_END}"):
        number = path.name.removeprefix(_BEGIN).removesuffix(_END)
        if number.isdecimal():
            found.append((int(number), path))
    return sorted(found)
