"""What people have said to the alerts: be silent about a job for a while; somebody has acknowledged an alert.

One JSON object per line in a file that `pacehound alerts silence` and `pacehound alerts acknowledge` append to and that
the process which tells people looks at. It is text: a line may be taken out with an editor.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from pacehound.errors import InvalidInput

logger = logging.getLogger(__name__)

SETTING = "alerts.orders_file"


class Silence(msgspec.Struct, frozen=True, kw_only=True, tag="silence", tag_field="order"):
    """Nobody is told of what opens or goes on in these jobs; `job` is a pattern, as in `pretrain-*`."""

    job: str
    from_ns: int
    until_ns: int
    why: str
    by: str = ""

    def __post_init__(self) -> None:
        if self.until_ns <= self.from_ns:
            raise ValueError("a silence has to end after it has begun")


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True, tag="acknowledge", tag_field="order"):
    """Somebody works on it: nobody else need be told."""

    incident: str
    time_ns: int
    by: str = ""


Order = Silence | Acknowledgement


@dataclass(frozen=True, slots=True)
class Orders:
    """All that were said, in order."""

    said: tuple[Order, ...] = ()

    def silence(self, jobs: frozenset[str], now_ns: int) -> Silence | None:
        """The silence that holds for all of these jobs and lasts longest; one that is not silent is heard."""
        holds = [one for one in self.said if isinstance(one, Silence) and one.from_ns <= now_ns < one.until_ns]
        if not holds or not all(any(fnmatchcase(job, one.job) for one in holds) for job in jobs):
            return None
        # The first that ends may end the silence of the last job: it is looked at again then.
        return min(
            (one for one in holds if any(fnmatchcase(job, one.job) for job in jobs)), key=lambda one: one.until_ns
        )

    def acknowledgement(self, ids: set[str], since_ns: int) -> Acknowledgement | None:
        """Who has acknowledged one of these incidents since somebody was told of it."""
        for one in reversed(self.said):
            if isinstance(one, Acknowledgement) and one.incident in ids and one.time_ns >= since_ns:
                return one
        return None


class OrdersFile:
    """The file, read again when it has changed.

    A file that is not there yet holds no orders. A line that cannot be read is said aloud and passed over: a slip of
    the pen must not silence anything, nor undo the silences beside it.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self.orders = Orders()

    @property
    def is_watched(self) -> bool:
        """There may be one."""
        return self._path is not None

    def look(self) -> bool:
        """Whether it says something else than before."""
        if self._path is None:
            return False
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_size)
            if seen == self._seen:
                return False
            text = self._path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            seen, text = (0, 0), ""
            if self._seen in (None, seen):
                return False
        except OSError as error:
            logger.warning("%s=%s cannot be read: %s", SETTING, self._path, error.strerror)
            return False
        self._seen = seen
        said: list[Order] = []
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                said.append(msgspec.json.decode(line, type=Order))
            except (msgspec.DecodeError, ValueError) as error:
                logger.warning("line %d of %s is passed over: %s", number, self._path, error)
        self.orders = Orders(tuple(said))
        return True


def append(path: str, order: Order) -> None:
    """Say something to whoever reads the file.

    Raises
    ------
    InvalidInput
        There is no such file set, or it cannot be written.

    """
    if not path:
        raise InvalidInput(f"set {SETTING} to the file that `pacehound alerts` (or the head) reads, as it is set there")
    try:
        # One write of one line: two people at once do not mix their words.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(order) + b"\n")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InvalidInput(f"{SETTING}={path!r} cannot be written: {error.strerror}") from error
