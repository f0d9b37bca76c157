"""A CUDA device that is not there, for tests: streams that run in order on a clock of their own, and what torch.cuda
says of them (`torch/cuda/streams.py`, `c10/cuda/CUDAEvent.h`), and Works of NCCL (`nccl2/WorkNCCL.cpp`).

Time is a number that the script moves (`spend`). The host launches, which takes it some microseconds, and goes on; the
device begins what it is given when its stream gets there. Whatever would make the host wait for the device fails the
test. An event says whether it is over only as of now, and how long lies between two only when both are.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np

US, MS = 1_000, 1_000_000


@dataclass(frozen=True)
class Device:
    """What torch.device is."""

    type: str = "cuda"
    index: int = 0

    def __str__(self):
        return f"{self.type}:{self.index}"


class BlockedError(AssertionError):
    """Somebody waited for the device."""


class Machine:
    """A host and its device.

    `one_queue`: the device takes everything in the order of its launch (CUDA_DEVICE_MAX_CONNECTIONS=1).
    `takes_ns`: from a launch to when an idle device begins with it.
    """

    def __init__(self, *, one_queue=False, takes_ns=8 * US):
        self.now_ns = 77 * MS
        self.one_queue, self.takes_ns = one_queue, takes_ns
        self.queue_ns = 0
        self.cuda = Cuda(self)
        self.blocked = []

    def host_ns(self):
        self.now_ns += 50  # reading a clock takes time as well
        return self.now_ns

    def spend(self, duration_ns):
        """The host does something else."""
        self.now_ns += duration_ns

    def kernel(self, duration_ns, stream=None):
        """Launch one on the current stream; (start, end) are told to the test alone."""
        stream = stream or self.cuda.current
        self.now_ns += 5 * US
        begin_ns = self.begins(stream)
        stream.free_ns = begin_ns + duration_ns
        if self.one_queue:
            self.queue_ns = begin_ns
        return begin_ns, stream.free_ns

    def begins(self, stream):
        return max(self.now_ns + self.takes_ns, stream.free_ns, self.queue_ns)

    def run_dry(self):
        """The host does nothing until its device has nothing left to do."""
        self.now_ns = max(self.now_ns, *(stream.free_ns + MS for stream in self.cuda.streams))

    def block(self, what):
        self.blocked.append(what)
        raise BlockedError(what)


class Cuda:
    """`torch.cuda`."""

    def __init__(self, machine):
        self.machine = machine
        self.streams = []
        self.current = Stream(self)
        self.is_capturing = False
        self.events = []
        self.fails_from = None  # the how-manieth event call raises

    def Stream(self, device=None, priority=0):  # noqa: N802 (torch's name)
        return Stream(self, priority)

    def Event(self, enable_timing=False):  # noqa: N802
        self.events.append(Event(self, enable_timing))
        return self.events[-1]

    def current_stream(self, device=None):
        return self.current

    def current_device(self):
        return 0

    def is_current_stream_capturing(self):
        return self.is_capturing

    def synchronize(self, device=None):
        self.machine.block("torch.cuda.synchronize")

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def called(self):
        """An event call: it takes a microsecond, and may fail."""
        self.machine.now_ns += US
        if self.fails_from is not None:
            self.fails_from -= 1
            if self.fails_from < 0:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")


class Stream:
    def __init__(self, cuda, priority=0):
        self.cuda, self.priority, self.free_ns = cuda, priority, 0
        cuda.streams.append(self)

    def wait_event(self, event):
        if event.done_ns is not None:
            self.free_ns = max(self.free_ns, event.done_ns)
            if self.cuda.machine.one_queue:
                self.cuda.machine.queue_ns = max(self.cuda.machine.queue_ns, event.done_ns)

    def query(self):
        return self.cuda.machine.now_ns >= self.free_ns

    def synchronize(self):
        self.cuda.machine.block("Stream.synchronize")


class Event:
    """Its `done_ns` is the truth, by the host's clock; the device counts a little faster, in half microseconds."""

    def __init__(self, cuda, is_timing):
        self.cuda, self.is_timing, self.done_ns = cuda, is_timing, None

    def record(self, stream=None):
        self.cuda.called()
        assert not self.cuda.is_capturing, "an event was recorded while a graph was captured"
        stream = stream or self.cuda.current
        self.done_ns = self.cuda.machine.begins(stream)
        if self.cuda.machine.one_queue:
            self.cuda.machine.queue_ns = self.done_ns

    def query(self):
        self.cuda.called()
        assert not self.cuda.is_capturing, "an event was asked for while a graph was captured"
        return self.done_ns is None or self.cuda.machine.now_ns >= self.done_ns

    def elapsed_time(self, other):
        if not (self.is_timing and other.is_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.done_ns is None or other.done_ns is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and other.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return float(np.float32(round((other.done_ns - self.done_ns) * (1 + 2e-6) / 500) / 2_000))

    def wait(self, stream=None):
        (stream or self.cuda.current).wait_event(self)

    def synchronize(self):
        self.cuda.machine.block("Event.synchronize")


class Work:
    """A transfer: it runs on NCCL's stream, once the launching stream gets there, and not before its peer does.

    `arrives_ns`: when the peer has done its part, on the host's clock.
    """

    def __init__(self, machine, nccl_stream, arrives_ns, duration_ns=100 * US):
        launched = Event(machine.cuda, False)
        launched.record()
        nccl_stream.wait_event(launched)
        begin_ns = machine.begins(nccl_stream)
        nccl_stream.free_ns = max(begin_ns, arrives_ns) + duration_ns
        self.machine = machine
        self.end = Event(machine.cuda, False)
        self.end.record(nccl_stream)
        self.holds_tensors = True
        self.n_waits = 0

    def wait(self):
        self.n_waits += 1
        self._order_current_stream()
        return True

    def synchronize(self):
        assert self.n_waits, "the first wait is the script's: it gives the tensors back to the allocator"
        assert not self.machine.cuda.is_capturing, "a stream of ours was drawn into a graph"
        self._order_current_stream()

    def block_current_stream(self):
        raise AssertionError("nccl2 has none of its own: torch's launches a kernel that spins")

    def _order_current_stream(self):
        self.machine.cuda.called()
        self.machine.cuda.current.wait_event(self.end)
        self.holds_tensors = False


class ProcessGroupNCCL2:
    """Only its name counts."""


class FakeProcessGroup:
    def __init__(self, backend=ProcessGroupNCCL2):
        self._backend = backend()

    def _get_backend(self, device):
        return self._backend
