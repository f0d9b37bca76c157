"""Whole runs, real and simulated, give the incidents that they gave when they were recorded, byte for byte."""

from __future__ import annotations

import io
import lzma
from pathlib import Path

import pytest

from pacehound.bus.recording import Recording
from pacehound.cli.replay_run import replayed, write_events
from pacehound.settings import Settings
from streams.pipeline import Pipeline

RECORDINGS = sorted((Path(__file__).parents[1] / "recordings").glob("*.rec.xz"))


def test_the_recordings_are_there() -> None:
    assert len(RECORDINGS) >= 12


@pytest.mark.parametrize("packed", RECORDINGS, ids=lambda path: path.name.partition(".")[0])
def test_a_recorded_run_gives_the_same_incidents(packed: Path, tmp_path: Path) -> None:
    recording = tmp_path / "run.rec"
    recording.write_bytes(lzma.decompress(packed.read_bytes()))
    told = io.StringIO()
    pipeline = Pipeline(Settings.load({}, ["hang.suspect_after_s=3"]))
    write_events(replayed(Recording(recording), pipeline), told)
    incidents = [
        line.removesuffix(",") for line in told.getvalue().splitlines() if line.startswith('{"event":"Incident"')
    ]
    expected = packed.with_name(packed.name.replace(".rec.xz", ".incidents.jsonl"))
    assert incidents == expected.read_text(encoding="utf-8").splitlines()
