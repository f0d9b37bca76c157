"""A training script whose ranks have lost one: again and again the others ask which plan to go on with. No torch.

    python asking_script.py FOLDER RANKS WITHIN_S

Question N is asked once FOLDER/ask.N is there, by all but the last rank; each writes what it goes on with to
FOLDER/RANK.N: the ticket of what was ordered, 0 where it decides by itself, -1 where that was recommended.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from pacehound import trainer


def about(number: int, n_ranks: int) -> dict[str, object]:
    """Replicas without stages; each question is another one."""
    return {
        "stages": [[8]] * n_ranks,
        "batches": [4] * n_ranks,
        "holders": [[rank] for rank in range(n_ranks - 1)] + [[None]],
        "lost": [n_ranks - 1],
        "layer": {"forward_s": 0.01 * (number + 1), "parameter_bytes": 1e6},
    }


def rank_main(folder: Path, n_ranks: int, within_s: float) -> None:
    rank = int(os.environ["RANK"])
    control = trainer.connect("anything")
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    step = 0
    for number in range(10**9):
        while not (folder / f"ask.{number}").exists():
            control.at_step(step)
            step += 1
            time.sleep(0.01)
        found = control.recovery(range(n_ranks - 1), about(number, n_ranks), within_s=within_s)
        used = 0 if found is None else found.ticket if found.is_ordered else -1
        (folder / f"{rank}.new").write_text(str(used))
        (folder / f"{rank}.new").rename(folder / f"{rank}.{number}")


def main(folder: Path, n_ranks: int, within_s: float) -> None:
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(folder), str(n_ranks), str(within_s)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(n_ranks)},
        )
        for rank in range(n_ranks - 1)
    ]
    for process in ranks:
        process.wait()


if __name__ == "__main__":
    what = main if "RANK" not in os.environ else rank_main
    what(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
