"""What a run could not send is sent by whoever comes next, once, and not kept for ever."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import msgspec
import pytest

from collector.agent.outbox import Outbox, Outgoing
from collector.agent.successor import Successor, flush
from pacehound.runtime import unsent
from pacehound.runtime.unsent import KEPT_DAYS, UnsentFolder, forget_old, give_up, left_behind
from tests.fakes.receiver import FakeReceiver

DAY_NS = 86_400_000_000_000
NOW_NS = 100 * DAY_NS
HEAD = "http://head:4318"


def left(parent: Path, job: str, *, goes_to: str = HEAD, messages: int = 3, at_ns: int = NOW_NS) -> Path:
    """What a run of that job has left, whose processes are gone."""
    folder = UnsentFolder.begin((parent,), job, goes_to, at_ns)
    outbox = Outbox(folder.outbox, 1 << 20)
    outbox.save(
        [Outgoing(kind="keep", stream="", payload=f"{job}-{n}".encode().ljust(1000)) for n in range(messages)], b"", 0
    )
    outbox.close()
    give_up(folder.path, at_ns)
    folder.release()
    return folder.path


def payloads(receiver: FakeReceiver) -> list[str]:
    return [message.decode().strip() for request in receiver.requests for message in request]


def test_what_is_left_is_sent_in_order_and_its_folder_goes(tmp_path: Path) -> None:
    path = left(tmp_path, "a")
    receiver = FakeReceiver()
    (folder,) = left_behind(tmp_path)
    flushed = flush(folder, receiver)
    assert (flushed.messages, flushed.unsent, flushed.left.job) == (3, 0, "a")
    assert payloads(receiver) == ["a-0", "a-1", "a-2"]
    assert not path.exists()


def test_what_is_not_taken_in_time_stays(tmp_path: Path) -> None:
    left(tmp_path, "a")
    receiver = FakeReceiver()
    receiver.is_away = True
    (folder,) = left_behind(tmp_path)
    assert flush(folder, receiver, patience_s=0.0).unsent == 3
    receiver.is_away = False
    (again,) = left_behind(tmp_path)
    assert flush(again, receiver).unsent == 0


def test_one_that_is_held_is_nobody_else_s(tmp_path: Path) -> None:
    """A run that lives, or another successor at work."""
    living = UnsentFolder.begin((tmp_path,), "a", HEAD, NOW_NS)
    assert left_behind(tmp_path) == []
    living.release()
    (one,) = left_behind(tmp_path)
    assert left_behind(tmp_path) == []
    one.release()


def test_of_another_machine_only_what_its_agent_has_given_up_is_taken(tmp_path: Path) -> None:
    """Homes are shared, and not every lock is seen from elsewhere."""
    folder = UnsentFolder.begin((tmp_path,), "a", HEAD, NOW_NS)
    elsewhere = msgspec.structs.replace(folder.left, machine=f"not-{socket.gethostname()}")
    (folder.path / "left.json").write_bytes(msgspec.json.encode(elsewhere))
    folder.release()
    assert left_behind(tmp_path) == []
    give_up(folder.path, NOW_NS)
    (one,) = left_behind(tmp_path)
    one.release()


def test_the_next_run_takes_along_what_goes_where_it_sends(tmp_path: Path) -> None:
    path = left(tmp_path, "a")
    other = left(tmp_path, "b", goes_to="http://other:4318")
    receiver = FakeReceiver()
    successor = Successor(HEAD, lambda: receiver)
    successor.start(tmp_path)
    while path.exists():
        os.sched_yield()
    successor.stop()
    assert payloads(receiver) == ["a-0", "a-1", "a-2"]
    assert [path.name for path in tmp_path.iterdir()] == [other.name]


def test_a_receiver_that_stays_away_does_not_keep_an_agent_from_leaving(tmp_path: Path) -> None:
    left(tmp_path, "a")
    asked = threading.Event()
    receiver = FakeReceiver()
    receiver.is_away = True

    def open_sender() -> FakeReceiver:
        asked.set()
        return receiver

    successor = Successor(HEAD, open_sender)
    successor.start(tmp_path)
    assert asked.wait(10)
    successor.stop()
    (folder,) = left_behind(tmp_path)
    folder.release()


def test_what_is_too_old_or_too_much_is_dropped_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left(tmp_path, "old", at_ns=NOW_NS - (KEPT_DAYS + 1) * DAY_NS)
    left(tmp_path, "first", at_ns=NOW_NS - DAY_NS)
    kept = left(tmp_path, "last", at_ns=NOW_NS)
    monkeypatch.setattr(unsent, "KEPT_BYTES", unsent.held_bytes(kept) + 1)
    old, first = forget_old(tmp_path, NOW_NS)
    assert old == f"what job old could not send to {HEAD} is dropped: it is older than 7 days"
    assert first.startswith(f"what job first could not send to {HEAD} is dropped: all that waits takes")
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
    assert forget_old(tmp_path, NOW_NS) == []
