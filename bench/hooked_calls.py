"""Runs inside an instrumented process (see hooks.py): two groups, one of them with our hooks taken off again.

All of it on one processor. On two, whether gloo's thread finds its own awake decides by 20 us, either way.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

from pacehound.instrument.torch_c10d import HOOK_ID

CALLS = 300
ROUNDS = 80


def microseconds_per_call(group: Any, tensor: Any, calls: int = CALLS) -> tuple[float, float]:
    """CPU time of the calling thread and of the whole process."""
    thread_ns, process_ns = time.thread_time_ns(), time.process_time_ns()
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)
    return (time.thread_time_ns() - thread_ns) / calls / 1e3, (time.process_time_ns() - process_ns) / calls / 1e3


def main() -> None:
    """Print medians as one line of JSON."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    tensor = torch.ones(4)
    groups = {"hooked": dist.new_group([0]), "bare": dist.new_group([0])}
    groups["bare"].unregister_pre_hook(HOOK_ID)
    groups["bare"].unregister_post_hook(HOOK_ID)
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in groups}
    for group in groups.values():
        microseconds_per_call(group, tensor, 2_000)
    for _ in range(ROUNDS):
        for name, group in groups.items():
            measured[name].append(microseconds_per_call(group, tensor))
    medians = {
        name: {
            "calling thread": statistics.median(thread for thread, _ in figures),
            "whole process": statistics.median(process for _, process in figures),
        }
        for name, figures in measured.items()
    }
    dist.destroy_process_group()
    print(json.dumps(medians))


if __name__ == "__main__":
    main()
