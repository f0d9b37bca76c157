"""The folder of a run: nobody else's, held while it is needed, and gone afterwards."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from pacehound.launcher.run_dir import RunDir, read_notes
from pacehound.runtime.locked_folder import LockedFolder, abandoned, private_folder
from pacehound.runtime.watched import Watched, write_watched

HOME = f"pacehound-{os.getuid()}"


def killed(run_dir: RunDir) -> None:
    """As the kernel does when the last holder is gone."""
    os.close(run_dir.lock)


def test_it_is_private_and_says_what_the_job_is(tmp_path: Path) -> None:
    run_dir = RunDir("j", "h", (tmp_path,))
    assert run_dir.path.parent == tmp_path / HOME
    for folder in (run_dir.path, run_dir.path.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    content = json.loads((run_dir.path / "job.json").read_text())
    assert (content["job"], content["host"]) == ("j", "h")
    assert set(content["clock"]) == {"monotonic_ns", "unix_ns"}
    run_dir.remove()
    assert not run_dir.path.exists()
    assert run_dir.remarks == []


def test_one_whose_holders_are_gone_is_swept_with_a_word_and_one_in_use_is_not(tmp_path: Path) -> None:
    """Whoever killed `pacehound run` has heard nothing of it; the next run says what became of the watch."""
    living, dead, watched_on = (RunDir(job, "h", (tmp_path,)) for job in ("living", "dead", "watched-on"))
    write_watched(watched_on.path, Watched(calls=1200, ranks=4))
    killed(dead)
    killed(watched_on)
    last = RunDir("last", "h", (tmp_path,))
    assert living.path.exists()
    assert not dead.path.exists()
    assert sorted(last.remarks) == [
        "job dead: its `pacehound run` was killed, and its agent with it: from then on it was not watched",
        "job watched-on: its `pacehound run` was killed; its agent watched it to its end: 1,200 calls of 4 ranks",
    ]
    living.remove()
    last.remove()


def test_of_runs_of_one_job_that_are_live_on_one_host_each_gets_an_attempt_of_its_own(tmp_path: Path) -> None:
    def begun(job: str = "j", host: str = "h") -> RunDir:
        return RunDir(job, host, (tmp_path,))

    first, second, third = begun(), begun(), begun()
    assert first.claim(0, "") == (0, [])
    assert second.claim(0, "") == (1000, [0])
    assert third.claim(1000, "") == (2000, [0, 1000])  # what a head says who has heard of the second
    assert begun("other").claim(0, "") == begun(host="elsewhere").claim(0, "") == (0, [])
    assert begun().claim(0, "1") == begun().claim(0, "2") == (0, []), "parts of one run"
    first.remove()
    killed(second)
    assert begun().claim(1001, "") == (3000, [2000])
    third.remove()
    assert begun().claim(1, "3") == (1, [])


def test_it_has_its_name_only_once_it_is_locked(tmp_path: Path) -> None:
    """Many at once, each of which sweeps: none takes another's for one that nobody holds."""
    made: list[RunDir] = []
    start = threading.Barrier(8)

    def begin() -> None:
        start.wait()
        made.extend(RunDir("j", "h", (tmp_path,)) for _ in range(8))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 64
    assert all((run_dir.path / "job.json").exists() for run_dir in made)
    assert all(run_dir.remarks == [] for run_dir in made)
    for run_dir in made:
        run_dir.remove()


def test_a_sweep_between_the_making_and_the_locking_takes_nothing(tmp_path: Path) -> None:
    """What lies between two steps of the maker: a lock file that nobody holds yet."""
    seen = []

    def fill(folder: Path) -> None:
        seen.extend(found.path for found in abandoned(tmp_path, "run-"))
        assert folder.exists()

    folder = LockedFolder.make(tmp_path, "run-", fill)
    assert (seen, list(abandoned(tmp_path, "run-"))) == ([], [])
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_one_that_was_never_finished_is_removed_when_it_is_old(tmp_path: Path) -> None:
    forgotten = tmp_path / "making-x"
    forgotten.mkdir()
    assert list(abandoned(tmp_path, "run-")) == []
    assert forgotten.exists()
    os.utime(forgotten, (0, 0))
    assert list(abandoned(tmp_path, "run-")) == []
    assert not forgotten.exists()


def test_what_could_not_be_written_is_not_left_behind(tmp_path: Path) -> None:
    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        LockedFolder.make(tmp_path, "run-", full)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("foreign", ["owner", "link", "file"])
def test_a_home_that_somebody_else_made_first_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, foreign: str
) -> None:
    """Everybody can write to /dev/shm: another user's folder, a link of theirs, or a file of that name."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    home = tmp_path / HOME
    if foreign == "link":
        home.symlink_to(theirs)
    elif foreign == "file":
        home.write_text("")
    else:
        home.mkdir()
        real = Path.lstat
        other = os.stat_result((stat.S_IFDIR | 0o777, 1, 1, 2, os.getuid() + 1, 0, 0, 0, 0, 0))
        monkeypatch.setattr(Path, "lstat", lambda path: other if path == home else real(path))
    run_dir = RunDir("j", "h", (tmp_path,))
    assert run_dir.path.parent.name.startswith(f"{HOME}-")
    assert stat.S_IMODE(run_dir.path.parent.stat().st_mode) == 0o700
    (remark,) = run_dir.remarks
    assert str(home) in remark
    assert "it is not used" in remark
    assert list(theirs.iterdir()) == []
    run_dir.remove()
    assert not run_dir.path.parent.exists()


def test_a_home_of_ours_that_others_could_open_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o777)
    assert stat.S_IMODE(private_folder(tmp_path / "home").stat().st_mode) == 0o700


def test_the_second_choice_is_taken_where_the_first_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "second").mkdir()
    run_dir = RunDir("j", "h", (tmp_path / "file", tmp_path / "second"))
    assert run_dir.path.parent.parent == tmp_path / "second"
    run_dir.remove()
    with pytest.raises(OSError, match="no folder for the rings"):
        RunDir("j", "h", (tmp_path / "file",))


def test_notes_of_the_ranks_are_read_once_each(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for pid, notes in ((1, ["off: no room"]), (2, ["off: no room", "other"])):
        (tmp_path / "notes" / f"{pid}.json").write_text(json.dumps({"pid": pid, "rank": 0, "notes": notes}))
    (tmp_path / "notes" / "3.json").write_text("{")
    assert read_notes(tmp_path) == ["off: no room", "other"]
