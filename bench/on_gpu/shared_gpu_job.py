"""The job that is measured: each rank multiplies matrices and reduces a gradient, all on one device.

It ends after `--steps`, or when the file `--stop` is there (rank 0 looks, the ranks agree every ten steps). Rank 0
writes `--times` (step, time_ns, step_time_s: Pacehound's own layout), and beside it how many collectives each rank has
made.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist

AGREE_EVERY = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=2048, help="of the matrices")
    parser.add_argument("--products", type=int, default=4, help="of matrices, in each step")
    parser.add_argument("--gradient-mb", type=int, default=16)
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument(
        "--slow-from", type=int, default=0, help="the step from which on it multiplies five times as often"
    )
    parser.add_argument("--stuck-rank", type=int, default=-1)
    parser.add_argument("--stuck-at", type=int, default=0, help="the step in which it goes no further")
    help_ = "where it is stuck: before it calls anything, or with a kernel that does not end"
    parser.add_argument("--stuck-on", choices=("host", "device"), default="host", help=help_)
    parser.add_argument("--stop", type=Path, default=Path("/nonexistent"))
    parser.add_argument("--times", type=Path, required=True)
    options = parser.parse_args()
    device = torch.device("cuda", 0) if options.backend == "nccl" else torch.device("cpu")
    torch.set_num_threads(1)
    dist.init_process_group(options.backend)
    rank = dist.get_rank()
    left = torch.randn(options.size, options.size, device=device)
    gradient = torch.ones(options.gradient_mb * 2**18, device=device)
    stop = torch.zeros(1, device=device)
    weight = torch.nn.Parameter(torch.zeros(8, device=device))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    calls, lines, before_ns = 0, ["step,time_ns,step_time_s"], time.time_ns()
    for step in range(options.steps):
        is_slow = rank == options.slow_rank and step >= options.slow_from
        for _ in range(options.products * (5 if is_slow else 1)):
            left @ left
        if rank == options.stuck_rank and step == options.stuck_at:
            _be_stuck(options.stuck_on)
        dist.all_reduce(gradient)
        weight.grad = gradient[:8].clone()
        optimizer.step()
        calls += 1
        if step % AGREE_EVERY == AGREE_EVERY - 1:
            stop.fill_(float(options.stop.exists()))
            dist.all_reduce(stop, op=dist.ReduceOp.MAX)
            calls += 1
            if stop.item() > 0:
                break
        if device.type == "cuda":
            torch.cuda.synchronize()
        now_ns = time.time_ns()
        lines.append(f"{step},{now_ns},{(now_ns - before_ns) / 1e9}")
        before_ns = now_ns
    if rank == 0:
        options.times.write_text("\n".join(lines) + "\n")
        Path(f"{options.times}.calls").write_text(json.dumps({"calls": calls, "ranks": dist.get_world_size()}))
    dist.destroy_process_group()


def _be_stuck(where: str) -> None:
    """Go no further: asleep, or behind a kernel that takes minutes."""
    if where == "host":
        time.sleep(600.0)
    else:
        for _ in range(300):
            torch.cuda._sleep(2_000_000_000)  # cycles; a second or so each


if __name__ == "__main__":
    main()
