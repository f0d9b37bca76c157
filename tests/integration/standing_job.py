"""A job for test_gloo_faults.py: training loops of several shapes in which a rank stands still, or makes others do so.
Run by torchrun, it knows nothing of Pacehound.

    torchrun --nproc-per-node 4 standing_job.py SHAPE --who 2 --since 60 --iterations 120
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

MICRO_BATCHES = 4


class Job:
    """One rank of it: `step` is called once for each iteration, and before it ends by an optimizer step."""

    def __init__(self, options: argparse.Namespace, rank: int, world: int) -> None:
        self.options, self.rank, self.world = options, rank, world
        self.timeout = timedelta(seconds=options.timeout_s)
        self.pairs = [dist.new_group([first, first + 1], timeout=self.timeout) for first in range(0, world, 2)]
        weight = torch.nn.Parameter(torch.zeros(8))
        weight.grad = torch.ones(8)
        self._optimizer = torch.optim.SGD([weight], lr=0.1)

    def is_struck(self, step: int) -> bool:
        return self.rank in self.options.who and step == self.options.since

    def compute(self, ms: float = 20.0) -> None:
        time.sleep(ms / 1e3)

    def reduce(self, count: int = 64, group: dist.ProcessGroup | None = None) -> None:
        dist.all_reduce(torch.ones(count), group=group)

    def train(self, step: Callable[[int], None]) -> None:
        for number in range(self.options.iterations):
            step(number)
            self._optimizer.step()


def stand() -> None:
    """For longer than anybody waits."""
    threading.Event().wait()


def stage(job: Job, step: int) -> None:
    """A pipeline of a loop's own, which waits for its sends at the end of a step."""
    before, behind, batch, sends = job.rank - 1, job.rank + 1, torch.ones(64), []
    for number in range(MICRO_BATCHES):
        if before >= 0:
            dist.recv(batch, before)
        if job.is_struck(step) and number == MICRO_BATCHES // 2:
            stand()
        job.compute(3)
        if behind < job.world:
            sends.append(dist.isend(batch.clone(), behind))
    for _ in range(MICRO_BATCHES):
        if behind < job.world:
            dist.recv(batch, behind)
        job.compute(3)
        if before >= 0:
            sends.append(dist.isend(batch.clone(), before))
    for send in sends:
        send.wait()


def ring(job: Job, step: int) -> None:
    """Each rank passes something on to the next one while it computes."""
    for number in range(job.world - 1):
        if job.is_struck(step) and number == 1:
            stand()
        received = torch.ones(64)
        operations = [
            dist.P2POp(dist.isend, torch.ones(64), (job.rank + 1) % job.world),
            dist.P2POp(dist.irecv, received, (job.rank - 1) % job.world),
        ]
        under_way = dist.batch_isend_irecv(operations)
        job.compute(6)
        for one in under_way:
            one.wait()


def pairs(job: Job, step: int) -> None:
    """Two pairs of ranks that have nothing to do with each other: one trains to its end."""
    if job.is_struck(step):
        stand()
    job.compute()
    job.reduce(group=job.pairs[job.rank // 2])


def evaluation(job: Job, step: int) -> None:
    """In the struck iteration ranks evaluate ten batches, and one of them eleven."""
    job.compute()
    job.reduce(4096)
    if step == job.options.since:
        for _ in range(11 if job.is_struck(step) else 10):
            job.reduce(3)


def monitored(job: Job, step: int) -> None:
    """One rank does not come to a monitored barrier."""
    job.compute()
    job.reduce()
    if job.is_struck(step):
        stand()
    if step % 5 == 0:
        dist.monitored_barrier(timeout=timedelta(seconds=4))


def new_group(job: Job, step: int) -> None:
    """One rank does not make a group that the others make."""
    job.compute()
    job.reduce()
    if job.is_struck(step):
        stand()
    if step == job.options.since:
        job.reduce(group=dist.new_group(timeout=job.timeout))


def crash(job: Job, step: int) -> None:
    """All ranks at the same place."""
    job.compute()
    job.reduce()
    if step == job.options.since:
        os.kill(os.getpid(), signal.SIGSEGV)


def slow_then_still(job: Job, step: int) -> None:
    """A rank that is slow for half of the time before it stands."""
    is_slow = job.rank in job.options.who and 2 * step >= job.options.since
    job.compute(45 if is_slow else 20)
    if job.is_struck(step):
        stand()
    job.reduce()


SHAPES = (stage, ring, pairs, evaluation, monitored, new_group, crash, slow_then_still)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=[shape.__name__ for shape in SHAPES])
    parser.add_argument("--who", type=int, nargs="*", default=[], help="ranks that it strikes")
    parser.add_argument("--since", type=int, default=0, help="the iteration in which it does")
    parser.add_argument("--iterations", type=int, default=90)
    parser.add_argument("--timeout-s", type=float, default=8.0, help="of the process groups")
    parser.add_argument("--seed", type=int, default=0, help="not used: nothing here is left to chance")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.timeout_s))
    job = Job(options, dist.get_rank(), dist.get_world_size())
    shape = next(shape for shape in SHAPES if shape.__name__ == options.shape)
    job.train(lambda step: shape(job, step))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
