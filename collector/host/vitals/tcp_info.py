"""The TCP connections of this network namespace, as the kernel counts them: NETLINK_SOCK_DIAG with TCP_INFO.

A small reader of our own. The libraries that know this protocol decode every message into dictionaries, with costs per
connection that a host with thousands of connections of other programs would pay every few seconds; here a foreign
connection costs one look at its inode.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY = 4, 20
_REQUEST_A_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_ESTABLISHED = 1
_INET_DIAG_INFO = 2

_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port
_REQUEST = struct.Struct("=BBBxI48x")  # inet_diag_req_v2: family, protocol, extensions, states; any address
_MESSAGE = struct.Struct("=4B2s2s16s16s12x5I")
"""inet_diag_msg: family, state, timer, retransmits; ports and addresses; expires, receive and send queue, uid, inode"""
_ATTRIBUTE = struct.Struct("=HH")
_RECEIVE_BYTES = 1 << 18
_TIMEOUT_S = 1.0

# struct tcp_info of linux/tcp.h; older kernels send less of it, the rest counts as 0.
_TCP_INFO_BYTES = 216
_RTT = struct.Struct("=68xI")
_COUNTS = struct.Struct("=120xQQ8xII8xQQ32xQ")
"""bytes_acked, bytes_received; notsent_bytes, min_rtt; delivery_rate, busy_time; bytes_retrans"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpConnection:
    """An established connection; what each number means stands at `pacehound.model.events.SocketReading`."""

    inode: int
    local: tuple[str, int]
    remote: tuple[str, int]
    acked_bytes: int
    received_bytes: int
    retransmitted_bytes: int
    busy_us: int
    unsent_bytes: int
    rtt_us: int
    min_rtt_us: int
    delivery_bytes_per_s: int


def established(wanted: Callable[[int], bool]) -> list[TcpConnection]:
    """Connections whose inode is `wanted`, IPv4 and IPv6, in the network namespace of this process.

    Raises
    ------
    OSError
        The kernel does not answer such questions here.

    """
    found: list[TcpConnection] = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(_TIMEOUT_S)
        netlink.bind((0, 0))
        for number, family in enumerate((socket.AF_INET, socket.AF_INET6), start=1):
            netlink.send(request(family, number))
            is_done = False
            while not is_done:
                connections, is_done = parse(netlink.recv(_RECEIVE_BYTES), wanted)
                found += connections
    return found


def request(family: int, number: int) -> bytes:
    """The question: every established TCP connection of an address family, with its TCP_INFO."""
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), 1 << _ESTABLISHED)
    return _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST_A_DUMP, number, 0) + body


def parse(answer: bytes, wanted: Callable[[int], bool]) -> tuple[list[TcpConnection], bool]:
    """The connections in one datagram of an answer, and whether it is the last one.

    Raises
    ------
    OSError
        The kernel refused, or what came is no answer.

    """
    found: list[TcpConnection] = []
    at = 0
    while at + _HEADER.size <= len(answer):
        length, kind, _, _, _ = _HEADER.unpack_from(answer, at)
        if length < _HEADER.size or at + length > len(answer):
            raise OSError(f"a netlink message says it has {length} bytes, {len(answer) - at} are there")
        body = answer[at + _HEADER.size : at + length]
        if kind == _NLMSG_DONE:
            return found, True
        if kind == _NLMSG_ERROR:
            code = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
            raise OSError(code, "the kernel refused to list connections")
        if kind == _SOCK_DIAG_BY_FAMILY and len(body) >= _MESSAGE.size:
            connection = _connection(body, wanted)
            if connection is not None:
                found.append(connection)
        at += (length + 3) & ~3
    return found, False


def _connection(body: bytes, wanted: Callable[[int], bool]) -> TcpConnection | None:
    family, _, _, _, source_port, target_port, source, target, _, _, _, _, inode = _MESSAGE.unpack_from(body)
    if not wanted(inode):
        return None
    for kind, value in _attributes(body[_MESSAGE.size :]):
        if kind == _INET_DIAG_INFO:
            info = value.ljust(_TCP_INFO_BYTES, b"\0")
            break
    else:
        return None
    acked, received, unsent, min_rtt_us, rate, busy_us, retransmitted = _COUNTS.unpack_from(info)
    return TcpConnection(
        inode=inode,
        local=(_address(family, source), int.from_bytes(source_port, "big")),
        remote=(_address(family, target), int.from_bytes(target_port, "big")),
        acked_bytes=acked,
        received_bytes=received,
        retransmitted_bytes=retransmitted,
        busy_us=busy_us,
        unsent_bytes=unsent,
        rtt_us=_RTT.unpack_from(info)[0],
        min_rtt_us=0 if min_rtt_us == 0xFFFFFFFF else min_rtt_us,
        delivery_bytes_per_s=rate,
    )


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3


def _address(family: int, raw: bytes) -> str:
    r"""The text of an address; an IPv4 address that an IPv6 socket uses is written as the IPv4 address it is.

    >>> _address(socket.AF_INET6, bytes(10) + b"\xff\xff\x7f\x00\x00\x01")
    '127.0.0.1'
    """
    if family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, raw[:4])
    if raw[:12] == bytes(10) + b"\xff\xff":
        return socket.inet_ntop(socket.AF_INET, raw[12:])
    return socket.inet_ntop(socket.AF_INET6, raw)
