"""What is known of one process group: its id, its members in world ranks, and the counters of its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pacehound.instrument import layout
from pacehound.instrument.recorder import Recorder
from pacehound.model.identity import communicator_id

DeviceTimes = Literal["", "stream", "future"]


class Call:
    """One call of this rank, from its launch to its end: what a COMPLETE record repeats."""

    __slots__ = ("count", "device", "direction", "dtype", "flags", "launch_ns", "op", "peer", "seq", "timed")

    def __init__(
        self, op: int, dtype: int, direction: int, flags: int, peer: int, seq: int, count: int, launch_ns: int
    ) -> None:
        self.op = op
        self.dtype = dtype
        self.direction = direction
        self.flags = flags
        self.peer = peer
        self.seq = seq
        self.count = count
        self.launch_ns = launch_ns
        self.device: Any = None
        self.timed: int | None = None  # of Hold.time


class WatchedGroup:
    """A communicator that this process has joined.

    It must not refer to the process group: the group owns the hooks, the hooks own this, and a cycle through C++
    would keep the group's threads alive for ever.

    Parameters
    ----------
    members
        World ranks, in the order of their ranks within the group.
    ended_by_future
        Device types (`"cpu"`) whose backend tells when a call has ended.
    device_times
        Whether calls on a device can be timed there: `"stream"`, those that run on the stream they are launched from;
        `"future"`, the others, too, by their futures; `""`, none.

    """

    def __init__(
        self,
        recorder: Recorder,
        name: str,
        members: Sequence[int],
        *,
        generation: int,
        is_world: bool,
        backend: str,
        timeout_ms: int,
        ended_by_future: frozenset[str],
        device_times: DeviceTimes = "",
    ) -> None:
        self.name = name
        self.members = tuple(members)
        self.generation = generation
        self.is_world = is_world
        self.backend = backend
        self.timeout_ms = timeout_ms
        self.ended_by_future = ended_by_future
        self.device_times = device_times
        self.handle = bytes.fromhex(communicator_id(recorder.job, recorder.attempt, name, self.members, generation))
        self._recorder = recorder
        self._collectives = 0
        self._pairs: dict[tuple[int, int], int] = {}

    def announce(self, now_ns: int) -> None:
        """Write the GROUP record and its members."""
        recorder = self._recorder
        members = self.members
        recorder.write(
            layout.GROUP_RECORD, layout.GROUP, self.handle,
            now_ns, self.generation, recorder.world_size, len(members), self.is_world,
            layout.BACKENDS.get(self.backend, 0), 0, self.timeout_ms, cut_utf8(self.name, layout.NAME_BYTES),
        )  # fmt: skip
        for first in range(0, len(members), layout.MEMBERS_PER_RECORD):
            part = members[first : first + layout.MEMBERS_PER_RECORD]
            padding = (0,) * (layout.MEMBERS_PER_RECORD - len(part))
            recorder.write(layout.MEMBERS_RECORD, layout.MEMBERS, self.handle, len(part), *part, *padding)

    def number(self, peer: int, direction: int) -> int:
        """The next sequence number: collectives are counted per group, the others per (peer, direction)."""
        if direction == layout.NONE:
            seq = self._collectives
            self._collectives = seq + 1
            return seq
        seq = self._pairs.get((peer, direction), 0)
        self._pairs[peer, direction] = seq + 1
        return seq

    def launch(self, call: Call) -> None:
        """Write that a call begins on the host."""
        self._write(layout.LAUNCH, call, call.flags, 0)

    def launch_record(self, call: Call) -> bytes:
        """The record of a launch without its stamp, for who writes the call's end from it."""
        rank = self._recorder.rank & 0xFFFFFFFF
        return layout.CALL_RECORD.pack(layout.LAUNCH, rank, self.handle, *self._fields(call, call.flags, 0))

    def complete(self, call: Call, end_ns: int, flags: int = 0, start_ns: int = 0) -> None:
        """Write that a call has ended; `flags` are added to those of its launch, a start where it is seen."""
        self._write(layout.COMPLETE, call, call.flags | flags, end_ns, start_ns)

    def destroy(self) -> None:
        """Write that the communicator is gone."""
        self._recorder.write(layout.EMPTY_RECORD, layout.DESTROY, self.handle)

    def _write(self, kind: int, call: Call, flags: int, end_ns: int, start_ns: int = 0) -> None:
        self._recorder.write(layout.CALL_RECORD, kind, self.handle, *self._fields(call, flags, end_ns, start_ns))

    def _fields(self, call: Call, flags: int, end_ns: int, start_ns: int = 0) -> tuple[int, ...]:
        # 0: which reduction it is, its channels, stream and group, which the hooks do not say.
        return (
            call.op, call.dtype, 0, call.direction, flags, _C10D, 0, call.peer, 0,
            call.seq, call.count, call.launch_ns, start_ns, end_ns, 0, 0, -1, -1,
        )  # fmt: skip


_C10D = 1  # its position in SOURCES of pacehound/model/codes.py


def cut_utf8(text: str, size_bytes: int) -> bytes:
    """`text` in at most `size_bytes` bytes of UTF-8, cut between characters.

    >>> cut_utf8("aé", 2)
    b'a'
    """
    return text.encode("utf-8", "replace")[:size_bytes].decode("utf-8", "ignore").encode()
