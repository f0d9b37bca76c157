"""What the hooks see of torch on a CUDA device, on the stub driver's streams (tests/native/stub).

A process group of NCCL as torch has it: a synchronous call runs on the caller's current stream, an asynchronous one on
a stream of the group's own, behind the caller's. A future is done when the call has been issued, and calls back at
once with a stream current that waits for the call. Nothing but the ProcessGroup's hooks is torch's own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SCRIPT, OWN = 3, 7
"""The script's stream, and the process group's."""


@dataclass
class Device:
    """The stub driver; the current stream is a number."""

    stub: ctypes.CDLL
    current: int = SCRIPT
    type: str = "cuda"

    def __post_init__(self) -> None:
        for name in ("stub_kernel", "stub_capture", "stub_synchronize"):
            getattr(self.stub, name).argtypes = (ctypes.c_void_p, ctypes.c_long)[: 1 + (name != "stub_synchronize")]

    def kernel(self, microseconds: int, stream: int | None = None) -> None:
        self.stub.stub_kernel(self.current if stream is None else stream, microseconds)


class Tensor:
    """One element on the device."""

    is_cpu = False
    dtype = "float32"

    def __init__(self, device: Device) -> None:
        self.device = device

    def numel(self) -> int:
        return 1024


@dataclass
class Future:
    device: Device
    is_done: bool

    def done(self) -> bool:
        return self.is_done

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        before, self.device.current = self.device.current, OWN
        try:
            callback(self)
        finally:
            self.device.current = before


@dataclass
class Work:
    device: Device
    is_done: bool = True
    n_asked: int = 0

    def get_future(self) -> Future:
        self.n_asked += 1
        return Future(self.device, self.is_done)


@dataclass
class Args:
    name: str
    async_op: bool
    input_tensors: list[Tensor]
    op_id: int
    output_tensors: list[Tensor] = field(default_factory=list)
    root: int = -1
    work: Work | None = None


@dataclass
class Group:
    """Calls on a process group whose hooks are `hooks`."""

    hooks: Any
    device: Device
    op_id: int = 0

    def all_reduce(self, microseconds: int, *, async_op: bool = False, is_done: bool = True) -> Work:
        self.op_id += 1
        args = Args("ALLREDUCE", async_op, [Tensor(self.device)], self.op_id)
        self.hooks.before(args)
        self.device.kernel(microseconds, OWN if async_op else None)
        args.work = Work(self.device, is_done)
        self.hooks.after(args)
        return args.work
