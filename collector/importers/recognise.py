"""Which kind of call file it is, told by what is in it; what is none of them may be a step-time log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from collector.importers.call_files import inspector, kineto, ras_json, ras_text, xpu_timer
from collector.importers.call_files.content import head_of
from collector.importers.call_files.flight_recorder import job as flight_recorder
from collector.importers.call_files.reading import Joined, Refusal
from collector.importers.call_files.refusal import RefusedFile
from pacehound.model.call_file import CallFile


class CallFormat(Protocol):
    """One kind of file: what a module has that reads it.

    Attributes
    ----------
    FORMAT, ABOUT
        Its name for machines and for people.
    SPEAKS_FOR_ALL
        Each file speaks for the whole job, so that two of them are two answers and not two ranks.

    """

    FORMAT: str
    ABOUT: str
    SPEAKS_FOR_ALL: bool

    def looks_like_one(self, head: bytes, /) -> bool:
        """By the first bytes of a file."""
        ...

    def read(self, path: Path, /) -> Any:
        """One file, checked; what it gives is for `joined` alone."""
        ...

    def joined(self, files: Sequence[Any], job: str, /) -> Joined:
        """The files of one job, and the job's name."""
        ...


# The most particular first: traces describe their groups as Flight Recorder dumps do.
CALL_FORMATS: tuple[CallFormat, ...] = (ras_json, inspector, kineto, flight_recorder, ras_text, xpu_timer)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSet:
    """The call files of one job: those of one format in one directory.

    `folder` is the directory as the paths name it, or the file that speaks for all; the files keep their own paths.
    """

    folder: Path
    format: str
    files: tuple[CallFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """Call files by job, files that are refused, and files that are no call files."""

    sets: tuple[CallSet, ...] = ()
    refused: tuple[Refusal, ...] = ()
    others: tuple[Path, ...] = ()


def format_of(path: Path) -> CallFormat | None:
    """The format that a file's first bytes look like; `None` where it cannot be opened, too."""
    try:
        head = head_of(path)
    except RefusedFile:
        return None
    return next((one for one in CALL_FORMATS if one.looks_like_one(head)), None)


def known_formats() -> str:
    """The formats in words, for messages."""
    return ", ".join(one.ABOUT for one in CALL_FORMATS if one.ABOUT)


def read_call_files(paths: Iterable[Path]) -> Recognised:
    """Read the call files among some files, and join those of one directory and format into one job.

    Parameters
    ----------
    paths
        Files. A job is named after its directory.

    """
    found: dict[tuple[Path, str, Path | None], list[Any]] = {}
    refused: list[Refusal] = []
    others: list[Path] = []
    for path in paths:
        kind = format_of(path)
        if kind is None:
            others.append(path)
            continue
        try:
            value = kind.read(path)
        except RefusedFile as error:
            refused.append(Refusal(path=path, reason=f"{kind.FORMAT}: {error}"))
        else:
            found.setdefault((path.parent, kind.FORMAT, path if kind.SPEAKS_FOR_ALL else None), []).append(value)
    by_name = {kind.FORMAT: kind for kind in CALL_FORMATS}
    sets = []
    for (folder, name, alone), values in found.items():
        joined = by_name[name].joined(values, folder.resolve().name or "job")
        refused += [Refusal(path=one.path, reason=f"{name}: {one.reason}") for one in joined.refused]
        if joined.files:
            sets.append(CallSet(folder=alone or folder, format=name, files=joined.files))
    return Recognised(sets=tuple(sets), refused=tuple(refused), others=tuple(others))
