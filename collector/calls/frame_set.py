"""All probing frames of a run folder: finds new ones, looks at them, and lets go of those whose process has left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from collector.calls.folder_listing import FolderListing
from collector.calls.frames import FrameLook, FrameReader, UnreadableFrame
from collector.calls.ring_set import Refused


class FrameSet:
    """The frames of one folder.

    Parameters
    ----------
    folder
        `<run dir>/frames`; it exists where the profiler plugin is at work.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = FolderListing(folder, ".frame")
        self._readers: dict[str, FrameReader] = {}
        self._done: set[str] = set()  # refused, or of a process that has left

    @property
    def is_empty(self) -> bool:
        """No frame is looked at."""
        return not self._readers

    def look(self, mark_of: Callable[[tuple[int, int]], int]) -> tuple[list[FrameLook], list[Refused]]:
        """What every frame says now, and the files that are none (each of them once).

        `mark_of` gives what makes the ids that a process, (pid, start ticks), gives its communicators those of its
        attempt (`HostProcesses.mark_of`).
        """
        looks, refused = [], []
        for name in self._files.names():
            if name in self._done:
                continue
            try:
                if name not in self._readers:
                    self._readers[name] = FrameReader(self._folder / name)
                reader = self._readers[name]
                looks.append(_marked(reader.look(), mark_of(reader.process)))
            except (UnreadableFrame, OSError) as error:
                self._drop(name)
                refused.append(Refused(name=name, reason=str(error)))
        return looks, refused

    def retire(self, gone: set[tuple[int, int]]) -> None:
        """Remove the frames of processes that have left; (pid, start ticks) of each.

        They say no more than at the last look.
        """
        for name in [name for name, reader in self._readers.items() if reader.process in gone]:
            self._drop(name)
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()

    def close(self) -> None:
        """Let go of every file."""
        for name in list(self._readers):
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._done.add(name)
        reader = self._readers.pop(name, None)
        if reader is not None:
            reader.close()


def _marked(look: FrameLook, mark: int) -> FrameLook:
    if not mark:
        return look
    running = {replace(one, communicator=one.communicator ^ mark): moved for one, moved in look.running.items()}
    return replace(look, running=running)
