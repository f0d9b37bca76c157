"""What every reader of call files does: read one file, then join the files of one job."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from collector.importers.call_files.refusal import RefusedFile
from pacehound.model.call_file import CallFile


class ReadFile(Protocol):
    """What a reader made of one file."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        ...


ReadFileT = TypeVar("ReadFileT", bound=ReadFile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A file of which nothing is used, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The files of one job, keyed by world rank, and those that cannot be of it."""

    files: tuple[CallFile, ...] = ()
    refused: tuple[Refusal, ...] = ()


def each_alone(read: Iterable[ReadFileT], call_file: Callable[[ReadFileT], CallFile]) -> Joined:
    """The call file of each, where every one speaks for the whole job; one that is refused keeps no other from it."""
    files, refused = [], []
    for one in read:
        try:
            files.append(call_file(one))
        except RefusedFile as error:
            refused.append(Refusal(path=one.path, reason=str(error)))
    return Joined(files=tuple(files), refused=tuple(refused))
