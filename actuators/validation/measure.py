"""What one rank measures, with torch: matrix products, memory, copies to its device, transfers to a neighbour.

Every repetition begins at a barrier of all ranks, so that they do the same at the same moment and can be compared.
Times are of `perf_counter_ns`, and of the device's own end where there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from actuators.validation.passes import Link, Pass

CPU_GEMM_SIZES, GPU_GEMM_SIZE = {"float32": 384, "bfloat16": 192}, 8192
CPU_GEMMS = {"float32": 30, "bfloat16": 5}
"""So many products are one repetition: it takes tens of milliseconds, some turns of a scheduler, so that a rank that
shares its processor is compared by its share and not by its luck."""

CPU_COPY_BYTES, GPU_COPY_BYTES = 16 << 20, 1 << 30
CPU_COPIES = 20
"""More than any cache holds, for as long as the products."""

LATENCY_BYTES, CPU_LINK_BYTES, GPU_LINK_BYTES = 8, 4 << 20, 256 << 20
ROUND_TRIPS = {"latency": 20, "bandwidth": 4}

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
    repetitions
        Of each.
    deadline_s
        Monotonic: nothing is begun after it.

    Attributes
    ----------
    ranks, links
        What was measured so far: seconds of each repetition.

    """

    def __init__(self, dist: Any, device: str, repetitions: int, deadline_s: float) -> None:
        import torch

        self.ranks: dict[str, list[float]] = {}
        self.links: dict[str, dict[Link, list[float]]] = {}
        self._torch, self._dist = torch, dist
        self._device = torch.device(device)
        self._repetitions, self._deadline_s = repetitions, deadline_s
        self._is_gpu = self._device.type == "cuda"
        self._rank = dist.get_rank()

    def computations(self) -> None:
        """Measure `gemm float32` …, `memory`, `host to device`."""
        torch, found = self._torch, self.ranks
        kinds = [torch.float32, torch.bfloat16] + ([torch.float16] if self._is_gpu else [])
        for kind in kinds:
            name = str(kind).removeprefix("torch.")
            size, times = (GPU_GEMM_SIZE, 1) if self._is_gpu else (CPU_GEMM_SIZES[name], CPU_GEMMS[name])
            left = torch.ones((size, size), dtype=kind, device=self._device)
            right = torch.ones((size, size), dtype=kind, device=self._device)
            found[f"gemm {name}"] = self._timed(lambda: left @ right, times)  # noqa: B023
        if self._has_fp8():
            size = GPU_GEMM_SIZE
            quarter = torch.ones((size, size), device=self._device).to(torch.float8_e4m3fn)
            one = torch.ones((), device=self._device)
            found["gemm float8"] = self._timed(
                lambda: torch._scaled_mm(quarter, quarter.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
            )
        n_bytes = GPU_COPY_BYTES if self._is_gpu else CPU_COPY_BYTES
        source = torch.ones(n_bytes // 4, device=self._device)
        target = torch.empty_like(source)
        found["memory"] = self._timed(lambda: target.copy_(source), 1 if self._is_gpu else CPU_COPIES)
        if self._is_gpu:
            host = torch.ones(CPU_COPY_BYTES).pin_memory()
            there = torch.empty(CPU_COPY_BYTES, device=self._device)
            found["host to device"] = self._timed(lambda: there.copy_(host, non_blocking=True))

    def transfers(self, passes: Sequence[Pass]) -> None:
        """Measure `latency` and `bandwidth` of each transfer that this rank sends; the receiver's word ends it.

        Of several in a row the shortest counts: what a link takes it takes each time, a processor that is shared not.
        """
        torch = self._torch
        n_bytes = GPU_LINK_BYTES if self._is_gpu else CPU_LINK_BYTES
        for what, size in (("latency", LATENCY_BYTES), ("bandwidth", n_bytes)):
            payload = torch.ones(size // 4, device=self._device)
            word = torch.zeros(1, device=self._device)
            for one in passes:
                mine = next((link for link in one if self._rank in link), None)

                def transfer(mine: Link | None = mine, payload: Any = payload, word: Any = word) -> None:
                    if mine is None:
                        return
                    here, there = mine
                    if self._rank == here:
                        self._dist.send(payload, there)
                        self._dist.recv(word, there)
                    else:
                        self._dist.recv(payload, here)
                        self._dist.send(word, here)

                times = self._timed(transfer, ROUND_TRIPS[what], least=True)
                if mine is not None and mine[0] == self._rank:
                    self.links.setdefault(what, {})[mine] = times

    def _timed(self, work: Callable[[], Any], how_often: int = 1, *, least: bool = False) -> list[float]:
        """Seconds of each repetition: of all that is done in it, or the `least` that one of them took."""
        times = []
        for repetition in range(WARM_UPS + self._repetitions):
            self._all_go_on()
            each_s = []
            for _ in range(how_often):
                begin_ns = time.perf_counter_ns()
                work()
                if self._is_gpu:
                    self._torch.cuda.synchronize(self._device)
                each_s.append((time.perf_counter_ns() - begin_ns) / 1e9)
            if repetition >= WARM_UPS:
                times.append(min(each_s) if least else sum(each_s))
        return times

    def _all_go_on(self) -> None:
        """A barrier at which all ranks see alike whether the budget is over: none may wait for one that has left."""
        is_over = self._torch.tensor([float(time.monotonic() > self._deadline_s)], device=self._device)
        self._dist.all_reduce(is_over)
        if is_over.item() > 0:
            raise Deadline

    def _has_fp8(self) -> bool:
        return self._is_gpu and tuple(self._torch.cuda.get_device_capability(self._device)) >= (8, 9)
