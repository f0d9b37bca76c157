"""Ranks of a script as forks of one process that has imported torch: a launcher that starts in a third of the time.

    python forked_ranks.py 4 script.py ARGUMENTS

It does what torchrun does for one host: the environment of each rank, and an end for all of them when one fails. Where
others are on another host FORKED_FIRST says the first one here, FORKED_WORLD how many there are, and FORKED_MEET where
they meet, as ADDRESS:PORT. They wait for the agent of the run that they are part of, and for the file FORKED_AFTER, if
one is named, though not for long: on a busy machine a short job would be over before its agent or its head has begun,
and how a rank was killed that nobody had looked at is not known. Tests whose claim is about the launcher, or about
processes that are looked for by their environment, use torchrun itself.
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import sys
import time

END_WITHIN_S = 10.0
AFTER_WITHIN_S = 30.0


def fork_ranks(n: int) -> dict[int, int]:
    """The ranks' pids; in a rank itself none, and its environment is set."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = f"127.0.0.1:{free.getsockname()[1]}"
    first, world = int(os.environ.get("FORKED_FIRST", 0)), os.environ.get("FORKED_WORLD", str(n))
    address, _, port = os.environ.get("FORKED_MEET", meet).partition(":")
    os.environ |= {"MASTER_ADDR": address, "MASTER_PORT": port}
    os.environ |= {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": str(n)}
    pids = {}
    for rank in range(n):
        pid = os.fork()
        if pid == 0:
            os.environ |= {"RANK": str(first + rank), "LOCAL_RANK": str(rank)}
            return {}
        pids[pid] = rank
    return pids


def wait_for(pids: dict[int, int]) -> int:
    """The exit status of all: 1 if one failed, and then the others are ended."""
    running, status, deadline_s = dict(pids), 0, float("inf")

    def end(number: int) -> None:
        for pid in running:
            os.kill(pid, number)

    signal.signal(signal.SIGTERM, lambda *_: end(signal.SIGTERM))
    while running:
        pid, how = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            if time.monotonic() > deadline_s:
                end(signal.SIGKILL)
            time.sleep(0.02)
            continue
        rank = running.pop(pid)
        if how != 0 and status == 0:
            status, deadline_s = 1, time.monotonic() + END_WITHIN_S
            print(f"rank {rank} ended with {os.waitstatus_to_exitcode(how)}", file=sys.stderr, flush=True)
            end(signal.SIGTERM)
    return status


def awaited() -> list[str]:
    """The files that are there when the helpers of this run have begun."""
    files = [os.environ["FORKED_AFTER"]] if "FORKED_AFTER" in os.environ else []
    if "PACEHOUND_RUN_DIR" in os.environ:
        files.append(os.path.join(os.environ["PACEHOUND_RUN_DIR"], "agent.lock"))
    return files


def main() -> None:
    """Fork, and be a rank or wait for all of them."""
    n, sys.argv = int(sys.argv[1]), sys.argv[2:]
    import torch._dynamo  # what each rank would import for itself, when it makes its optimizer at the latest
    import torch.distributed  # noqa: F401

    begin_by_s = time.monotonic() + AFTER_WITHIN_S
    while not all(map(os.path.exists, awaited())) and time.monotonic() < begin_by_s:
        time.sleep(0.05)
    if pids := fork_ranks(n):
        os._exit(wait_for(pids))
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
