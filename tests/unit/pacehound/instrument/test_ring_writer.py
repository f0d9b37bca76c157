"""The ring writer and the recorder, without torch."""

from __future__ import annotations

import os
import re
import struct
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import pacehound.instrument
from collector.calls.rings import RingReader
from pacehound.instrument import layout
from pacehound.instrument.recorder import Recorder
from pacehound.instrument.ring import Ring, process_start_ticks
from pacehound.trainer.line import note_failure


def ring(folder: Path, capacity: int = 4) -> Ring:
    return Ring(str(folder / "1-1-0.ring"), capacity, rank=3, local_rank=1, world_size=8, attempt=2)


def marker(value: int) -> tuple[int, int, bytes, int, int, int, int]:
    return layout.MARKER, 3, bytes(16), value, value, 0, 0


def test_a_full_ring_overwrites_its_oldest_records_and_the_stamps_tell(tmp_path: Path) -> None:
    written = ring(tmp_path)
    for value in range(6):
        written.write(layout.MARKER_RECORD, *marker(value))
    data = (tmp_path / "1-1-0.ring").read_bytes()
    assert struct.unpack_from("<Q", data, layout.WRITTEN_OFFSET) == (6,)
    stamps = [struct.unpack_from("<Q", data, 4096 + 128 * slot)[0] for slot in range(4)]
    assert stamps == [2 * 4 + 2, 2 * 5 + 2, 2 * 2 + 2, 2 * 3 + 2]
    assert [struct.unpack_from("<Q", data, 4096 + 128 * slot + 32)[0] for slot in range(4)] == [4, 5, 2, 3]


def test_the_header_names_the_process(tmp_path: Path) -> None:
    ring(tmp_path)
    fields = layout.HEADER.unpack_from((tmp_path / "1-1-0.ring").read_bytes())
    assert fields[:6] == (layout.MAGIC, 2, 4096, 128, 4, os.getpid())
    assert fields[7] == process_start_ticks() > 0
    assert fields[8:12] == (3, 1, 8, 2)


def test_a_ring_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "1-1-0.ring").mkdir()  # the final name is taken by something a file cannot replace
    with pytest.raises(OSError, match=r"1-1-0\.ring"):
        ring(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["1-1-0.ring"]


def test_capacity_is_a_power_of_two(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="power of two of records, not 5"):
        ring(tmp_path, capacity=5)


def test_a_recorder_writes_nothing_before_it_starts_and_one_ring_per_thread_after(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), {"RANK": "2", "PACEHOUND_JOB": "j", "TORCHELASTIC_RESTART_COUNT": "1"})
    assert (recorder.rank, recorder.attempt, recorder.job, recorder.is_on) == (2, 1, "j", False)
    recorder.start()
    for _ in range(2):
        recorder.write(layout.EMPTY_RECORD, layout.DESTROY, bytes(16))
    assert len(list((tmp_path / "rings").iterdir())) == 1


def test_torch_s_restarts_are_counted_on_top_of_the_launcher_s_attempt() -> None:
    environ = {"PACEHOUND_ATTEMPT": "4", "TORCHELASTIC_RESTART_COUNT": "1"}
    assert Recorder("unused", environ).attempt == 5
    assert Recorder("unused", {"PACEHOUND_ATTEMPT": "4"}).attempt == 4
    assert Recorder("unused", {"PACEHOUND_ATTEMPT": "", "TORCHELASTIC_RESTART_COUNT": "x"}).attempt == 0


def test_after_an_error_of_ours_it_stays_off_and_the_note_says_why(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), {})
    recorder.start()
    recorder.fail("a test", ValueError("bad"))
    recorder.start()
    assert not recorder.is_on
    (note,) = (tmp_path / "notes").iterdir()
    assert "instrument switched off in a test: ValueError: bad" in note.read_text()


def test_after_an_error_of_ours_its_rings_say_that_nothing_more_is_seen(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), {})
    recorder.start()
    recorder.write(layout.MARKER_RECORD, layout.MARKER, bytes(16), 1, 1, 0, 0)
    (path,) = (tmp_path / "rings").iterdir()
    reader = RingReader(path)
    assert (len(reader.read().records), reader.is_off, reader.is_finished) == (1, False, False)
    recorder.fail("a test", ValueError("bad"))
    recorder.close()
    reader.read()
    assert (reader.is_off, reader.is_finished) == (True, False)


def test_a_run_folder_that_is_not_there_is_not_made_by_a_note(tmp_path: Path) -> None:
    """Its run is over, or a container has files of its own: nobody would remove it."""
    recorder = Recorder(str(tmp_path / "gone"), {})
    recorder.note("nobody reads this")
    with pytest.raises(OSError, match="gone"):
        note_failure(str(tmp_path / "gone"), 0, ValueError("nobody reads this"))
    assert list(tmp_path.iterdir()) == []


def test_notes_in_a_missing_folder_that_cannot_be_made_are_dropped_quietly(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    Recorder(str(tmp_path / "file"), {}).note("nobody reads this")
    assert (tmp_path / "file").read_text() == ""


def test_short_threads_one_after_another_share_a_ring(tmp_path: Path) -> None:
    """Sixty of them, and the main thread, which has its own: no file, no memory and no record more or less."""
    recorder = Recorder(str(tmp_path), {})
    recorder.start()
    for _ in range(60):
        thread = threading.Thread(target=recorder.write, args=(layout.EMPTY_RECORD, layout.DESTROY, bytes(16)))
        thread.start()
        thread.join()
        while Path(f"/proc/self/task/{thread.native_id}").exists():
            os.sched_yield()  # Python has joined it, the kernel is not done with it yet
    recorder.write(layout.EMPTY_RECORD, layout.DESTROY, bytes(16))
    written = {
        path.name.split("-")[1]: struct.unpack_from("<Q", path.read_bytes(), layout.WRITTEN_OFFSET)[0]
        for path in (tmp_path / "rings").iterdir()
    }
    assert sorted(written.values()) == [1, 60]
    assert written[str(os.getpid())] == 1
    assert Path("/proc/self/maps").read_text().count(f"{tmp_path}/rings") == 2


def test_a_thread_that_lives_keeps_its_ring_when_others_come(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), {})
    recorder.start()
    go_on, wrote = threading.Event(), threading.Event()

    def lives() -> None:
        recorder.write(layout.EMPTY_RECORD, layout.DESTROY, bytes(16))
        wrote.set()
        go_on.wait()
        recorder.write(layout.EMPTY_RECORD, layout.DESTROY, bytes(16))

    living = threading.Thread(target=lives)
    living.start()
    wrote.wait()
    recorder.write(layout.EMPTY_RECORD, layout.DESTROY, bytes(16))
    go_on.set()
    living.join()
    (ring,) = (tmp_path / "rings").glob(f"*-{living.native_id}-*.ring")
    assert struct.unpack_from("<Q", ring.read_bytes(), layout.WRITTEN_OFFSET) == (2,)
    assert len(list((tmp_path / "rings").iterdir())) == 2


def test_where_the_shared_memory_has_no_room_the_recorder_stays_without_a_ring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_blocks=16_384, f_bavail=200, f_frsize=4096))
    recorder = Recorder(str(tmp_path), {})
    recorder.start()
    with pytest.raises(OSError, match="have their share"):
        recorder.write(layout.EMPTY_RECORD, layout.DESTROY, bytes(16))
    assert list((tmp_path / "rings").iterdir()) == []


def test_the_shim_is_told_of_the_hooks_by_a_file_and_not_by_the_environment(tmp_path: Path) -> None:
    """`setenv` moves what a `getenv` on another thread reads."""
    before = dict(os.environ)
    recorder = Recorder(str(tmp_path), {})
    for _ in range(2):
        recorder.say_that_hooks_write()
    assert [path.name for path in (tmp_path / "hooks").iterdir()] == [f"{os.getpid()}-{process_start_ticks()}"]
    assert dict(os.environ) == before


def test_inside_a_training_process_nobody_changes_the_environment() -> None:
    """The loader of `sitecustomize.py` apart, which runs before there is a second thread."""
    sets_a_variable = re.compile(r"os\.environ\[.*\] *=|putenv|setenv")
    files = Path(pacehound.instrument.__file__).parent.glob("*.py")
    assert [path.name for path in files if sets_a_variable.search(path.read_text())] == []
