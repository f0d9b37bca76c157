"""A tiny gloo job: a few all-reduces, then rank 1 fails if asked to. Without RANK it starts both of its ranks.

With `--after FILE` they begin once it is there.
"""

from __future__ import annotations

import os
import socket
import sys
import time


def both_ranks() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    import torch.distributed  # noqa: F401  once for both

    while "--after" in sys.argv and not os.path.exists(sys.argv[sys.argv.index("--after") + 1]):
        time.sleep(0.05)

    pids = []
    for rank in range(2):
        pids.append(os.fork())
        if pids[-1] == 0:
            os.environ |= {"RANK": str(rank), "MASTER_PORT": port}
            one_rank("--fail" in sys.argv)
            sys.exit()
    return max(abs(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])) for pid in pids)


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
