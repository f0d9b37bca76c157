"""A gloo job that begins both of its ranks as processes of their own, by the same interpreter. It knows nothing of us.

begun_ranks.py CALLS PAUSE_S AFTERWARDS

It stays afterwards for so many seconds, or until there is a file of that name.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist


def one_rank() -> None:
    calls, pause_s, afterwards = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    dist.init_process_group("gloo")
    for _ in range(calls):
        time.sleep(pause_s)
        dist.all_reduce(torch.ones(2))
    if os.path.isabs(afterwards):
        while not os.path.exists(afterwards):
            time.sleep(0.05)
    else:
        time.sleep(float(afterwards))
    dist.destroy_process_group()


def both_ranks() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    same = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**same, "RANK": str(rank)}) for rank in range(2)]
    return max(one.wait() for one in ranks)


if __name__ == "__main__":
    if "RANK" not in os.environ:
        sys.exit(both_ranks())
    one_rank()
