"""A job that is commanded while others are killed; it writes down each of its steps and each order that it applies.

With `together` all ranks add up a number in each step with torch, so that one that stands still holds all of them up,
and take orders where all of them have one; without, each goes for itself and no torch is loaded. What each rank adds up
is known beforehand: whatever was lost, doubled or skipped would show.
"""

from __future__ import annotations

import importlib
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pacehound import trainer

STEP_S = 0.02
AGREE_EVERY = 5
STEP = struct.Struct("<qdd")
"""Which step began, when (monotonic), and what was added up by then."""


def expected(step: int, world_size: int) -> float:
    """What has been added up before a step: integers, so that no order of summation matters.

    >>> expected(3, 2)
    9.0
    """
    whole, rest = divmod(step, 7)
    return float((21 * whole + sum(range(rest))) * (world_size * (world_size + 1) // 2))


def rank_main(folder: Path, *, together: bool) -> None:
    """One rank, until there is a file `stop`."""
    rank = int(os.environ["RANK"])
    torch: Any = None
    dist: Any = None
    if together:
        torch = importlib.import_module("torch")
        dist = importlib.import_module("torch.distributed")
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
    agree = trainer.smallest_over_ranks if together else None
    control = trainer.connect("mark", agree=agree, agree_every=AGREE_EVERY)
    step = 0 if together else _furthest(folder)
    total = 0.0
    with (folder / f"{rank}.steps").open("ab", buffering=0) as steps, (folder / f"{rank}.applied").open("a") as applied:
        (folder / f"{rank}.pid").write_text(str(os.getpid()))
        while True:
            order = control.at_step(step)
            if order is not None:
                applied.write(f"{step} {order.ticket}\n")
                applied.flush()
            steps.write(STEP.pack(step, time.monotonic(), total))
            leaves = float((folder / "stop").exists())
            if together:
                both = torch.tensor([float((rank + 1) * (step % 7)), leaves], dtype=torch.float64)
                dist.all_reduce(both)
                total += float(both[0])
                leaves = float(both[1])
            step += 1
            if leaves:
                break
            time.sleep(STEP_S)
    if together:
        dist.destroy_process_group()


def _furthest(folder: Path) -> int:
    """Where others are: one that is started in the place of a dead one goes on there."""
    found = [0]
    for path in folder.glob("*.steps"):
        whole = path.read_bytes()[-2 * STEP.size :]
        if len(whole) >= STEP.size:
            found.append(STEP.unpack(whole[-STEP.size :])[0])
    return max(found)


def ranks_alone(folder: Path, n_ranks: int) -> None:
    """Ranks without torch; whoever dies is started again."""
    environ = {**os.environ, "WORLD_SIZE": str(n_ranks)}

    def start(rank: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, __file__, str(folder)], env={**environ, "RANK": str(rank)})

    ranks = [start(rank) for rank in range(n_ranks)]
    while not (folder / "stop").exists():
        for rank, process in enumerate(ranks):
            if process.poll() is not None:
                ranks[rank] = start(rank)
        time.sleep(0.1)
    for process in ranks:
        process.wait()


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[2] != "together":
        ranks_alone(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        rank_main(Path(sys.argv[1]), together=len(sys.argv) > 2)
