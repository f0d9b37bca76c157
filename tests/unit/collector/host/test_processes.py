"""How a process is, and how it left, from recorded trees and from real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from collector.host.processes import ProcessWatch, Sighting, parse_stat, read_stat
from tests.fakes.proc_tree import ProcTree


@pytest.mark.parametrize(
    ("state", "wait_status", "seen"),
    [
        ("R", 0, Sighting(state="running")),
        ("S", 0, Sighting(state="running")),
        ("D", 0, Sighting(state="running")),
        ("T", 0, Sighting(state="stopped")),
        ("t", 0, Sighting(state="stopped")),
        ("Z", 0, Sighting(state="exited", exit_code=0)),
        ("Z", 3 << 8, Sighting(state="exited", exit_code=3)),
        ("Z", 6 | 128, Sighting(state="exited", signal=6)),
        ("X", 9, Sighting(state="exited", signal=9)),
    ],
)
def test_the_state_of_a_recorded_process(tmp_path: Path, state: str, wait_status: int, seen: Sighting) -> None:
    ProcTree(tmp_path).put(7, state=state, start_ticks=55, wait_status=wait_status)
    assert ProcessWatch(7, 55, tmp_path).look() == seen


def test_a_command_with_spaces_and_brackets_does_not_shift_the_fields(tmp_path: Path) -> None:
    ProcTree(tmp_path).put(7, start_ticks=1234567)
    stat = read_stat(7, tmp_path)
    assert stat is not None
    assert stat.start_ticks == 1234567


def test_a_process_that_is_not_there_has_left_in_a_way_nobody_knows(tmp_path: Path) -> None:
    assert ProcessWatch(7, 55, tmp_path).look() == Sighting(state="exited")


def test_a_line_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="not a line"):
        parse_stat("7 (cut")


def test_the_start_of_this_very_process_is_read_as_the_kernel_wrote_it() -> None:
    stat = read_stat(os.getpid())
    assert stat is not None
    assert ProcessWatch(os.getpid(), stat.start_ticks).look() == Sighting(state="running")


@pytest.mark.parametrize(
    ("how", "seen"),
    [
        (lambda: os._exit(7), Sighting(state="exited", exit_code=7)),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), Sighting(state="exited", signal=9)),
    ],
)
def test_the_status_of_a_real_process_is_learnt_before_and_where_the_kernel_tells_after_it_was_reaped(
    how: object, seen: Sighting
) -> None:
    go, wait = os.pipe()[::-1]
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(wait, 1)
        how()  # type: ignore[operator]
    stat = read_stat(pid)
    assert stat is not None
    watch = ProcessWatch(pid, stat.start_ticks)
    assert watch.look() == Sighting(state="running")
    os.write(go, b"x")
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert watch.look() == seen
    os.waitpid(pid, 0)
    assert watch.look() in (seen, Sighting(state="exited"))
    if tuple(int(n) for n in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 15):
        assert watch.look() == seen
    watch.close()
    os.close(go)
    os.close(wait)


def test_a_process_that_has_ended_is_gone_also_where_proc_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    stat = read_stat(pid)
    assert stat is not None
    watch = ProcessWatch(pid, stat.start_ticks)

    def hidden(*_: object) -> None:
        raise PermissionError(13, "hidepid")

    monkeypatch.setattr("collector.host.processes.read_stat", hidden)
    assert (watch.look(), watch.has_ended()) == (Sighting(state="unknown"), False)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert (watch.look().state, watch.has_ended()) == ("exited", True)
    watch.close()
    assert (watch.descriptor, watch.has_ended()) == (-1, False)
