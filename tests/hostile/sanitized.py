"""`python -m tests.hostile.sanitized DOOR INPUTS SEED`: damaged inputs, each access of the loops in C checked.

They are compiled with AddressSanitizer and UndefinedBehaviorSanitizer, whose run-time libraries must be loaded before
Python's: `environment()` says with which variables. What is out of bounds, used after it was given back, or has no
defined value (an index that overflows, a shift too far) ends the process.
"""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
from collections import Counter

from streams import native_loops

SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g", "-O1")


def environment() -> dict[str, str]:
    """What a process needs to load them."""
    libraries = [
        subprocess.run(["cc", f"-print-file-name={name}"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so", "libstdc++.so")
    ]
    # Python keeps much to its end, and our loops allocate nothing.
    return os.environ | {"LD_PRELOAD": " ".join(libraries), "ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"}


def main(name: str, n_inputs: int, seed: int) -> None:
    """Give a door so many inputs."""
    logging.disable(logging.CRITICAL)
    native_loops.FLAGS = (*native_loops.FLAGS, *SANITIZED)
    from tests.hostile.doors import DOORS
    from tests.hostile.readers import READERS

    door, rng = (DOORS | READERS)[name](), random.Random(seed)
    found: Counter[str] = Counter()
    for _ in range(n_inputs):
        found += door.take(door.damaged(rng))
    door.check()
    print(f"{name}: {n_inputs} inputs, {dict(found)}, with {native_loops.path().parent.name}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
