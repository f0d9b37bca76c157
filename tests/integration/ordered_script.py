"""A training script that takes orders, and writes at which steps it got them. No torch.

    python ordered_script.py FOLDER RANKS [FIRST WORLD]

It starts so many ranks, from the first one on; where others are on another host, WORLD is how many there are in all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from pacehound import trainer

STEP_S = 0.02
EACH = 8


def rank_main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    control = trainer.connect(
        "microbatches", micro_batches=EACH, can=lambda order: len(order.payload) == 3 or "not a number for each rank"
    )
    with (folder / f"{rank}.applied").open("w") as file:
        (folder / f"{rank}.pid").write_text(str(os.getpid()))
        for step in range(10**9):
            order = control.at_step(step)
            if order is not None:
                file.write(f"{step} {order.kind} {order.payload[rank]}\n")
                file.flush()
            (folder / f"{rank}.step").write_text(str(step))
            time.sleep(STEP_S)


def main(folder: Path, n_ranks: int, first: int = 0, world: int = 0) -> None:
    environ = {**os.environ, "WORLD_SIZE": str(world or n_ranks)}
    ranks = [
        subprocess.Popen([sys.executable, __file__, str(folder)], env={**environ, "RANK": str(rank)})
        for rank in range(first, first + n_ranks)
    ]
    for process in ranks:
        process.wait()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
    else:
        rank_main(Path(sys.argv[1]))
