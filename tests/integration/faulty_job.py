"""A job for test_root_cause.py: a small training loop in which one thing goes wrong. Run by torchrun, it knows nothing
of Pacehound.

    torchrun --nproc-per-node 4 faulty_job.py FAULT --who 2 --since 60 --iterations 120

An iteration loads a batch, computes (it waits: the cores belong to all ranks), calls what stands in `PLAN` and takes an
optimizer step. A fault changes what `--who` do: from iteration `--since` until `--until`, or in iteration `--since`
alone.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class Planned:
    """One collective of an iteration."""

    group: str
    op: str
    count: int


PLAN = (
    Planned("tp", "all_reduce", 256),
    Planned("world", "all_reduce", 512),
    Planned("tp", "all_reduce", 256),
    Planned("dp", "all_reduce", 4096),
    Planned("twin", "all_reduce", 1024),
)
"""`twin` has the members of `world`."""

LASTING = ("slow", "loads-slowly", "pauses")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fault", choices=("none", *LASTING, *ONCE, *CALLS))
    parser.add_argument("--who", type=int, nargs="*", default=[], help="ranks that it strikes")
    parser.add_argument("--since", type=int, default=0, help="first iteration in which it does")
    parser.add_argument("--until", type=int, default=None, help="first iteration in which it no longer lasts")
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--compute-ms", type=float, default=25.0)
    parser.add_argument("--extra-ms", type=float, default=25.0, help="how much longer something takes")
    parser.add_argument("--place", type=int, default=0, help="which call of the plan goes wrong")
    parser.add_argument("--timeout-s", type=float, default=60.0, help="of the process groups")
    parser.add_argument("--piped-bytes", type=int, default=0, help="each rank sends so much to the next one")
    parser.add_argument("--reduced-bytes", type=int, default=0, help="all ranks reduce so much more")
    parser.add_argument("--gathers-in", default="", help="a group that gathers at the end of the plan, too")
    parser.add_argument("--interface", default="", help="whose network becomes narrow")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


# What happens once, before the calls of an iteration.
ONCE: dict[str, Callable[[argparse.Namespace], None]] = {
    "stops": lambda options: os.kill(os.getpid(), signal.SIGSTOP),
    "leaves": lambda options: sys.exit(1),
    "finishes": lambda options: os._exit(0),
    "raises": lambda options: _raise(),
    "dies": lambda options: os.kill(os.getpid(), signal.SIGKILL),
    "loads-long": lambda options: None,  # the data set does it
    "narrows": lambda options: _narrow(options.interface),
}


def _narrow(interface: str) -> None:
    """The network of this host becomes slow."""
    limit = ("rate", "40mbit", "burst", "64kb", "latency", "400ms")
    subprocess.run(["tc", "qdisc", "add", "dev", interface, "root", "tbf", *limit], check=True)


def _raise() -> None:
    raise RuntimeError("loss is not a number")


def _skipped(plan: list[Planned], place: int) -> list[Planned]:
    return [*plan[:place], *plan[place + 1 :]]


def _swapped(plan: list[Planned], place: int) -> list[Planned]:
    return [*plan[:place], plan[place + 1], plan[place], *plan[place + 2 :]]


def _with(**changes: object) -> Callable[[list[Planned], int], list[Planned]]:
    return lambda plan, place: [*plan[:place], replace(plan[place], **changes), *plan[place + 1 :]]


def _times(factor: float) -> Callable[[list[Planned], int], list[Planned]]:
    def changed(plan: list[Planned], place: int) -> list[Planned]:
        count = round(plan[place].count * factor)
        return [*plan[:place], replace(plan[place], count=count), *plan[place + 1 :]]

    return changed


# What a rank calls instead of the plan, in one iteration.
CALLS: dict[str, Callable[[list[Planned], int], list[Planned]]] = {
    "skips": _skipped,
    "swaps": _swapped,
    "gathers": _with(op="all_gather"),
    "broadcasts": _with(op="broadcast"),
    "larger": _times(4),
    "smaller": _times(0.25),
}


class Samples(Dataset):
    """Batches that take long to load where the fault is there."""

    def __init__(self, options: argparse.Namespace, rank: int) -> None:
        self._options = options
        self._is_struck = rank in options.who

    def __len__(self) -> int:
        return self._options.iterations

    def __getitem__(self, index: int) -> torch.Tensor:
        options = self._options
        lasts = options.fault == "loads-slowly" and _lasts(options, index)
        if self._is_struck and (lasts or (options.fault == "loads-long" and index == options.since)):
            time.sleep(options.extra_ms / 1e3)
        return torch.ones(8)


def _lasts(options: argparse.Namespace, step: int) -> bool:
    until = options.iterations if options.until is None else options.until
    return bool(options.since <= step < until)


def computation_s(options: argparse.Namespace, rank: int, step: int, chance: random.Random) -> float:
    """How long a rank computes in an iteration."""
    seconds = options.compute_ms / 1e3
    if options.fault == "slow" and rank in options.who and _lasts(options, step):
        seconds += options.extra_ms / 1e3
    if options.fault == "pauses" and _lasts(options, step) and chance.random() < 0.08:
        seconds += chance.expovariate(1e3 / options.extra_ms)
    return float(seconds)


def communicate(call: Planned, group: dist.ProcessGroup) -> None:
    tensor = torch.ones(call.count)
    if call.op == "all_reduce":
        dist.all_reduce(tensor, group=group)
    elif call.op == "broadcast":
        dist.broadcast(tensor, dist.get_global_rank(group, 0), group=group)
    else:
        dist.all_gather([torch.zeros(call.count) for _ in range(group.size())], tensor, group=group)


def pass_on(rank: int, world: int, size_bytes: int) -> None:
    """A pipeline without computation: each rank receives from the one before and sends to the next."""
    tensor = torch.ones(size_bytes // 4)
    if rank > 0:
        dist.recv(tensor, rank - 1)
    if rank < world - 1:
        dist.send(tensor, rank + 1)


def groups_of(rank: int, world: int, timeout: timedelta) -> dict[str, dist.ProcessGroup]:
    """Neighbours share a `tp` group, every second rank a `dp` group."""
    mine = {"world": dist.group.WORLD, "twin": dist.new_group(list(range(world)), timeout=timeout)}
    for name, members in (
        *(("tp", [first, first + 1]) for first in range(0, world, 2)),
        *(("dp", list(range(first, world, 2))) for first in range(2)),
    ):
        group = dist.new_group(members, timeout=timeout)  # else half an hour
        if rank in members:
            mine[name] = group
    return mine


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    timeout = timedelta(seconds=options.timeout_s)
    dist.init_process_group("gloo", timeout=timeout)
    rank, world = dist.get_rank(), dist.get_world_size()
    chance = random.Random(1_000 * options.seed + rank)
    groups = groups_of(rank, world, timeout)
    weight = torch.nn.Parameter(torch.zeros(8))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for step, batch in enumerate(DataLoader(Samples(options, rank), batch_size=None)):
        time.sleep(computation_s(options, rank, step, chance))
        is_struck = rank in options.who and step == options.since
        if is_struck and options.fault in ONCE:
            ONCE[options.fault](options)
        plan = [*PLAN, *([Planned(options.gathers_in, "all_gather", 512)] if options.gathers_in else [])]
        if is_struck and options.fault in CALLS:
            plan = CALLS[options.fault](plan, options.place)
        if options.piped_bytes:
            pass_on(rank, world, options.piped_bytes)
        if options.reduced_bytes:
            plan.append(Planned("world", "all_reduce", options.reduced_bytes // 4))
        for call in plan:
            communicate(call, groups[call.group])
        weight.grad = batch
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
