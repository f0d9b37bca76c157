"""Who waits in `init_process_group` for long, as its process writes it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector.calls.rings import COMPLETE, DESTROY, GROUP, LAUNCH, MEMBERS
from pacehound.instrument import joining, layout
from pacehound.instrument.joining import Joining
from pacehound.instrument.recorder import Recorder
from pacehound.model.codes import JOINING, OPS

RANK_2_OF_4 = {"RANK": "2", "WORLD_SIZE": "4", "PACEHOUND_JOB": "j"}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait is long as soon as it has begun."""
    monkeypatch.setattr(joining, "LONG_S", 0.0)
    monkeypatch.setattr(joining, "LEAST_S", 0.0)


def until_told() -> None:
    """What a rank does that waits: its timer has run."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(10)


def joined(folder: Path, waits: Callable[[], None], environ: dict[str, str] = RANK_2_OF_4, **given: Any) -> Recorder:
    recorder = Recorder(str(folder), environ)

    def init_process_group(
        backend: str = "", rank: int = -1, world_size: int = -1, _ranks: list[int] | None = None
    ) -> str:
        waits()
        return f"{backend} joined"

    function = Joining(recorder, lambda: None, lambda: 0).around(init_process_group, environ)
    assert function("gloo", **given) == "gloo joined"
    return recorder


def written(folder: Path) -> list[tuple[int, bytes]]:
    """Kind and body of each record in all rings, by kind: the timer's thread has a ring of its own."""
    records = []
    for path in sorted((folder / "rings").glob("*.ring")):
        data = path.read_bytes()
        n = int.from_bytes(data[layout.WRITTEN_OFFSET : layout.WRITTEN_OFFSET + 8], "little")
        records += [data[4096 + 128 * slot + 8 : 4096 + 128 * (slot + 1)] for slot in range(n)]
    return sorted((record[0], record) for record in records)


def test_a_wait_that_is_short_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "LONG_S", 60.0)
    joined(tmp_path, lambda: None)
    assert not (tmp_path / "rings").exists()
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def test_a_long_wait_is_a_call_of_its_own_on_a_communicator_of_all_ranks(tmp_path: Path) -> None:
    recorder = joined(tmp_path, until_told)
    records = written(tmp_path)
    assert [kind for kind, _ in records] == [GROUP, MEMBERS, LAUNCH, COMPLETE, DESTROY]
    _, rank, handle, _, generation, world_size, n_members, is_world, _, _, _, name = layout.GROUP_RECORD.unpack_from(
        records[0][1]
    )
    assert (rank, generation, world_size, n_members, is_world) == (2, -1, 4, 4, 1)
    assert name.rstrip(bytes(1)).decode() == JOINING
    assert layout.MEMBERS_RECORD.unpack_from(records[1][1])[4:8] == (0, 1, 2, 3)
    launched, ended = (layout.CALL_RECORD.unpack_from(record) for _, record in records[2:4])
    assert (launched[2], launched[3]) == (handle, OPS.index("barrier"))
    since_ns, until_ns = launched[14], ended[16]
    assert ended[14] == since_ns <= until_ns
    assert recorder.is_on


def test_who_fails_to_join_has_not_joined(tmp_path: Path) -> None:
    """The call has failed, and stays open until its rank leaves: nothing says that the others have come."""

    def fails() -> None:
        until_told()
        raise TimeoutError("nobody came")

    with pytest.raises(TimeoutError, match="nobody came"):
        joined(tmp_path, fails)
    records = written(tmp_path)
    assert [kind for kind, _ in records] == [GROUP, MEMBERS, LAUNCH, COMPLETE]
    assert layout.CALL_RECORD.unpack_from(records[3][1])[7] & layout.FAILED


@pytest.mark.parametrize(
    ("environ", "given"),
    [
        ({}, {}),
        ({}, {"rank": 0}),
        ({"RANK": "0", "WORLD_SIZE": "1"}, {}),
        ({"RANK": "4", "WORLD_SIZE": "4"}, {}),
        ({"RANK": "x", "WORLD_SIZE": "4"}, {}),
        (RANK_2_OF_4, {"_ranks": [0, 2]}),
    ],
)
def test_where_nobody_can_be_missing_or_it_is_not_known_who_waits_nothing_is_written(
    tmp_path: Path, environ: dict[str, str], given: dict[str, Any]
) -> None:
    joined(tmp_path, until_told, environ, **given)
    assert not (tmp_path / "rings").exists()


def test_what_the_script_gives_counts_before_its_environment(tmp_path: Path) -> None:
    recorder = joined(tmp_path, until_told, RANK_2_OF_4, rank=1, world_size=2)
    assert (recorder.rank, recorder.world_size) == (1, 2)


def test_an_error_of_ours_is_noted_and_nothing_more(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), RANK_2_OF_4)

    def prepare() -> None:
        raise OSError("no room")

    def init_process_group() -> int:
        until_told()
        return 7

    assert Joining(recorder, prepare, lambda: 0).around(init_process_group, RANK_2_OF_4)() == 7
    assert recorder.is_broken
    (note,) = (tmp_path / "notes").iterdir()
    assert "a long init_process_group: OSError: no room" in note.read_text()
