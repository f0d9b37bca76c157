"""Processes beside ranks, or on idle hosts: who measures in which place, and nobody does for one who has gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from collector.agent import measuring as module
from collector.agent.measuring import LEASE_NS, Measuring
from collector.host.rank_process import RankProcess
from pacehound.model.orders import Prepare


class Started:
    """Stands in for `subprocess.Popen`."""

    all: ClassVar[list[Started]] = []

    def __init__(self, command: list[str], *, env: dict[str, str], **_: Any) -> None:
        self.environ, self.pid, self.is_killed = env, 1, False
        Started.all.append(self)

    def poll(self) -> int | None:
        return -9 if self.is_killed else None

    def kill(self) -> None:
        self.is_killed = True

    def wait(self) -> None:
        return


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    Started.all = []
    monkeypatch.setattr(module.subprocess, "Popen", Started)
    monkeypatch.setattr(module.os, "sched_setaffinity", lambda *_: None)
    return Started.all


def places(started: list[Started]) -> list[tuple[str, str, str]]:
    return [(one.environ["PACEHOUND_RANK"], one.environ["RANK"], one.environ["LOCAL_RANK"]) for one in started]


def ranks(*numbers: int) -> list[RankProcess]:
    return [RankProcess(attempt=0, rank=rank, pid=1 << 30, start_ticks=1) for rank in numbers]


def prepare(trap: int = 7, **how: Any) -> Prepare:
    return Prepare(**{"trap": trap, "rendezvous": "10.0.0.1:29400", "world_size": 4, **how})


def test_beside_all_ranks_each_measures_in_its_own_place(tmp_path: Path) -> None:
    measuring = Measuring(tmp_path / "m", "h1")
    assert measuring.prepare(prepare(), ranks(3, 2), 0) == ""
    assert places(Started.all) == [("2", "2", "0"), ("3", "3", "1")]


def test_beside_some_ranks_the_others_are_left_alone(tmp_path: Path) -> None:
    measuring = Measuring(tmp_path / "m", "h1")
    assert measuring.prepare(prepare(ranks=(5, 6, 9, 12)), ranks(8, 9, 10, 12), 0) == ""
    assert places(Started.all) == [("9", "2", "0"), ("12", "3", "1")]


@pytest.mark.parametrize(("host", "expected"), [("h0", ["0", "1"]), ("h1", ["2", "3"]), ("h9", [])])
def test_on_an_idle_host_so_many_are_started_as_it_has_seats(tmp_path: Path, host: str, expected: list[str]) -> None:
    measuring = Measuring(tmp_path / "m", host)
    assert measuring.prepare(prepare(hosts=("h0", "h1"), per_host=2), [], 0) == ""
    assert [rank for rank, place, _ in places(Started.all) if rank == place] == expected


def test_nobody_is_measured_for_a_controller_that_has_gone(tmp_path: Path) -> None:
    measuring = Measuring(tmp_path / "m", "h1")
    measuring.prepare(prepare(), ranks(2, 3), 0)
    assert measuring.prepare(prepare(), ranks(2, 3), LEASE_NS) == "", "said again it is a word that it lives"
    assert len(Started.all) == 2
    assert measuring.prepare(prepare(8), ranks(2, 3), LEASE_NS) == "another validation is under way here"
    assert measuring.look(2 * LEASE_NS) is None
    news = measuring.look(2 * LEASE_NS + 1)
    assert news is not None
    assert (news.trap, news.failed) == (7, "the controller says nothing more")
    assert all(one.is_killed for one in Started.all)
    assert measuring.prepare(prepare(8), ranks(2, 3), 2 * LEASE_NS + 1) == "", "there is room for another one"
