"""Calls that the shim cannot place are counted as lost, once, whatever else is in the control block's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.agent import control_block
from pacehound.model.events import Progress
from tests.fakes.agent_run import MS, AgentRun


def put(
    run: AgentRun, pid: int, unnamed: int, *, start_ticks: int = 1000, version: int = control_block.VERSION
) -> Path:
    head = control_block.HEADER.pack(control_block.MAGIC, version, pid, start_ticks, 0)
    path = run.path / "control" / f"{pid}.control"
    path.parent.mkdir(exist_ok=True)
    block = head.ljust(control_block.UNNAMED, b"\0") + unnamed.to_bytes(8, "little")
    path.write_bytes(block.ljust(control_block.BLOCK_BYTES, b"\0"))
    return path


def started(path: Path) -> AgentRun:
    run = AgentRun(path)
    for rank in (0, 1):
        ring = run.ring(rank)
        ring.group([0, 1])
        ring.launch(0, MS)
    return run


def lost(run: AgentRun) -> int:
    return run.receiver.of(Progress)[-1].dropped_total


def test_they_are_counted_as_lost_calls_of_the_world_once(tmp_path: Path) -> None:
    run = started(tmp_path)
    put(run, 100, 7)
    run.flush()
    assert lost(run) == 7
    put(run, 100, 9)
    put(run, 101, 1)
    run.flush()
    run.kill()
    run.flush()
    assert lost(run) == 10


def test_an_agent_that_starts_again_says_why_only_when_there_are_more(tmp_path: Path) -> None:
    run = started(tmp_path)
    put(run, 100, 7)
    run.flush()
    assert any("rank 0 calls NCCL on communicators" in reason for reason in run.agent.assembler.counts.reasons)
    run.kill()
    run.flush()
    assert run.agent.assembler.counts.unnamed == 0


@pytest.mark.parametrize("what", ["none", "another process", "another version", "cut short", "garbage", "a folder"])
def test_what_is_no_block_of_the_process_counts_nothing(tmp_path: Path, what: str) -> None:
    run = started(tmp_path)
    if what == "another process":
        put(run, 100, 7, start_ticks=999)
    elif what == "another version":
        put(run, 100, 7, version=1)
    elif what == "cut short":
        path = put(run, 100, 7)
        path.write_bytes(path.read_bytes()[: control_block.UNNAMED + 3])
    elif what == "garbage":
        put(run, 100, (1 << 64) - 1)
    elif what == "a folder":
        (run.path / "control" / "100.control").mkdir(parents=True)
    run.flush()
    assert lost(run) == 0
