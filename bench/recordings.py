"""The recordings of real training runs that lie beside the project, with their answers (`recordings.json`)."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path

import numpy as np

from pacehound.steps import StepLog
from pacehound.truth_file import LogTruth, TruthFile

SHARED = Path(os.environ.get("PACEHOUND_SHARED", Path(__file__).resolve().parents[2] / "shared"))
FOLDER = SHARED / "data" / "iter"
ANSWERS = Path(__file__).with_name("recordings.json")


def recordings() -> list[tuple[LogTruth, Path]]:
    """Each answer with its log; none where the recordings are missing."""
    return [(truth, FOLDER / truth.path) for truth in TruthFile.read(ANSWERS).logs if (FOLDER / truth.path).is_file()]


def read(path: Path) -> StepLog:
    """The step times of one recording."""
    text = gzip.decompress(path.read_bytes()).decode(errors="replace")
    if path.name.startswith("bigscience"):
        times_s = [float(ms) / 1e3 for ms in re.findall(r"elapsed time per iteration \(ms\): ([\d.]+)", text)]
        return _log(path, np.arange(len(times_s)), np.array(times_s))
    if path.name.startswith("mng"):
        pairs = re.findall(r"step:(\d+)/\d+.*train_time:([\d.]+)ms", text)
        step, total_ms = (np.array(column, float) for column in zip(*pairs, strict=True))
        is_new = np.diff(step) > 0
        return _log(path, step[1:][is_new], (np.diff(total_ms) / np.maximum(np.diff(step), 1) / 1e3)[is_new])
    events = [json.loads(line.split(":::MLLOG ", 1)[1]) for line in text.splitlines() if ":::MLLOG " in line]
    stats = [e for e in sorted(events, key=lambda e: e["time_ms"]) if e["key"] == "tracked_stats"]
    if "maskrcnn" in path.name:
        at = [(e["metadata"]["step"], e["time_ms"]) for e in stats if "time" in e["value"]]
        step, time_ms = (np.array(column, float) for column in zip(*at, strict=True))
        return _log(path, step[1:], np.diff(time_ms) / np.diff(step) / 1e3, np.diff(step))
    times_s = [e["value"]["train_step_time"] for e in stats if "train_step_time" in e["value"]]
    return _log(path, np.arange(len(times_s)), np.array(times_s))


def _log(path: Path, step: np.ndarray, time_s: np.ndarray, n_steps: np.ndarray | None = None) -> StepLog:
    n = len(step)
    return StepLog(
        path=path.name,
        format="recording",
        step=step.astype(np.int64),
        n_steps=np.ones(n, np.int64) if n_steps is None else n_steps.astype(np.int64),
        time_ns=np.zeros(n, np.int64),
        step_time_s=time_s.astype(np.float64),
    )
