"""What call files of one job say: who is to blame, or what is missing to say it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pacehound.model.call_file import CallFile
from pacehound.model.events import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSource:
    """The call files of one job.

    Attributes
    ----------
    path
        A directory, or the one file.
    files
        In order of their ranks.
    findings
        With `path` as their source.

    """

    path: str
    format: str
    files: tuple[CallFile, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        """World ranks that the files speak for."""
        return tuple(sorted({rank for file in self.files for rank in file.ranks}))

    @property
    def world_size(self) -> int:
        """Ranks of the job; 0 where no file tells."""
        return max((file.world_size for file in self.files), default=0)

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """Ranks of the job that no file speaks for."""
        return tuple(sorted(set(range(self.world_size)) - set(self.ranks)))

    @property
    def notes(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """What was left out or repaired in reading, and in the files of which ranks."""
        ranks: dict[str, list[int]] = {}
        for file in self.files:
            for note in file.notes:
                ranks.setdefault(note, []).extend(file.ranks)
        return tuple((note, tuple(sorted(set(of_note)))) for note, of_note in ranks.items())

    @property
    def cannot_know(self) -> tuple[str, ...]:
        """What this kind of file leaves open, each once."""
        return tuple(dict.fromkeys(said for file in self.files for said in file.cannot_know))


def call_source(
    folder: Path, files: Sequence[CallFile], findings: Sequence[Finding], given: Sequence[Path]
) -> CallSource:
    """The files of one job and what was found in them.

    Parameters
    ----------
    folder
        Where they are.
    files, findings
        Of the job.
    given
        The paths that were asked about: a directory stands for its files where it was given, or has several.

    """
    path = files[0].path if len(files) == 1 and folder not in given else str(folder)
    return CallSource(
        path=path,
        format=files[0].format,
        files=tuple(sorted(files, key=lambda file: file.ranks)),
        findings=tuple(dataclasses.replace(finding, source=path) for finding in findings),
    )


def source_fields(source: CallSource) -> dict[str, Any]:
    """One entry of `sources` (DESIGN section 10)."""
    return {
        "path": source.path,
        "format": source.format,
        "ranks": list(source.ranks),
        "world_size": source.world_size,
        "missing_ranks": list(source.missing_ranks),
        "files": [file.path for file in source.files],
        "cannot_know": list(source.cannot_know),
        "notes": [note if not ranks else f"ranks {list(ranks)}: {note}" for note, ranks in source.notes],
    }


def finding_fields(source: CallSource) -> list[dict[str, Any]]:
    """The entries of `findings`."""
    return [{**msgspec.to_builtins(finding), "ranks": list(source.ranks)} for finding in source.findings]
