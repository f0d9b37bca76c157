"""A training script for test_trainer_orders.py: it takes orders, and writes at which steps it got them. No torch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from pacehound import trainer

STEP_S = 0.02


def rank_main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    control = trainer.connect("microbatches", can=lambda order: len(order.payload) == 3 or "not a number for each rank")
    with (folder / f"{rank}.applied").open("w") as file:
        (folder / f"{rank}.pid").write_text(str(os.getpid()))
        for step in range(10**9):
            order = control.at_step(step)
            if order is not None:
                file.write(f"{step} {order.kind} {order.payload[rank]}\n")
                file.flush()
            (folder / f"{rank}.step").write_text(str(step))
            time.sleep(STEP_S)


def main(folder: Path, n_ranks: int) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder)], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(n_ranks)}
        )
        for rank in range(n_ranks)
    ]
    for process in ranks:
        process.wait()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        rank_main(Path(sys.argv[1]))
