"""Ranks that have written nothing, found among real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.host.processes import read_stat
from collector.host.processes_of_run import ranks_of_run
from collector.host.rank_process import RankProcess

WITH_A_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"])
sys.stdin.read()
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.communicate()  # they end with their standard input


def start(into: list[subprocess.Popen[bytes]], command: list[str], **environ: str) -> int:
    """A process with a child that is up; its pid."""
    process = subprocess.Popen(command, env={**os.environ, **environ}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    into.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process.pid


def test_the_process_of_a_rank_is_the_first_python_one_of_those_that_have_its_environment(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(WITH_A_CHILD)
    python = [sys.executable, str(script)]
    ours = {"PACEHOUND_RUN_DIR": str(tmp_path), "PACEHOUND_ATTEMPT": "2", "TORCHELASTIC_RESTART_COUNT": "1"}
    pid = start(started, python, **ours, RANK="1")
    start(started, python, **ours)  # a launcher has no rank
    start(started, python, PACEHOUND_RUN_DIR=str(tmp_path / "other"), RANK="3")
    # The shell stays, for it has more to do.
    shell = start(started, ["sh", "-c", f"{sys.executable} {script}; true"], **ours, RANK="4")
    one, four = ranks_of_run(tmp_path)
    stat = read_stat(pid)
    assert stat is not None
    assert one == RankProcess(attempt=3, rank=1, pid=pid, start_ticks=stat.start_ticks)
    assert (four.rank, four.attempt) == (4, 3)
    assert four.pid != shell


def test_a_rank_that_is_no_number_and_a_process_that_is_gone_are_passed_over(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    start(started, [sys.executable, "-c", WITH_A_CHILD], PACEHOUND_RUN_DIR=str(tmp_path), RANK="first")
    assert ranks_of_run(tmp_path) == []
    assert ranks_of_run(tmp_path, tmp_path) == []
