"""A file of answers: what is known to have happened in logs of step times, for `pacehound evaluate --truth`.

JSON. One entry per log; a log that is clean has no changes. Steps are those of the log itself.

    {"schema": 1,
     "logs": [{"path": "run-17.log",
               "note": "where the answer is from; nobody reads it but people",
               "onset_within": 250,
               "changes": [{"kind": "slow", "onset": 2800, "end": 3500, "magnitude": 0.1},
                           {"kind": "planned", "onset": 9000, "magnitude": 0.5, "is_explained": true}]}]}

The fields of a change are those of `pacehound.model.truth.steps.TrueChange`; `kind` and `onset` must be there.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from pacehound.errors import InvalidInput
from pacehound.model.json_documents import UNREADABLE_JSON
from pacehound.model.step_log import StepLog
from pacehound.model.truth.steps import StepTruth, TrueChange


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTruth:
    """What is known of one log.

    Attributes
    ----------
    path
        The log's name: absolute, or beside the file of answers, or the last part of it alone.
    changes
        In order of onset.
    onset_within
        How many steps the onset of a finding may be off; `None` leaves that to who scores.
    note
        For people.

    """

    path: str
    changes: tuple[TrueChange, ...] = ()
    onset_within: int | None = None
    note: str = ""

    def of(self, log: StepLog) -> StepTruth:
        """The truth about this log, from its first step to its last.

        Raises
        ------
        InvalidInput
            The log has no rows, or the changes are not in order.

        """
        if not len(log):
            raise InvalidInput(f"{log.path} has no step times to hold against an answer")
        first = int(log.step[0] - log.n_steps[0] + 1)
        try:
            return StepTruth(first_step=min(first, int(log.step[0])), last_step=int(log.step[-1]), changes=self.changes)
        except ValueError as error:
            raise InvalidInput(f"the answers about {log.path}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class TruthFile:
    """Answers about several logs."""

    schema: int
    logs: tuple[LogTruth, ...]

    @classmethod
    def read(cls, path: Path) -> TruthFile:
        """Read a file of answers.

        Raises
        ------
        InvalidInput
            It cannot be read, is no such JSON, or is of another schema.

        """
        try:
            data = path.read_bytes()
            truths, written = msgspec.json.decode(data, type=cls), msgspec.json.decode(data)
        except (OSError, *UNREADABLE_JSON) as error:
            raise InvalidInput(f"{path} is no file of answers: {error}") from error
        if truths.schema != 1:
            raise InvalidInput(f"{path} has schema {truths.schema}, this build reads 1")
        if unknown := _unknown_keys(written):
            raise InvalidInput(f"{path} has fields that nothing reads: {', '.join(unknown)}")
        return truths

    def about(self, path: Path) -> LogTruth:
        """The answer about one log: by its whole path, else by its name.

        Raises
        ------
        InvalidInput
            There is none, or more than one.

        """
        fits = [log for log in self.logs if Path(log.path) == path] or [
            log for log in self.logs if Path(log.path).name == path.name
        ]
        if len(fits) != 1:
            raise InvalidInput(f"there are {len(fits)} answers about {path}; there must be one")
        return fits[0]


def _unknown_keys(file: Any) -> list[str]:
    """Misspelt fields: passed over, they would turn a slow log into a clean one."""
    parts: list[tuple[Any, type]] = [(file, TruthFile)]
    parts += [(log, LogTruth) for log in file["logs"]]
    parts += [(change, TrueChange) for log in file["logs"] for change in log.get("changes", ())]
    return sorted({key for part, kind in parts for key in part if key not in {field.name for field in fields(kind)}})
