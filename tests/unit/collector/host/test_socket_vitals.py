"""TCP connections: what the kernel's answer says, whose each one is, and which are worth telling."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from collector.host.rank_process import RankProcess
from collector.host.vitals import tcp_info
from collector.host.vitals.sockets import MAX_SOCKETS, Sockets
from collector.host.vitals.tcp_info import TcpConnection
from tests.fakes.proc_tree import ProcTree, process

# One message as Linux 6.18 answered: 1,000 bytes and 10 bytes went over loopback.
RECORDED = bytes.fromhex(
    "980100001400020001000000f163000002010000898685cd7f0000010000000000000000000000007f0000010000000000000000000000"
    "000000000004000000000000000000000000000000000000000000000013300600050008000000000008000f00000000000c0015000100"
    "00000000000006001600520000001c010200010000000007aa01e01c0300409c0000008a00001802000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000ffff0000d7ff00002200000013000000ffffff7f0b000000cbff000003000000"
    "00000000d7ff000000000000db2fabbb05000000ffffffffffffffffe9030000000000000a000000000000000400000003000000000000"
    "000b00000001000000010000008bae6dbf000000000000000000000000000000000000000000000000000000000200000000000000e803"
    "00000000000000000000000000000000000000000000000000000014010000000100000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000"
).ljust(0x198, b"\0")
DONE = bytes.fromhex("140000000300020001000000f163000000000000")
INODE = 405523

READ = TcpConnection(
    inode=INODE,
    local=("127.0.0.1", 35206),
    remote=("127.0.0.1", 34253),
    acked_bytes=1001,
    received_bytes=10,
    retransmitted_bytes=0,
    busy_us=0,
    unsent_bytes=0,
    rtt_us=34,
    min_rtt_us=11,
    delivery_bytes_per_s=3_211_636_363,
)


def test_a_recorded_answer_is_read() -> None:
    assert tcp_info.parse(RECORDED, lambda inode: True) == ([READ], False)
    assert tcp_info.parse(RECORDED + RECORDED + DONE, lambda inode: True) == ([READ, READ], True)


def test_a_foreign_connection_is_not_looked_into() -> None:
    assert tcp_info.parse(RECORDED + DONE, lambda inode: inode != INODE) == ([], True)


def test_an_older_kernel_says_less_and_the_rest_counts_as_nothing() -> None:
    at = RECORDED.index(bytes.fromhex("1c010200"))
    short = RECORDED[:at] + struct.pack("=HH", 4 + 104, 2) + RECORDED[at + 4 : at + 4 + 104]
    message = struct.pack("=I", len(short)) + short[4:]
    ([read], _) = tcp_info.parse(message, lambda inode: True)
    assert (read.rtt_us, read.acked_bytes, read.busy_us) == (34, 0, 0)


@pytest.mark.parametrize("length", [0, 3, 15, 4096])
def test_a_message_that_lies_about_its_length_is_an_error_and_no_loop(length: int) -> None:
    with pytest.raises(OSError, match="netlink"):
        tcp_info.parse(struct.pack("=I", length) + RECORDED[4:], lambda inode: True)


def test_a_refusal_is_an_error_with_its_number() -> None:
    with pytest.raises(PermissionError):
        tcp_info.parse(struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -1), lambda inode: True)


def test_any_cut_of_an_answer_is_read_or_refused() -> None:
    for end in range(len(RECORDED)):
        try:
            tcp_info.parse(RECORDED[:end], lambda inode: True)
        except OSError:
            continue


class Kernel:
    """Lists connections; counts how often it was asked for whom."""

    def __init__(self, *connections: TcpConnection) -> None:
        self.connections = list(connections)

    def __call__(self, wanted: Callable[[int], bool]) -> list[TcpConnection]:
        return [connection for connection in self.connections if wanted(connection.inode)]

    def move(self, at: int, **changes: int) -> None:
        self.connections[at] = replace(self.connections[at], **changes)


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    tree = ProcTree(tmp_path)
    for rank in (0, 1):
        tree.put(100 + rank)
        tree.open_file(100 + rank, 0, "/dev/null")
    tree.open_file(100, 7, "socket:[11]")
    tree.open_file(101, 9, "socket:[12]")
    return tree


def test_a_connection_is_told_with_its_rank_while_bytes_move(tree: ProcTree) -> None:
    kernel = Kernel(
        replace(READ, inode=11),
        replace(READ, inode=12, local=READ.remote, remote=READ.local, acked_bytes=10, received_bytes=1001),
        replace(READ, inode=13, local=("10.0.0.1", 22)),  # somebody else's
    )
    sockets = Sockets(tree.root, kernel)
    ranks = [process(0), process(1)]
    told = sockets.look(ranks)
    assert [(s.rank, s.pid, s.local, s.remote) for s in told] == [
        (1, 101, "127.0.0.1:34253", "127.0.0.1:35206"),
        (0, 100, "127.0.0.1:35206", "127.0.0.1:34253"),
    ]
    assert (told[1].acked_bytes, told[1].received_bytes, told[1].rtt_us) == (1001, 10, 34)
    assert sockets.look(ranks) == ()  # nothing has moved
    kernel.move(0, acked_bytes=1002)
    assert [s.rank for s in sockets.look(ranks)] == [0]
    kernel.move(1, unsent_bytes=5)  # it stands still, and something waits in it
    assert [s.unsent_bytes for s in sockets.look(ranks)] == [5]
    assert [s.unsent_bytes for s in sockets.look(ranks)] == [5]


def test_a_new_connection_finds_its_owner_and_a_new_rank_its_connections(tree: ProcTree) -> None:
    kernel = Kernel(replace(READ, inode=11), replace(READ, inode=12))
    sockets = Sockets(tree.root, kernel)
    assert [s.rank for s in sockets.look([process(0)])] == [0]
    assert [s.rank for s in sockets.look([process(0), process(1)])] == [1]
    tree.open_file(100, 8, "socket:[14]")
    kernel.connections.append(replace(READ, inode=14, local=("127.0.0.1", 9)))
    assert [s.local for s in sockets.look([process(0), process(1)])] == ["127.0.0.1:9"]


def test_the_store_of_the_rendezvous_is_left_out_where_the_environment_names_it(tree: ProcTree) -> None:
    tree.say(100, environ="A=b\0MASTER_PORT=34253\0")
    sockets = Sockets(tree.root, Kernel(replace(READ, inode=11), replace(READ, inode=12)))
    assert [s.rank for s in sockets.look([process(0), process(1)])] == [1]


def test_the_busiest_are_told_when_there_are_too_many(tree: ProcTree) -> None:
    many = []
    for number in range(MAX_SOCKETS + 10):
        tree.open_file(100, 1000 + number, f"socket:[{1000 + number}]")
        many.append(replace(READ, inode=1000 + number, acked_bytes=number))
    told = Sockets(tree.root, Kernel(*many)).look([process(0)])
    assert len(told) == MAX_SOCKETS
    assert (told[0].acked_bytes, told[-1].acked_bytes) == (MAX_SOCKETS + 9, 10)


def test_where_the_kernel_lists_nothing_nothing_is_told(tree: ProcTree) -> None:
    def refuses(wanted: Callable[[int], bool]) -> list[TcpConnection]:
        raise PermissionError("no")

    assert Sockets(tree.root, refuses).look([process(0)]) == ()
    assert Sockets(tree.root, Kernel()).look([]) == ()
    assert Sockets(tree.root, Kernel(READ)).look([process(5)]) == ()  # its process is gone


def test_a_real_pair_of_connections_is_told_with_what_went_over_it() -> None:
    import os

    me = RankProcess(attempt=0, rank=3, pid=os.getpid(), start_ticks=0)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as accepted,
    ):
        client.sendall(b"x" * 5000)
        received = 0
        while received < 5000:
            received += len(accepted.recv(5000))
        told = {reading.local: reading for reading in Sockets().look([me])}
        local, remote = (f"127.0.0.1:{one.getsockname()[1]}" for one in (client, accepted))
        assert told[local].remote == remote
        assert told[remote].remote == local
        assert told[remote].received_bytes == 5000
        assert {told[local].rank, told[remote].rank} == {3}
