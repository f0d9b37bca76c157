"""Calls that torch's hooks see on a device, timed by its events where a controller asks for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.agent.control_block import TimingPhase
from tests.native import stub_jobs
from tests.native.stub_jobs import Built

ROOT = Path(__file__).resolve().parents[2]
CLOCKS_NS = 1_000_000
"""How far the device's clock may be from the host's, where whoever reads both was interrupted in between."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    yield from stub_jobs.tmpfs()


@pytest.fixture(scope="module")
def said(built: Built, folder: Path) -> dict[str, Any]:
    run_dir = folder / "run"
    run_dir.mkdir()
    command = [sys.executable, "-m", "tests.native.hooked_device_job", str(built.folder / "libnccl.so.2"), str(run_dir)]
    environ = {**os.environ, "PACEHOUND_RUN_DIR": str(run_dir), "PACEHOUND_JOB": "j", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def completed(said: dict[str, Any], group: str) -> list[dict[str, int]]:
    """In the order of the calls, however long one of them seemed: the stub's streams are threads."""
    return sorted((call for call in said["completed"] if call["handle"] == group), key=lambda call: call["seq"])


def test_until_somebody_asks_nothing_is_timed_and_afterwards_no_more(said: dict[str, Any]) -> None:
    assert (said["off"], said["phase"]) == (TimingPhase.OFF, TimingPhase.OFF)
    assert said["after"] == {"timed": 0, "untimed": 0}


def test_a_call_on_the_callers_stream_begins_when_the_rank_has_come_to_it(said: dict[str, Any]) -> None:
    """Launched 20 ms before its kernel began: what the rank computes is not the call's time."""
    assert said["sync"] == {"timed": 1, "untimed": 0}
    call = max(completed(said, "stream"), key=lambda call: call["start_ns"] - call["launch_ns"])
    assert call["start_ns"] - call["launch_ns"] >= 19_000_000
    assert call["end_ns"] - call["start_ns"] < 20_000_000


def test_calls_that_wait_for_each_other_on_a_stream_of_torchs_own_begin_one_after_the_other(
    said: dict[str, Any],
) -> None:
    assert said["async"] == {"timed": 3, "untimed": 0}
    first, second, third = completed(said, "future")[:3]
    assert first["end_ns"] <= second["start_ns"] + CLOCKS_NS
    assert second["end_ns"] <= third["start_ns"] + CLOCKS_NS
    assert third["launch_ns"] < first["end_ns"]


def test_what_cannot_be_seen_without_changing_the_job_is_left_out_and_counted(said: dict[str, Any]) -> None:
    assert said["not done"] == said["left out"] == {"timed": 0, "untimed": 1}
    assert said["futures asked for"] == 0


def test_what_goes_into_a_graph_is_not_timed_and_does_not_count(said: dict[str, Any]) -> None:
    assert said["captured"] == {"timed": 0, "untimed": 0}


def test_each_launch_that_promises_times_gets_its_end_with_the_same_key(said: dict[str, Any]) -> None:
    def keys(calls: list[dict[str, Any]]) -> list[tuple[str, int]]:
        return sorted((call["handle"], call["seq"]) for call in calls if call["flags"] & said["timed flag"])

    assert keys(said["launched"]) == keys(said["completed"])
    assert len(keys(said["launched"])) == len(said["completed"]) < len(said["launched"])
