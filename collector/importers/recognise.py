"""Which kind of call file it is, told by what is in it; what is none of them may be a step-time log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.importers.call_files import inspector, kineto, ras_json, ras_text, xpu_timer
from collector.importers.call_files.content import head_of
from collector.importers.call_files.flight_recorder import dump, job
from collector.importers.call_files.reading import Joined, Refusal
from collector.importers.call_files.refusal import RefusedFile
from pacehound.model.call_file import CallFile


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFormat:
    """One kind of file.

    Attributes
    ----------
    name, about
        For machines and for people.
    looks_like_one
        By the first bytes of a file.
    read
        One file, checked; what it gives is for `join` alone.
    join
        The files of one job, and the job's name.
    speaks_for_all
        Each file speaks for the whole job, so that two of them are two answers and not two ranks.

    """

    name: str
    about: str
    looks_like_one: Callable[[bytes], bool]
    read: Callable[[Path], Any]
    join: Callable[[Sequence[Any], str], Joined]
    speaks_for_all: bool = False


# The most particular first: traces describe their groups as Flight Recorder dumps do.
CALL_FORMATS = (
    CallFormat(
        name=ras_json.FORMAT,
        about="NCCL RAS answers (JSON or text)",
        looks_like_one=ras_json.looks_like_one,
        read=ras_json.read_answer,
        join=ras_json.joined,
        speaks_for_all=True,
    ),
    CallFormat(
        name=inspector.FORMAT,
        about="NCCL Inspector logs",
        looks_like_one=inspector.looks_like_one,
        read=inspector.read_log,
        join=inspector.joined,
    ),
    CallFormat(
        name=kineto.FORMAT,
        about="PyTorch profiler traces (Kineto)",
        looks_like_one=kineto.looks_like_one,
        read=kineto.read_trace,
        join=kineto.joined,
    ),
    CallFormat(
        name=job.FORMAT,
        about="Flight Recorder dumps (pickle or JSON)",
        looks_like_one=dump.looks_like_one,
        read=dump.read_dump,
        join=job.joined,
    ),
    CallFormat(
        name=ras_text.FORMAT,
        about="",
        looks_like_one=ras_text.looks_like_one,
        read=ras_text.read_answer,
        join=ras_text.joined,
        speaks_for_all=True,
    ),
    CallFormat(
        name=xpu_timer.FORMAT,
        about="xpu_timer scrapes",
        looks_like_one=xpu_timer.looks_like_one,
        read=xpu_timer.read_scrape,
        join=xpu_timer.joined,
    ),
)


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
    return ", ".join(one.about for one in CALL_FORMATS if one.about)


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
            refused.append(Refusal(path=path, reason=f"{kind.name}: {error}"))
        else:
            found.setdefault((path.parent, kind.name, path if kind.speaks_for_all else None), []).append(value)
    by_name = {kind.name: kind for kind in CALL_FORMATS}
    sets = []
    for (folder, name, alone), values in found.items():
        joined = by_name[name].join(values, folder.resolve().name or "job")
        refused += [Refusal(path=one.path, reason=f"{name}: {one.reason}") for one in joined.refused]
        if joined.files:
            sets.append(CallSet(folder=alone or folder, format=name, files=joined.files))
    return Recognised(sets=tuple(sets), refused=tuple(refused), others=tuple(others))
