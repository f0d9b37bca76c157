"""The recordings of real training runs that lie beside the project, with their answers (`recordings.json`)."""

from __future__ import annotations

import os
from pathlib import Path

from collector.importers.step_logs.recognise import read_step_logs
from pacehound.model.step_log import StepLog
from pacehound.model.truth.file import LogTruth, TruthFile

SHARED = Path(os.environ.get("PACEHOUND_SHARED", Path(__file__).resolve().parents[2] / "shared"))
FOLDER = SHARED / "data" / "iter"
ANSWERS = Path(__file__).with_name("recordings.json")


def recordings() -> list[tuple[LogTruth, Path]]:
    """Each answer with its log; none where the recordings are missing."""
    return [(truth, FOLDER / truth.path) for truth in TruthFile.read(ANSWERS).logs if (FOLDER / truth.path).is_file()]


def read(path: Path) -> StepLog:
    """The step times of one recording."""
    (log,) = read_step_logs(path)
    return log
