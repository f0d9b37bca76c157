"""A tiny gloo job: a few all-reduces, then rank 1 fails if asked to. Without RANK it starts both of its ranks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys


def both_ranks() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(rank), "MASTER_PORT": port})
        for rank in range(2)
    ]
    return max(abs(rank.wait()) for rank in ranks)


def one_rank(fails: bool) -> None:
    import torch
    import torch.distributed as dist

    os.environ.update({"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"})
    dist.init_process_group("gloo")
    for _ in range(5):
        dist.all_reduce(torch.ones(4))
    if fails and dist.get_rank() == 1:
        sys.exit(3)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" not in os.environ:
        sys.exit(both_ranks())
    one_rank("--fail" in sys.argv)
