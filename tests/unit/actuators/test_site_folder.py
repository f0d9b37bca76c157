"""A command of the site is run once, outlives whoever has asked for it, and is seen by whoever comes after."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from actuators import run_once
from actuators.acting.site import Ran, Seen
from actuators.run_once import BEGUN, COMMAND, ENDED
from actuators.site_folder import SiteFolder
from pacehound.model.events import Decision, SiteStep

RUN = "a" * 32


def when(done: Callable[[], bool]) -> None:
    for _ in range(10_000_000):
        if done():
            return
    raise AssertionError


def ended(folder: SiteFolder) -> Seen:
    when(lambda: isinstance(folder.seen(RUN), Ran))
    return folder.seen(RUN)


def counting(path: Path) -> list[str]:
    """A command that says in a file that it was run, and waits for a pipe that nobody writes to."""
    return ["sh", "-c", f"echo once >> {path}/count; read _ < {path}/gate"]


def opened(path: Path) -> None:
    (path / "gate").write_text("go\n")


@pytest.fixture(name="gate")
def _gate(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "gate")
    return tmp_path


def test_asked_for_by_several_it_is_run_once(gate: Path) -> None:
    folders = [SiteFolder(gate / "site") for _ in range(4)]
    assert folders[0].seen(RUN) == "never begun"
    for folder in folders:
        folder.begin(RUN, counting(gate))
    when(lambda: (gate / "count").exists())
    assert folders[1].seen(RUN) == "running"
    opened(gate)
    assert ended(folders[2]) == Ran(status=0)
    folders[3].begin(RUN, counting(gate))
    for runner in folders[3]._runners:
        runner.wait(60)
    assert (gate / "count").read_text() == "once\n"


def test_it_outlives_whoever_has_asked_and_has_its_own_session(gate: Path) -> None:
    words = repr(counting(gate))
    code = (
        f"import os, sys; sys.path.insert(0, {os.getcwd()!r})\n"
        "from pathlib import Path\nfrom actuators.site_folder import SiteFolder\n"
        f"SiteFolder(Path({str(gate / 'site')!r})).begin({RUN!r}, {words})\nos.kill(os.getpid(), 9)\n"
    )
    asked = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert asked.returncode == -signal.SIGKILL
    folder = SiteFolder(gate / "site")
    when(lambda: (gate / "count").exists())
    assert folder.seen(RUN) == "running"
    opened(gate)
    assert ended(folder) == Ran(status=0)


def test_one_whose_runner_was_killed_is_lost_and_is_not_run_again(gate: Path) -> None:
    folder = SiteFolder(gate / "site")
    folder.begin(RUN, counting(gate))
    when(lambda: (gate / "count").exists())
    (runner,) = folder._runners
    runner.kill()
    runner.wait(60)
    assert folder.seen(RUN) == "lost"
    run_once.run_once(gate / "site" / "runs" / RUN)
    opened(gate)
    assert folder.seen(RUN) == "lost"
    assert (gate / "count").read_text() == "once\n"


def test_one_that_takes_too_long_is_ended_with_all_that_it_has_started(
    gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actuators.site_folder.COMMAND_WITHIN_S", 0.2)
    folder = SiteFolder(gate / "site")
    folder.begin(RUN, counting(gate))
    assert ended(folder) == Ran(status=124)


def test_a_command_is_what_it_was_when_it_was_asked_for_first(tmp_path: Path) -> None:
    folder = tmp_path / "site" / "runs" / RUN
    one = SiteFolder(tmp_path / "site")
    one.begin(RUN, ["echo", "a"])
    assert ended(one) == Ran(status=0, said="a")
    for name in (BEGUN, ENDED):
        (folder / name).unlink()
    one.begin(RUN, ["echo", "b"])
    assert ended(one) == Ran(status=0, said="a")
    assert (folder / COMMAND).exists()


def test_two_who_ask_at_the_same_time_agree_on_the_folders_name(tmp_path: Path) -> None:
    names: list[str] = []
    threads = [threading.Thread(target=lambda: names.append(SiteFolder(tmp_path / "site").name)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(names), len(set(names))) == (8, 1)
    assert len(names[0]) == 16


def noted(number: int, time_ns: int, **site: object) -> Decision:
    return Decision(
        job="j", attempt=0, time_ns=time_ns, incident="i", incident_version=0, mode="auto", action="x", reason="",
        price_s=1.0, loss_s=2.0, number=number, taken=True, site=SiteStep(**site),  # type: ignore[arg-type]
    )  # fmt: skip


def test_what_was_written_down_is_found_in_order_and_damage_is_passed_over(tmp_path: Path) -> None:
    folder = SiteFolder(tmp_path / "site")
    assert folder.noted() == []
    one = noted(1, 2**62, step="decided")
    two = noted(2, 2**62 + 1, step="stop", restart=one.identity(), by="b")
    folder.note(two)
    folder.note(one)
    (tmp_path / "site" / "records" / "0bad").write_text("{")
    assert SiteFolder(tmp_path / "site").noted() == [one, two]
    folder.note(two)
    assert folder.noted() == [one, two]


def test_what_has_long_been_over_is_removed(tmp_path: Path) -> None:
    folder = SiteFolder(tmp_path / "site")
    old = noted(1, 1, step="decided")
    new = noted(1, 2**62, step="decided")
    left = noted(3, 3, step="decided")
    for one in (old, new, left):
        folder.note(one)
    folder.note(noted(2, 2, step="over", restart=old.identity(), state="ended", status=0))
    over = replace(noted(2, 2**62, step="over", restart=new.identity(), state="ended", status=0), number=4)
    folder.note(over)
    assert folder.noted() == [left, new, over]
