"""Who gives way lowers itself, and nobody who happens to share its session."""

from __future__ import annotations

import subprocess
import sys

GIVES_WAY = "import os; from pacehound.runtime.priority import give_way; give_way(7)"
TELLS_ITS_GROUP = """
import os
if os.path.exists("/proc/self/autogroup"):
    print(open("/proc/self/autogroup").read().split()[-1])
"""
BESIDE_OTHERS = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {GIVES_WAY!r}], check=True)
{TELLS_ITS_GROUP}
"""


def of_a_session(program: str) -> list[str]:
    """What a process that leads one prints."""
    run = subprocess.run(
        [sys.executable, "-c", program], start_new_session=True, stdout=subprocess.PIPE, text=True, check=True
    )
    return run.stdout.split()


def test_a_process_gives_way() -> None:
    (niceness,) = of_a_session(f"{GIVES_WAY}; print(os.nice(0))")
    (before,) = of_a_session("import os; print(os.nice(0))")
    assert int(niceness) == min(int(before) + 7, 19)


def test_a_session_that_others_share_is_left_as_it_is() -> None:
    assert of_a_session(BESIDE_OTHERS) in (["0"], [])  # nothing, where the kernel has no such groups


def test_a_session_of_its_own_gives_way_with_it() -> None:
    assert of_a_session(f"{GIVES_WAY}\n{TELLS_ITS_GROUP}") in (["7"], [])
