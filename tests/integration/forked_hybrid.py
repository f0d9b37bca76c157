"""examples/train_hybrid.py with nodes that are forks: torch is imported once, and not by every node for itself.

python forked_hybrid.py ARGUMENTS OF THE EXAMPLE
"""

from __future__ import annotations

import multiprocessing
import runpy
import subprocess
import sys
from pathlib import Path

import torch.distributed  # noqa: F401  what each node would import for itself

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
START = multiprocessing.get_context("fork")


class ForkedNode:
    """What the example takes for the process that it has started of an interpreter, a script and its arguments."""

    def __init__(self, words: list[str]) -> None:
        self._process = START.Process(target=run, args=(words[1:],))
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout_s: float) -> None:
        self._process.join(timeout_s)

    def kill(self) -> None:
        self._process.kill()


def run(words: list[str]) -> None:
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    sys.path[0] = str(EXAMPLES)
    subprocess.Popen = ForkedNode  # type: ignore[assignment,misc]
    run([str(EXAMPLES / "train_hybrid.py"), *sys.argv[1:]])
