"""What one rank measures, with torch: matrix products, memory, copies to its device, transfers to a neighbour.

Every repetition begins at a barrier of all ranks. Devices do the same at the same moment and can be compared; where
processors do the work, the ranks of a machine take turns (`turns`), and do as much as they can in a given time.
Times are of `perf_counter_ns`, and of the device's own end where there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from actuators.validation.passes import Link, Pass
from actuators.validation.thresholds import CPU_SHARE_WINDOW_S, CPU_WINDOW_S, TRANSFERS_SHARE
from actuators.validation.turns import move_to_another_processor, turns_of

CPU_GEMM_SIZES, GPU_GEMM_SIZE = {"float32": 384, "bfloat16": 192}, 8192
"""Some milliseconds each."""

CPU_COPY_BYTES, GPU_COPY_BYTES = 16 << 20, 1 << 30
"""More than any cache holds."""

LATENCY_BYTES, CPU_LINK_BYTES, GPU_LINK_BYTES = 8, 4 << 20, 256 << 20
ROUND_TRIPS = {"latency": 20, "bandwidth": 4}

PROBE_SHARE = 16
"""What is sent first, to see how long it takes, is such a part of what is measured with."""

LEAST_SHARE = 64
"""Nothing smaller is measured with: less would be latency once more (chosen)."""

WARM_UPS = 1
"""Repetitions that are not counted: clocks rise, libraries choose, connections are made."""


class Deadline(Exception):
    """The budget is over; what was measured so far stands."""


class Measurement:
    """The measurements of one rank.

    Parameters
    ----------
    dist
        `torch.distributed`, with a group of all ranks that are measured.
    device
        Where the work is done: `cpu`, `cuda:0` ….
    hosts
        By rank: what leaves one is a link.
    machines
        By rank: containers of one machine may be hosts of their own, and share its processors.
    processors
        Of each machine.
    repetitions
        Of each.
    deadline_s
        Monotonic: nothing is begun after it.

    Attributes
    ----------
    ranks, links
        What was measured so far: seconds of each repetition.

    """

    def __init__(
        self,
        dist: Any,
        device: str,
        *,
        hosts: Sequence[str],
        machines: Sequence[str],
        processors: Mapping[str, int],
        repetitions: int,
        deadline_s: float,
    ) -> None:
        import torch

        self.ranks: dict[str, list[float]] = {}
        self.links: dict[str, dict[Link, list[float]]] = {}
        self._torch, self._dist = torch, dist
        self._device = torch.device(device)
        self._hosts, self._machines, self._processors = tuple(hosts), tuple(machines), processors
        self._repetitions, self._deadline_s = repetitions, deadline_s
        self._is_gpu = self._device.type == "cuda"
        self._rank = dist.get_rank()

    def computations(self) -> None:
        """Measure `gemm float32` …, `memory`, `host to device`."""
        torch = self._torch
        kinds = [torch.float32, torch.bfloat16] + ([torch.float16] if self._is_gpu else [])
        for kind in kinds:
            name = str(kind).removeprefix("torch.")
            size = GPU_GEMM_SIZE if self._is_gpu else CPU_GEMM_SIZES[name]
            left = torch.ones((size, size), dtype=kind, device=self._device)
            right = torch.ones((size, size), dtype=kind, device=self._device)
            window_s = CPU_SHARE_WINDOW_S if kind is torch.float32 else CPU_WINDOW_S
            self._compute(f"gemm {name}", lambda: left @ right, window_s)  # noqa: B023
        if self._has_fp8():
            size = GPU_GEMM_SIZE
            quarter = torch.ones((size, size), device=self._device).to(torch.float8_e4m3fn)
            one = torch.ones((), device=self._device)
            self._compute(
                "gemm float8",
                lambda: torch._scaled_mm(quarter, quarter.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16),
            )
        n_bytes = GPU_COPY_BYTES if self._is_gpu else CPU_COPY_BYTES
        source = torch.ones(n_bytes // 4, device=self._device)
        target = torch.empty_like(source)
        self._compute("memory", lambda: target.copy_(source))
        if self._is_gpu:
            host = torch.ones(CPU_COPY_BYTES).pin_memory()
            there = torch.empty(CPU_COPY_BYTES, device=self._device)
            self._compute("host to device", lambda: there.copy_(host, non_blocking=True))

    def transfers(self, passes: Sequence[Pass]) -> None:
        """Measure `latency` and `bandwidth` of each transfer that this rank sends; the receiver's word ends it.

        Of several in a row the shortest counts: what a link takes it takes each time, a processor that is shared not.
        Where processors move the data, only what leaves a host is a link.
        """
        links = [found for one in passes if (found := [link for link in one if self._is_link(link)])]
        self._measure("latency", LATENCY_BYTES, links)
        self._measure("bandwidth", self._bandwidth_bytes(links), links)

    def _measure(self, what: str, size: int, links: Sequence[Sequence[Link]]) -> None:
        for one in links:
            mine = self._of_mine(one)
            transfer = self._transfer(mine, size)
            times = []
            for repetition in range(WARM_UPS + self._repetitions):
                self._all_go_on()
                time_s = min(self._timed(transfer) for _ in range(ROUND_TRIPS[what]))
                if repetition >= WARM_UPS:
                    times.append(time_s)
            if mine is not None and mine[0] == self._rank:
                self.links.setdefault(what, {})[mine] = times

    def _bandwidth_bytes(self, links: Sequence[Sequence[Link]]) -> int:
        """So many that the slowest link is measured in the time that is left: the same for all, or none compares."""
        most = GPU_LINK_BYTES if self._is_gpu else CPU_LINK_BYTES
        probe = most // PROBE_SHARE
        slowest_s = 0.0
        for one in links:
            self._all_go_on()
            slowest_s += self._greatest(self._timed(self._transfer(self._of_mine(one), probe)))
        n_transfers = (WARM_UPS + self._repetitions) * ROUND_TRIPS["bandwidth"]
        left_s = -self._greatest(time.monotonic() - self._deadline_s)  # of the rank that has least
        return bytes_within(TRANSFERS_SHARE * left_s, slowest_s * n_transfers / probe, most)

    def _of_mine(self, links: Sequence[Link]) -> Link | None:
        return next((link for link in links if self._rank in link), None)

    def _transfer(self, mine: Link | None, size: int) -> Callable[[], None]:
        """Send or receive so many bytes, until the receiver has said that it has them."""
        payload = self._torch.ones(size // 4, device=self._device)
        word = self._torch.zeros(1, device=self._device)

        def transfer() -> None:
            if mine is None:
                return
            here, there = mine
            if self._rank == here:
                self._dist.send(payload, there)
                self._dist.recv(word, there)
            else:
                self._dist.recv(payload, here)
                self._dist.send(word, here)

        return transfer

    def _greatest(self, value: float) -> float:
        """Of all ranks."""
        of_all = self._torch.tensor([value], dtype=self._torch.float64, device=self._device)
        self._dist.all_reduce(of_all, op=self._dist.ReduceOp.MAX)
        return float(of_all.item())

    def _is_link(self, link: Link) -> bool:
        here, there = link
        return self._is_gpu or self._hosts[here] != self._hosts[there]

    def _compute(self, what: str, work: Callable[[], Any], window_s: float = CPU_WINDOW_S) -> None:
        """Seconds of one piece of work in each repetition: a device does one, a processor what it can in a window."""
        times = self.ranks.setdefault(what, [])
        for repetition in range(WARM_UPS + self._repetitions):
            if self._is_gpu:
                self._all_go_on()
                time_s = self._timed(work)
            else:
                time_s = self._in_my_turn(work, window_s if repetition >= WARM_UPS else 0.0, repetition)
            if repetition >= WARM_UPS:
                times.append(time_s)

    def _in_my_turn(self, work: Callable[[], Any], window_s: float, repetition: int) -> float:
        time_s = 0.0
        for turn in turns_of(self._machines, self._processors, repetition):
            if self._rank in turn:
                here = [rank for rank in sorted(turn) if self._machines[rank] == self._machines[self._rank]]
                move_to_another_processor(repetition + here.index(self._rank))
            self._all_go_on()
            if self._rank in turn:
                begin_s, done = time.perf_counter(), 0
                while not done or time.perf_counter() - begin_s < window_s:
                    work()
                    done += 1
                time_s = (time.perf_counter() - begin_s) / done
        return time_s

    def _timed(self, work: Callable[[], Any]) -> float:
        begin_s = time.perf_counter()
        work()
        if self._is_gpu:
            self._torch.cuda.synchronize(self._device)
        return time.perf_counter() - begin_s

    def _all_go_on(self) -> None:
        """A barrier at which all ranks see alike whether the budget is over: none may wait for one that has left."""
        if self._greatest(float(time.monotonic() > self._deadline_s)):
            raise Deadline

    def _has_fp8(self) -> bool:
        return self._is_gpu and tuple(self._torch.cuda.get_device_capability(self._device)) >= (8, 9)


def bytes_within(left_s: float, s_per_byte: float, most: int) -> int:
    """How large a transfer may be: `most` bytes, or a half of that, or a quarter …

    Parameters
    ----------
    left_s
        For all repetitions.
    s_per_byte
        Of all repetitions, seconds for each byte of the transfer.
    most
        Bytes; a `LEAST_SHARE` of it at least is answered.

    Examples
    --------
    >>> bytes_within(5.0, 1e-6, 4 << 20), bytes_within(3.0, 1e-6, 4 << 20), bytes_within(0.0, 1e-6, 4 << 20)
    (4194304, 2097152, 65536)

    """
    size = most
    while size > most // LEAST_SHARE and size * s_per_byte > left_s:
        size //= 2
    return size
