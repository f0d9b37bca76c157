"""A pipeline-parallel job, event by event: computes in the order of the schedule, transfers when both sides are there.

Sends go out when a compute has ended, receives are posted ahead, collectives begin when all have come. All steps and DP
ranks are run at once, as arrays of shape `(n_steps, n_dp)`. Nothing here knows how traces are analysed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.operations.job import OpJob
from simulator.operations.schedule import Compute, order_of

FloatArray = npt.NDArray[np.float64]


@dataclass(slots=True)
class Recorded:
    """Launches and ends by operation, each of shape `(n_steps, n_dp)`."""

    rows: list[tuple[int, str, int, int, int, FloatArray, FloatArray]] = field(default_factory=list)

    def add(
        self, stage: int, optype: str, chunk: int, mb: int, gmc: int, times_s: tuple[FloatArray, FloatArray]
    ) -> None:
        self.rows.append((stage, optype, chunk, mb, gmc, *times_s))


class Run:
    """One run: `ends_s` knows the end of each operation that is over, by (name, stage, chunk, micro-batch)."""

    def __init__(self, job: OpJob) -> None:
        self.job, self.faults = job, job.faults
        self.shape = (job.n_steps, job.n_dp)
        self.n_model_chunks = job.n_stages * job.n_chunks
        self.recorded = Recorded()
        self.computes = [
            order_of(job.schedule, stage, job.n_stages, job.n_chunks, job.n_micro_batches)
            for stage in range(job.n_stages)
        ]
        self.compute_end_s: dict[tuple[int, Compute], FloatArray] = {}
        self.sent_s: dict[tuple[int, Compute], FloatArray] = {}
        self.gathered_s = np.zeros((job.n_steps, 1))
        self.scatters: list[list[tuple[FloatArray, FloatArray]]] = [[] for _ in range(job.n_stages)]
        spread = self.faults.sequence_spread
        cost = self._rng("sequences").lognormal(-spread * spread / 2, spread, (*self.shape, job.n_micro_batches))
        self.costs = np.moveaxis(cost, 2, 0)

    def _rng(self, *what: Any) -> np.random.Generator:
        """Draws that do not depend on which other operations there are, so that faults change nothing else."""
        words = (self.job.seed, *"/".join(map(str, what)).encode())
        return np.random.default_rng(np.array(words, np.uint32))  # of an array it is made four times as fast

    def _took(self, mean_s: float, *what: Any) -> FloatArray:
        return mean_s * self._rng("took", *what).lognormal(0.0, self.job.jitter, self.shape)

    def _gap(self, *what: Any) -> FloatArray:
        return self._rng("gap", *what).exponential(self.job.gap_s, self.shape)

    def run(self) -> Recorded:
        """Everything until all stages are through."""
        job = self.job
        gathered = [[self._gather(stage, chunk) for chunk in range(job.n_chunks)] for stage in range(job.n_stages)]
        done = [0] * job.n_stages
        while any(done[stage] < len(order) for stage, order in enumerate(self.computes)):
            progress = sum(done)
            for stage, order in enumerate(self.computes):
                while done[stage] < len(order) and self._can_run(stage, order[done[stage]]):
                    self._compute(stage, done[stage], gathered[stage])
                    done[stage] += 1
            if sum(done) == progress:
                raise ValueError("the schedule waits for itself")
        self._end_of_step()
        return self.recorded

    def _peer(self, stage: int, compute: Compute, towards: int) -> tuple[int, Compute] | None:
        """Stage and compute before (-1) or after (+1) a compute in its direction; None at the ends of the model."""
        here = compute.chunk * self.job.n_stages + stage
        there = here + (towards if compute.is_forward else -towards)
        if not 0 <= there < self.n_model_chunks:
            return None
        chunk, peer = divmod(there, self.job.n_stages)
        return peer, Compute(compute.is_forward, chunk, compute.micro_batch)

    def _can_run(self, stage: int, compute: Compute) -> bool:
        before = self._peer(stage, compute, -1)
        is_there = before is None or before in self.compute_end_s
        if compute.is_forward or compute.chunk * self.job.n_stages + stage < self.n_model_chunks - 1:
            return is_there
        return (stage, Compute(True, compute.chunk, compute.micro_batch)) in self.compute_end_s

    def _gather(self, stage: int, chunk: int) -> FloatArray:
        launch_s = self._gap("gather", stage) + (0 if chunk == 0 else self.gathered_s)
        end_s: FloatArray = launch_s.max(axis=1, keepdims=True) + self._took(self.job.gather_s, "gather", stage, chunk)
        self.gathered_s = end_s
        self._record(stage, "params-all-gather", chunk, -1, (launch_s, end_s))
        return end_s

    def _compute(self, stage: int, number: int, gathered_s: list[FloatArray]) -> None:
        order = self.computes[stage]
        compute = order[number]
        ready_s = np.zeros(self.shape)
        if number:
            ready_s = np.maximum(ready_s, self.compute_end_s[stage, order[number - 1]])
        received_s = self._receive(stage, number)
        if received_s is not None:
            ready_s = np.maximum(ready_s, received_s)
        if compute.is_forward:
            ready_s = np.maximum(ready_s, gathered_s[compute.chunk])
        if stage == number == 0:
            ready_s = ready_s + [self.faults.late_data_s.get(dp, 0.0) for dp in range(self.job.n_dp)]
        launch_s = ready_s + self._gap("compute", stage, compute)
        took_s = self._compute_s(stage, compute)
        if self.faults.holds_computes:
            for first_s, last_s in self.scatters[stage]:
                took_s = took_s + np.where((launch_s >= first_s) & (launch_s < last_s), last_s - launch_s, 0.0)
        end_s = launch_s + took_s
        self.compute_end_s[stage, compute] = end_s
        name = "forward-compute" if compute.is_forward else "backward-compute"
        self._record(stage, name, compute.chunk, compute.micro_batch, (launch_s, end_s))
        is_last_of_chunk = not any(
            not later.is_forward and later.chunk == compute.chunk for later in order[number + 1 :]
        )
        if self.job.overlaps_grads and not compute.is_forward and is_last_of_chunk:
            self._scatter(stage, compute.chunk, end_s)

    def _compute_s(self, stage: int, compute: Compute) -> FloatArray:
        job, faults = self.job, self.faults
        took_s: FloatArray = self._took(job.forward_s if compute.is_forward else job.backward_s, stage, compute)
        took_s = took_s * self.costs[compute.micro_batch]
        if compute.chunk * job.n_stages + stage == self.n_model_chunks - 1:
            took_s = took_s * faults.last_stage[0 if compute.is_forward else 1]
        for (dp, at_stage), factor in faults.slow_workers.items():
            if at_stage == stage:
                took_s[:, dp] *= factor
        n_computes = job.n_micro_batches * job.n_chunks
        if compute.is_forward:
            hit = self._rng("collect", stage, compute).random(self.shape) < faults.collections_per_step / n_computes
            took_s = took_s + hit * faults.collection_s
        hit = self._rng("retry", stage, compute).random(self.shape) < faults.retries_per_step / (2 * n_computes)
        took_s += hit * faults.retry_s
        return took_s

    def _receive(self, stage: int, number: int) -> FloatArray | None:
        """When the input of a compute has come. Posted once the compute of its direction before it has ended."""
        order = self.computes[stage]
        compute = order[number]
        peer = self._peer(stage, compute, -1)
        name = "forward-recv" if compute.is_forward else "backward-recv"
        earlier = [one for one in order[:number] if one.is_forward == compute.is_forward]
        posted_s = np.zeros(self.shape)
        if earlier:
            posted_s = self.compute_end_s[stage, earlier[-1]]
        elif not compute.is_forward and number > 1:
            posted_s = self.compute_end_s[stage, order[number - 2]]
        posted_s = posted_s + self._gap(name, stage, compute)
        if peer is None:
            if self.job.records_no_ops:
                self._record(stage, name, -1, -1, (posted_s, posted_s + 1e-6))
            return None
        sender, sent = peer
        send = "forward-send" if compute.is_forward else "backward-send"
        launch_s = self.compute_end_s[sender, sent] + self._gap(send, sender, sent)
        earlier_sends = self.sent_s.get((sender, Compute(compute.is_forward, -1, -1)))
        if earlier_sends is not None:
            launch_s = np.maximum(launch_s, earlier_sends)
        end_s = np.maximum(launch_s, posted_s) + self._took(self.job.send_s, name, stage, compute)
        self.sent_s[sender, Compute(compute.is_forward, -1, -1)] = end_s
        self._record(sender, send, -1, -1, (launch_s, end_s))
        self._record(stage, name, -1, -1, (posted_s, end_s))
        return end_s

    def _scatter(self, stage: int, chunk: int, ready_s: FloatArray) -> FloatArray:
        launch_s = ready_s + self._gap("scatter", stage, chunk)
        if self.scatters[stage]:
            launch_s = np.maximum(launch_s, self.scatters[stage][-1][1])
        began_s = launch_s.max(axis=1, keepdims=True)
        end_s: FloatArray = began_s + self._took(self.job.scatter_s, "scatter", stage, chunk)
        self.scatters[stage].append((launch_s, end_s))
        self._record(stage, "grads-reduce-scatter", chunk, -1, (launch_s, end_s))
        return end_s

    def _end_of_step(self) -> None:
        job = self.job
        ready_s, first_and_last = [], sorted({0, job.n_stages - 1})
        for stage in range(job.n_stages):
            last_s = self.compute_end_s[stage, self.computes[stage][-1]]
            self._record(stage, "gc", -1, -1, (last_s, last_s))
            if job.overlaps_grads:
                last_s = np.maximum(last_s, self.scatters[stage][-1][1])
            launch_s = last_s + self._gap("layernorm", stage)
            end_s = launch_s + self._took(4e-5, "layernorm", stage)
            self._record(stage, "layernorm-grads-all-reduce", -1, -1, (launch_s, end_s))
            ready_s.append(end_s)
        launches_s = [ready_s[stage] + self._gap("embedding", stage) for stage in first_and_last]
        began_s = np.maximum.reduce(launches_s)
        for stage, launch_s in zip(first_and_last, launches_s, strict=True):
            ready_s[stage] = began_s + self._took(0.01, "embedding", stage)
            self._record(stage, "embedding-grads-all-reduce", -1, -1, (launch_s, ready_s[stage]))
        for stage in range(job.n_stages):
            if job.overlaps_grads:
                launch_s = ready_s[stage] + self._gap("separate", stage)
                ready_s[stage] = launch_s.max(axis=1, keepdims=True) + self._took(0.001, "separate", stage)
                self._record(stage, "separate-grads-all-reduce", -1, -1, (launch_s, ready_s[stage]))
                continue
            for chunk in range(job.n_chunks):
                ready_s[stage] = self._scatter(stage, chunk, ready_s[stage])
        launches_s = [ready_s[stage] + self._gap("clip", stage) for stage in range(job.n_stages)]
        began_s = np.maximum.reduce(launches_s).max(axis=1, keepdims=True)
        for stage, launch_s in enumerate(launches_s):
            end_s = began_s + self._took(0.004, "clip", stage)
            self._record(stage, "optimizer-clip-main-grad", -1, -1, (launch_s, end_s))
            begin_s = end_s + self._gap("optimizer", stage)
            self._record(
                stage, "optimizer", -1, -1, (begin_s, begin_s + self._took(job.optimizer_s, "optimizer", stage))
            )

    def _record(self, stage: int, name: str, chunk: int, mb: int, times_s: tuple[FloatArray, FloatArray]) -> None:
        gmc = chunk * self.job.n_stages + stage if name.endswith("compute") else -1
        self.recorded.add(stage, name, chunk, mb, gmc, times_s)
