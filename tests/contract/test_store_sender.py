"""The way to the head of a store on this machine: over whatever socket it announces, whenever it does."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.agent.daemon import open_sender
from collector.agent.store_sender import StoreSender
from pacehound.bus.tls import MACHINE_CAS
from pacehound.errors import Unavailable
from pacehound.model import codec
from pacehound.model.events import Tick
from pacehound.runtime.head.owner import Owner, Ownership
from pacehound.runtime.unsent import store_name
from pacehound.settings import Settings
from tests.fakes import head_node as fake

MESSAGE = codec.encode(Tick(job="j", attempt=0, time_ns=1, stream="c"))


@contextlib.contextmanager
def head(store: Path, name: str = "otlp.sock", *, killed: bool = False) -> Iterator[fake.HeadNode]:
    """A receiver that has a store; killed, it leaves everything as it was."""
    ownership = Ownership(store)
    listener = ownership.listen(name)
    node = fake.HeadNode(listener=listener)
    ownership.announce(Owner(pid=os.getpid(), host=socket.gethostname(), socket="", otlp_socket=listener.getsockname()))
    left = (store / "head.json").read_bytes()
    try:
        yield node
    finally:
        node.close()
        ownership.release()
        if killed:
            (store / "head.json").write_bytes(left)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_message_that_is_there_before_its_head_waits_for_it_and_shows_no_token(store: Path) -> None:
    sender = open_sender(store_name(store), {}, MACHINE_CAS, Settings())
    sent: list[int] = []
    sending = threading.Thread(target=lambda: sent.append(sender.send([MESSAGE]).rejected))
    sending.start()
    with head(store) as node:
        sending.join(10.0)
        (request,) = node.requests
        sender.close()
    assert sent == [0]
    assert request.body == MESSAGE
    assert request.path == "/v1/logs"
    assert "authorization" not in request.headers


def test_where_no_head_comes_the_message_waits_and_it_is_said_for_which(store: Path) -> None:
    with pytest.raises(Unavailable, match=f"no head has the store {store} open"):
        StoreSender(store, head_within_s=0.1).send([MESSAGE])


def test_the_next_head_is_found_wherever_it_listens_also_after_one_that_was_killed(store: Path) -> None:
    sender = StoreSender(store, head_within_s=0.3)
    with head(store, killed=True) as node:
        node.answers = [fake.Answer(headers={"Connection": "close"})]
        sender.send([MESSAGE])
    began_s = time.monotonic()
    with pytest.raises(Unavailable):  # the connection that it has
        sender.send([MESSAGE])
    with pytest.raises(Unavailable, match="no head has the store"):  # a socket without anybody behind it
        sender.send([MESSAGE])
    assert time.monotonic() - began_s < 5.0
    with head(store, "other.sock") as node:
        sender.send([MESSAGE])
        assert len(node.requests) == 1
    sender.close()


@pytest.mark.parametrize("length", [1, 120])
def test_a_socket_is_for_this_user_alone_also_where_the_path_of_the_store_is_too_long(
    length: int, tmp_path: Path
) -> None:
    store = tmp_path / ("s" * length)
    ownership = Ownership(store)
    with ownership.listen("otlp.sock") as listener, ownership.listen("head.sock") as other:
        paths = [Path(one.getsockname()) for one in (listener, other)]
        assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o600, 0o600]
        assert {stat.S_IMODE(path.parent.stat().st_mode) for path in paths} == {0o700}
        assert {path.parent == store for path in paths} == {length == 1}
    ownership.release()
    assert length == 1 or not paths[0].parent.exists()
