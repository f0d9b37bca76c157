"""A process of ours that dies: how often that is said, and that it is started again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pacehound.launcher.restarting import RestartingProcess


@pytest.fixture
def said() -> list[str]:
    return []


def process(folder: Path, said: list[str], code: str) -> RestartingProcess:
    argv = [sys.executable, "-S", "-c", code]
    return RestartingProcess("head", argv, os.environ, (), folder / "head.log", said.append)


def dies(one: RestartingProcess, began_s: float, looked_s: float) -> None:
    """It is started, left to end, and looked at."""
    one.ensure_running(began_s)
    assert one._process is not None
    one._process.wait(30)
    one.ensure_running(looked_s)


def test_one_that_cannot_start_is_told_of_twice(tmp_path: Path, said: list[str]) -> None:
    one = process(tmp_path, said, "raise SystemExit('no such library')")
    for number in range(12):
        dies(one, 40.0 * number, 40.0 * number + 1)
    assert [line.partition(" (")[0] for line in said] == ["the head ended", "the head has ended 5 times in a row"]
    assert all("no such library" in line for line in said)
    assert "pacehound doctor" in said[-1]
    assert one.has_died


def test_a_death_after_a_minute_is_the_first_again(tmp_path: Path, said: list[str]) -> None:
    one = process(tmp_path, said, "")
    for began_s in (0.0, 1_000.0, 2_000.0):
        dies(one, began_s, began_s + 61)
    assert len(said) == 3
