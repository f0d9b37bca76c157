"""When the operations of a recorded step were on a CUDA device: its events, laid on the host's clock.

Launches end long before their kernels do. So an instant is an event with timing on the stream that the calling thread
launches to, and its time is read later, at the hooks of this and of the following steps: nothing waits for the device,
and there is no thread of ours. (One that asks for events would, in Python, have no means to keep out of a capture of
another thread, which asking breaks. And it would take the interpreter's lock from the script.)

**End of a transfer.** NCCL runs it on a stream of its own and notes an event behind it. The script's `Work.wait` makes
the script's stream wait for that event. Once it has been called, `Work.synchronize`, with a stream of ours as the
current one, makes that stream wait too, and our event behind it is over when the transfer is, whatever the script's
stream does meanwhile. The script's call stays the first one: it is what gives the transfer's tensors back to the
allocator. `synchronize` is `wait` without what blocks, raises or aborts (blocking-wait mode, timeouts), in both of
torch's implementations: `WorkNCCL` of `ProcessGroupNCCL.cpp` and of `nccl2/WorkNCCL.cpp`, which "nccl" is by default in
torch 2.15. (`block_current_stream`, which promises more by its name, launches a kernel that spins where a Work does not
override it; that of nccl2 does not.) Works of a coalesced batch are of the same classes. Other backends' are refused.

**The host's clock.** An event is not over before it is launched, nor when somebody asks and is told so; it is over when
somebody asks and is told so. Both bound the difference of the clocks. What tells most is a probe: an event on a stream
of ours that has nothing else to do, placed at each hook and asked for a few microseconds later. The latest moment at
which a probe was not over decides, an error of microseconds where the device takes probes at once. Where it does not
(CUDA_DEVICE_MAX_CONNECTIONS=1 puts all streams into one queue), the error is at most what lay between two looks, and a
step for which that is more than MOST_UNSURE_NS is not recorded.

This has not been run on a GPU; tests/fakes/cuda_device.py stands in for one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MOST_EVENTS = 16_384
"""Of a process; a step that would need more is not recorded."""
MOST_UNSURE_NS = 10_000_000
"""What-if takes transfers that are off by more for wrong clocks (streams/whatif/durations.py)."""

_PROBES = 16  # a step; the tightest are kept
_READS_AT_A_HOOK = 4  # two are placed by an operation
_TRANSFER_KINDS = 4

# Streams come from a pool of 32 for each priority, and whoever asks for the 33rd shares it. A script's are of priority
# 0 or -1: to wait on a stream that is also the script's would hold the script up. torch takes the nearest there is.
_PRIORITY = -3

_VERIFIED_BACKENDS = ("ProcessGroupNCCL", "ProcessGroupNCCL2", "ProcessGroupNCCLLazy")


@dataclass(slots=True)
class _Probe:
    """`event` was not over at `before_ns`, and was at `after_ns` (0: not yet seen)."""

    event: Any
    before_ns: int
    after_ns: int = 0

    def width_ns(self) -> int:
        return self.after_ns - self.before_ns


class CudaClock:
    """The events and streams of ours on one device.

    Parameters
    ----------
    cuda
        `torch.cuda`.
    device
        The one that the parameters are on, which has to be the current one.
    host_ns
        The host's monotonic clock.

    """

    def __init__(self, cuda: Any, device: Any, host_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.cuda = cuda
        self.device = device
        self.host_ns = host_ns
        self._free: list[Any] = []
        self._n_made = 0
        self.transfer_streams = [cuda.Stream(device=device, priority=_PRIORITY) for _ in range(_TRANSFER_KINDS)]
        self.probing = cuda.Stream(device=device, priority=_PRIORITY)

    def begin(self, fail: Callable[[str, BaseException], None]) -> CudaTimes:
        """The times of a step that begins now; `fail` is told of an error of ours, once."""
        return CudaTimes(self, fail)

    def take(self) -> Any:
        """An event, for the caller alone; None where there are none left."""
        if self._free:
            return self._free.pop()
        if self._n_made >= MOST_EVENTS:
            return None
        self._n_made += 1
        return self.cuda.Event(enable_timing=True)

    def give_back(self, events: list[Any]) -> None:
        """They may be recorded again, also where they are not over yet: nobody will ask for their time."""
        self._free += events


def clock_of(device: Any) -> CudaClock:
    """The clock of a CUDA device of this process."""
    import torch

    return CudaClock(torch.cuda, device)


class CudaTimes:
    """`StepTimes` of one step on a device."""

    is_device = True

    def __init__(self, clock: CudaClock, fail: Callable[[str, BaseException], None]) -> None:
        self._clock = clock
        self._fail = fail
        self.spoilt = ""
        self._origin: Any = None  # over before every other event: the driver is asked for no negative times
        self._is_origin_over = False
        self._events: list[Any] = []
        self._device_ns: list[int] = []  # since the origin, of those that were read
        self._probe: _Probe | None = None
        self._probes: list[_Probe] = []
        self._offset_ns: int | None = None

    def now(self) -> int:
        return self._guarded(self._now)

    def transferred(self, work: Any, kind: int) -> int:
        return self._guarded(lambda: self._transferred(work, self._clock.transfer_streams[kind % _TRANSFER_KINDS]))

    def cannot_see(self, p2p_op: Any) -> str:
        backend = type(p2p_op.group._get_backend(p2p_op.tensor.device)).__name__
        if backend in _VERIFIED_BACKENDS:
            return ""
        return f"when a transfer of {backend} ends on the device is not known; it is of NCCL's own process groups"

    def look(self, at_most: int) -> bool:
        if self._offset_ns is None:
            self._guarded(lambda: self._look_back(at_most))
        return bool(self.spoilt) or self._offset_ns is not None

    def ns(self, instant: int) -> int:
        if not instant or self._offset_ns is None:
            return 0
        return self._offset_ns + self._device_ns[instant - 1]

    def _guarded(self, act: Callable[[], int]) -> int:
        """Our errors are not the script's. One of them ends this step, and who is told ends the others."""
        try:
            return 0 if self.spoilt else act()
        except Exception as error:
            self._spoil(f"{type(error).__name__}: {error}")
            self._fail("a CUDA event", error)
            return 0

    def _now(self) -> int:
        if self._is_capturing():
            return 0
        if self._origin is None:
            self._origin = self._clock.take()
            if self._origin is not None:
                self._origin.record(self._clock.probing)
        self._look_at_probe()
        instant = self._record(self._clock.cuda.current_stream(self._clock.device))
        if instant:
            self._read(_READS_AT_A_HOOK)
            self._look_at_probe()
        return instant

    def _transferred(self, work: Any, stream: Any) -> int:
        if self._is_capturing():  # the end of a captured transfer would draw our stream into the graph
            return 0
        with self._clock.cuda.stream(stream):
            work.synchronize()
        return self._record(stream)

    def _is_capturing(self) -> bool:
        """An event would become a part of the graph: there is none of such a step."""
        if self._clock.cuda.is_current_stream_capturing():
            self._spoil("it was captured into a CUDA graph")
        return bool(self.spoilt)

    def _record(self, stream: Any) -> int:
        event = self._clock.take()
        if event is None:
            self._spoil(f"it has more operations than {MOST_EVENTS} events can tell")
            return 0
        event.record(stream)
        self._events.append(event)
        return len(self._events)

    # The two clocks.

    def _look_at_probe(self) -> None:
        """Ask for the probe that is under way; place the next one where there is none."""
        probe = self._probe
        if probe is None:
            event = self._clock.take()
            if event is not None:
                self._probe = _Probe(event, self._clock.host_ns())
                event.record(self._clock.probing)
            return
        asked_ns = self._clock.host_ns()
        if not probe.event.query():
            probe.before_ns = asked_ns
            return
        probe.after_ns = self._clock.host_ns()
        self._probe = None
        self._probes.append(probe)
        if len(self._probes) > _PROBES:
            self._probes.sort(key=_Probe.width_ns)
            self._clock.give_back([self._probes.pop().event])

    def _read(self, at_most: int) -> None:
        """The times of events that are over, in the order in which they were recorded."""
        self._is_origin_over = self._is_origin_over or self._origin.query()
        if not self._is_origin_over:
            return
        while at_most and len(self._device_ns) < len(self._events):
            event = self._events[len(self._device_ns)]
            if not event.query():
                return
            self._device_ns.append(round(self._origin.elapsed_time(event) * 1e6))
            at_most -= 1

    def _look_back(self, at_most: int) -> int:
        if self._clock.cuda.is_current_stream_capturing():  # asking for an event would break that
            return 0
        if self._probe is not None:
            self._look_at_probe()
        if self._events:
            self._read(at_most)
        if len(self._device_ns) == len(self._events):
            self._lay_on_host()
        return 0

    def _lay_on_host(self) -> None:
        if not self._events or not self._probes:
            self._spoil("the device's clock could not be read")
            return
        probed_ns = [round(self._origin.elapsed_time(probe.event) * 1e6) for probe in self._probes]
        least_ns = max(probe.before_ns - at_ns for probe, at_ns in zip(self._probes, probed_ns, strict=True))
        most_ns = min(probe.after_ns - at_ns for probe, at_ns in zip(self._probes, probed_ns, strict=True))
        if abs(most_ns - least_ns) > MOST_UNSURE_NS:
            self._spoil(f"the device's clock was not known to {MOST_UNSURE_NS // 1_000_000} ms")
            return
        self._offset_ns = least_ns
        self._give_back()

    def _spoil(self, why: str) -> None:
        self.spoilt = why
        self._give_back()

    def _give_back(self) -> None:
        left = [*self._probes, *([self._probe] if self._probe is not None else [])]
        origin = [self._origin] if self._origin is not None else []
        self._clock.give_back([*origin, *self._events, *(probe.event for probe in left)])
        self._origin, self._events, self._probes, self._probe = None, [], [], None
