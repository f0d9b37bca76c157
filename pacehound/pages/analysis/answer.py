"""The answer about a set of files, as values and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from pacehound.errors import InvalidInput
from pacehound.model.events import Finding
from pacehound.model.step_log import StepLog
from pacehound.pages.analysis.calls import CallSource, finding_fields, source_fields
from pacehound.pages.analysis.ranks import RankFinding, joined

Follow = Callable[[StepLog], tuple[Sequence[Finding], Sequence[Finding]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file: its series (one, or one per rank) and what was found in them.

    Attributes
    ----------
    findings
        In order of onset; where ranks agree, one finding stands for them all.
    planned
        What was learnt to be planned: nothing to do.

    """

    path: str
    logs: tuple[StepLog, ...]
    findings: tuple[RankFinding, ...] = ()
    planned: tuple[RankFinding, ...] = ()

    @property
    def ranks(self) -> tuple[int, ...]:
        """World ranks of its series; empty where it speaks for the whole job."""
        return tuple(log.rank for log in self.logs if log.rank is not None)

    @property
    def steps(self) -> int:
        """How many steps its longest series tells."""
        return max((int(log.n_steps.sum()) for log in self.logs), default=0)

    @property
    def median_step_time_s(self) -> float | None:
        """Over everything that is a positive number; `None` where nothing is."""
        times_s = np.concatenate([log.step_time_s for log in self.logs])
        times_s = times_s[np.isfinite(times_s) & (times_s > 0)]
        return float(np.median(times_s)) if len(times_s) else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out or repaired in reading, each once."""
        return tuple(dict.fromkeys(note for log in self.logs for note in log.notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A file that could not be used."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Everything that was asked about."""

    sources: tuple[Source, ...]
    refused: tuple[Refused, ...]
    calls: tuple[CallSource, ...] = ()


def read_files(
    files: Iterable[Path], read: Callable[[Path], list[StepLog]]
) -> tuple[list[tuple[StepLog, ...]], list[Refused]]:
    """The series of each file, and the files that `read` refuses."""
    logs, refused = [], []
    for file in files:
        try:
            logs.append(tuple(read(file)))
        except InvalidInput as error:
            refused.append(Refused(path=str(file), reason=str(error)))
    return logs, refused


def analysed(logs: Sequence[StepLog], follow: Follow) -> Source:
    """What `follow` finds in the series of one file."""
    followed = [(log, *follow(log)) for log in logs]
    return Source(
        path=logs[0].path,
        logs=tuple(logs),
        findings=joined([(log, findings) for log, findings, _ in followed]),
        planned=joined([(log, planned) for log, _, planned in followed]),
    )


def analysis_answer(analysis: Analysis) -> dict[str, Any]:
    """What `pacehound analyze --json` prints (DESIGN section 10)."""
    return {
        "schema": 1,
        "sources": [
            {
                "path": source.path,
                "format": source.logs[0].format,
                "ranks": list(source.ranks),
                "steps": source.steps,
                "median_step_time_s": source.median_step_time_s,
                "notes": list(source.notes),
            }
            for source in analysis.sources
        ]
        + [source_fields(source) for source in analysis.calls],
        "findings": [_fields(source, found) for source in analysis.sources for found in source.findings]
        + [fields for source in analysis.calls for fields in finding_fields(source)],
        "planned": [_fields(source, found) for source in analysis.sources for found in source.planned],
        "refused": [msgspec.to_builtins(refused) for refused in analysis.refused],
    }


def _fields(source: Source, found: RankFinding) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(found.finding)
    return {**fields, "source": source.path, "ranks": list(found.ranks)}
