"""What every reader of call files does: read one file, then join the files of one job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pacehound.call_file import CallFile


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
