"""The files of a folder, listed again only when something has changed in it: it is asked twenty times a second."""

from __future__ import annotations

import os
from pathlib import Path


class FolderListing:
    """The files of one folder whose names end in a certain way.

    Parameters
    ----------
    folder
        It may not exist yet.
    suffix
        With its dot.

    """

    def __init__(self, folder: Path, suffix: str) -> None:
        self._folder = folder
        self._suffix = suffix
        self._changed_ns = -1
        self._list_again = False
        self._names: list[str] = []

    def names(self) -> list[str]:
        """Their names now, sorted; none where there is no such folder."""
        try:
            changed_ns = self._folder.stat().st_mtime_ns
            if changed_ns != self._changed_ns or self._list_again:
                self._names = sorted(name for name in os.listdir(self._folder) if name.endswith(self._suffix))
                # Two changes within a clock tick share one time, so one more look, a tick later, follows each change.
                self._list_again = changed_ns != self._changed_ns
                self._changed_ns = changed_ns
        except (FileNotFoundError, NotADirectoryError):
            return []
        return self._names
