"""All rings of a run folder: finds new ones, reads them, and removes those that are done.

Nobody writes a ring any more when its writer has closed it, or when its process has left. It is removed when it was
read to its end after that, and what was read has been saved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collector.calls.folder_listing import FolderListing
from collector.calls.rings import RingHeader, RingRead, RingReader, UnreadableRing


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A file that is not, or no longer, read, and why."""

    name: str
    reason: str
    header: RingHeader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one ring had to say."""

    header: RingHeader
    read: RingRead


class RingSet:
    """The rings of one folder.

    Parameters
    ----------
    folder
        `<run dir>/rings`; it may not exist yet.
    positions
        Where an earlier reader had come to, by file name.
    finished
        Names of files that need not be opened again, and may be removed.

    """

    def __init__(self, folder: Path, positions: dict[str, int], finished: set[str]) -> None:
        self._folder = folder
        self._resume_at = dict(positions)
        self._finished = set(finished)
        self._readers: dict[str, RingReader] = {}
        self._refused: set[str] = set()
        self._files = FolderListing(folder, ".ring")

    @property
    def positions(self) -> dict[str, int]:
        """The index of the next record of each ring that is not finished."""
        return {**self._resume_at, **{name: reader.position for name, reader in self._readers.items()}}

    @property
    def finished(self) -> list[str]:
        """Names of the files that are read to the end for good, and still there."""
        return sorted(self._finished)

    def discover(self) -> tuple[list[RingHeader], list[Refused]]:
        """Open what is new; the headers of new rings, and files that are none."""
        opened, refused = [], []
        for name in self._files.names():
            if name in self._readers or name in self._finished or name in self._refused:
                continue
            try:
                reader = RingReader(self._folder / name, self._resume_at.get(name, 0))
            except FileNotFoundError:  # removed since the folder was listed
                continue
            except (UnreadableRing, OSError) as error:
                self._refused.add(name)
                refused.append(Refused(name=name, reason=str(error)))
                continue
            self._readers[name] = reader
            opened.append(reader.header)
        return opened, refused

    def read(self) -> Iterator[Found | Refused]:
        """What every ring has to say that is new."""
        for name, reader in list(self._readers.items()):
            try:
                read = reader.read()
            except (UnreadableRing, OSError) as error:
                self._refused.add(name)
                self._resume_at[name] = reader.position
                self._drop(name)
                yield Refused(name=name, reason=str(error), header=reader.header)
                continue
            if len(read.records) or read.lost:
                yield Found(header=reader.header, read=read)

    def switched_off(self) -> set[tuple[int, int]]:
        """(pid, start ticks) of processes that have switched themselves off: what they call is not seen since then."""
        headers = (reader.header for reader in self._readers.values() if reader.is_off)
        return {(header.pid, header.process_start_ticks) for header in headers}

    def measured_ns_per_call(self) -> float:
        """What the NCCL shim takes of a call, over the rings that are open now; 0 where nobody has measured it."""
        measured = [reader.measured() for reader in self._readers.values()]
        calls = sum(n_calls for n_calls, _ in measured)
        return sum(took_ns for _, took_ns in measured) / calls if calls else 0.0

    def retire(self, gone: set[tuple[int, int]]) -> None:
        """Let go of rings whose writer has left, once they were read to their end after it had.

        Parameters
        ----------
        gone
            (pid, start ticks) of processes that had left before the last `read`.

        """
        for name, reader in list(self._readers.items()):
            has_left = (reader.header.pid, reader.header.process_start_ticks) in gone
            if (has_left and reader.is_drained) or reader.is_finished:
                self._finished.add(name)
                self._resume_at.pop(name, None)
                self._drop(name)

    def remove_finished(self) -> None:
        """Give the space of finished rings back; what was read of them must be saved by now."""
        for name in list(self._finished):
            with contextlib.suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)
                self._finished.discard(name)

    def close(self) -> None:
        """Let go of every file."""
        for name in list(self._readers):
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._readers.pop(name).close()
