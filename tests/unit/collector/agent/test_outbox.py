"""The outbox: what is saved comes back byte for byte, what does not fit is dropped in order and counted."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.agent.outbox import RETRY_FILE_NS, Kind, Lost, Outbox, Outgoing
from tests.fakes.examples import examples


def message(kind: Kind, name: str, *, stream: str = "c", calls: int = 0, size: int = 10) -> Outgoing:
    return Outgoing(kind=kind, stream=stream, calls=calls, payload=name.encode().ljust(size, b"."))


def names(outbox: Outbox) -> list[str]:
    return [payload.decode().rstrip(".") for payload in outbox.take(1 << 30)[1]]


def test_messages_and_state_come_back_in_order_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "o.sqlite"
    outbox = Outbox(path, 1000)
    outbox.save([message("calls", "a"), message("progress", "b")], b"one", 0)
    outbox.save([message("calls", "c")], b"two", 0)
    last, taken = outbox.take(10)
    assert taken == [b"a........."]
    outbox.acknowledge(last)
    outbox.close()
    again = Outbox(path, 1000)
    assert (names(again), again.state, again.held_bytes) == (["b", "c"], b"two", 20)
    last, _ = again.take(1000)
    again.acknowledge(last)
    again.save([message("calls", "d")], b"three", 0)
    again.close()
    assert names(Outbox(path, 1000)) == ["d"]


def test_a_number_is_never_used_twice(tmp_path: Path) -> None:
    """An answer to an old request must not acknowledge a new message."""
    path = tmp_path / "o.sqlite"
    outbox = Outbox(path, 1000)
    outbox.save([message("calls", "a")], b"", 0)
    first, _ = outbox.take(100)
    outbox.acknowledge(first)
    outbox.close()
    outbox = Outbox(path, 1000)
    outbox.save([message("calls", "b")], b"", 0)
    assert outbox.take(100)[0] > first


def test_room_is_made_of_stale_progress_then_of_the_oldest_calls(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "o.sqlite", 100)
    outbox.save(
        [
            message("keep", "topology"), message("calls", "calls-0", calls=5, stream="x"),
            message("progress", "p0", stream="x"), message("host", "host"),
            message("calls", "calls-1", calls=7, stream="y"), message("progress", "p1", stream="x"),
            message("calls", "calls-2", calls=9, stream="x"), message("markers", "markers"),
            message("keep", "closing", stream="x"),
        ],
        b"",
        0,
    )  # fmt: skip
    assert outbox.make_room(10) == {}
    assert outbox.make_room(20) == {}
    assert "p0" not in names(outbox)
    outbox.release()
    assert outbox.make_room(30) == {"x": Lost(5)}
    # The promise of x that stood behind the dropped calls went too; the next one tells the truth.
    assert names(outbox) == ["topology", "host", "calls-1", "calls-2", "markers", "closing"]
    outbox.release()
    assert outbox.make_room(80) == {"y": Lost(7), "x": Lost(9)}
    assert names(outbox) == ["topology", "closing"]
    outbox.release()
    outbox.make_room(1000)
    assert names(outbox) == ["topology", "closing"]


def test_what_is_on_its_way_is_not_dropped(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "o.sqlite", 30)
    outbox.save([message("calls", f"calls-{i}", calls=1) for i in range(3)], b"", 0)
    last, _ = outbox.take(10)
    assert outbox.make_room(20) == {"c": Lost(2)}
    outbox.acknowledge(last)
    assert len(outbox) == 0


def test_a_drop_reaches_the_file_only_with_the_state_that_counts_it(tmp_path: Path) -> None:
    path = tmp_path / "o.sqlite"
    outbox = Outbox(path, 10)
    outbox.save([message("calls", "a", calls=3)], b"before", 0)
    assert outbox.make_room(10) == {"c": Lost(3)}
    outbox.close()  # killed here
    again = Outbox(path, 10)
    assert (names(again), again.state) == (["a"], b"before")
    again.release()
    again.make_room(10)
    again.save([message("calls", "b")], b"after", 0)
    again.close()
    last_one = Outbox(path, 10)
    assert (names(last_one), last_one.state) == (["b"], b"after")


def test_a_full_disk_means_memory_and_a_new_file_once_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "o.sqlite"
    outbox = Outbox(path, 1 << 20)
    outbox.save([message("calls", "a")], b"one", 0)
    assert outbox._file is not None
    outbox._file.execute("PRAGMA max_page_count=10")  # SQLite's own "disk full"
    outbox.save([message("calls", "b", size=200_000)], b"two", 5)
    assert not outbox.is_saved
    assert "full" in outbox.counts.last_file_error
    assert names(outbox) == ["a", "b"]
    outbox.save([message("calls", "c")], b"three", 6)
    # An agent that started now must not go on from the state that was saved last: more has been sent since.
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(path.read_bytes())
    assert Outbox(copy, 1 << 20).was_damaged
    assert not outbox.is_saved
    outbox.save([message("calls", "d")], b"four", 5 + RETRY_FILE_NS)
    assert outbox.is_saved
    outbox.close()
    again = Outbox(path, 1 << 20)
    assert (names(again), again.state) == (["a", "b", "c", "d"], b"four")


def free(monkeypatch: pytest.MonkeyPatch, free_bytes: int) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=free_bytes // 4096, f_frsize=4096))


def test_a_disk_that_fills_up_gets_back_what_the_file_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of what is free, the file counted in; beyond it the outbox is in memory and next to nothing on disk."""
    path = tmp_path / "o.sqlite"
    outbox = Outbox(path, 1 << 26)
    free(monkeypatch, 100 << 20)
    outbox.save([message("calls", "a", size=1 << 20)], b"one", 0)
    assert outbox.is_saved
    free(monkeypatch, 5 << 20)  # the job has taken the rest
    outbox.save([message("calls", "b")], b"two", 5)
    assert not outbox.is_saved
    assert "a tenth" in outbox.counts.last_file_error
    assert sum(one.stat().st_size for one in tmp_path.iterdir()) < 100
    assert names(outbox) == ["a", "b"]
    outbox.release()
    free(monkeypatch, 100 << 20)
    outbox.save([message("calls", "c")], b"three", 5 + RETRY_FILE_NS)
    assert outbox.is_saved
    outbox.close()
    assert names(Outbox(path, 1 << 26)) == ["a", "b", "c"]


def test_a_write_that_fails_half_way_leaves_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "o.sqlite"
    outbox = Outbox(path, 1 << 26)
    outbox.save([message("calls", "a", size=1 << 20)], b"one", 0)
    assert outbox._file is not None
    outbox._file.execute("PRAGMA max_page_count=10")
    outbox.save([message("calls", "b", size=1 << 20)], b"two", 5)
    real_write = Outbox._write

    def fails_at_its_end(self: Outbox, file: sqlite3.Connection, numbers: list[int]) -> None:
        real_write(self, file, numbers)
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Outbox, "_write", fails_at_its_end)
    outbox.save([message("calls", "c")], b"three", 5 + RETRY_FILE_NS)
    assert not outbox.is_saved
    assert sum(one.stat().st_size for one in tmp_path.iterdir()) < 100
    monkeypatch.undo()
    assert Outbox(path, 1 << 26).was_damaged, "nobody goes on from what is older than what was sent"


def test_a_file_of_an_earlier_agent_is_read_however_full_the_disk_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Outbox(tmp_path / "o.sqlite", 1000)
    outbox.save([message("calls", "a")], b"one", 0)
    outbox.close()
    free(monkeypatch, 0)
    assert names(Outbox(tmp_path / "o.sqlite", 1000)) == ["a"]


def test_without_a_place_on_disk_it_lives_in_memory(tmp_path: Path) -> None:
    outbox = Outbox(None, 1000)
    outbox.save([message("calls", "a")], b"one", RETRY_FILE_NS)
    assert (names(outbox), outbox.is_saved) == (["a"], False)
    outbox.close()


def test_only_its_user_can_read_it(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "o.sqlite", 1000)
    outbox.save([message("calls", "a")], b"one", 0)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_set_aside_and_a_new_one_begun(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "o.sqlite"
    path.write_bytes(content)
    outbox = Outbox(path, 1000)
    assert outbox.was_damaged
    assert outbox.state is None
    outbox.save([message("calls", "a")], b"one", 0)
    assert outbox.is_saved
    outbox.close()
    assert names(Outbox(path, 1000)) == ["a"]
    assert (tmp_path / "o.sqlite.damaged").read_bytes() == content


def test_a_file_of_another_version_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "o.sqlite"
    file = sqlite3.connect(path)
    file.execute("PRAGMA user_version=9")
    file.close()
    assert Outbox(path, 1000).was_damaged


@examples(16)
@given(content=st.binary(min_size=1, max_size=400), offset=st.integers(0, 12_000))
def test_any_damage_is_read_or_set_aside(tmp_path_factory: pytest.TempPathFactory, content: bytes, offset: int) -> None:
    path = tmp_path_factory.mktemp("outbox") / "o.sqlite"
    outbox = Outbox(path, 1000)
    outbox.save([message("calls", "a")], b"one", 0)
    outbox.close()
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)
    again = Outbox(path, 1000)
    again.save([message("calls", "b")], b"two", 1 << 40)
    assert names(again)[-1] == "b"
    again.close()


@pytest.mark.parametrize(
    "damage", ["UPDATE state SET value = x'00' WHERE name = 'agent'", "UPDATE messages SET payload = 'text'"]
)
def test_what_is_not_as_it_was_saved_is_set_aside_and_not_gone_on_from(tmp_path: Path, damage: str) -> None:
    """A state that contradicts itself failed at each step of the agent; a payload that is no bytes at each request."""
    path = tmp_path / "o.sqlite"
    outbox = Outbox(path, 1000)
    outbox.save([message("calls", "a")], b"one", 0)
    outbox.close()
    with sqlite3.connect(path) as file:
        file.execute(damage)
    file.close()
    assert Outbox(path, 1000).was_damaged
