"""A worker does not ask the kernel again for what it has just given back."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TURNS, COLUMNS, COLUMN_BYTES = 50, 16, 1 << 20

MADE_AND_FREED = f"""
import resource, sys
import numpy as np
from streams.kafka.kept_memory import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
def turn():
    return [np.ones({COLUMN_BYTES}, np.int8) for _ in range({COLUMNS})]
turn()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({TURNS}):
    turn()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_asked_for(how: str) -> int:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", MADE_AND_FREED, how], env=env, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif("glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or ""), reason="another C library")
def test_columns_that_are_made_and_freed_again_take_pages_that_are_there() -> None:
    of_a_turn = COLUMNS * COLUMN_BYTES // os.sysconf("SC_PAGE_SIZE")
    assert pages_asked_for("given back") > TURNS * of_a_turn // 2
    assert pages_asked_for("kept") < of_a_turn
