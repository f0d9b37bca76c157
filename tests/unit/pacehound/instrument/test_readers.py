"""Who may read a rank's stack: the launcher's processes, and nobody else for our doing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pacehound.instrument import readers

YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


@pytest.mark.parametrize("launcher", ["", "none", "-1", "0", str(2**31)])
def test_a_process_that_is_not_above_us_is_not_let_in(launcher: str) -> None:
    assert not readers.allow(launcher)


def test_our_own_child_is_not_above_us() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        assert child.pid not in readers.ancestors(os.getpid())
        assert readers.ancestors(child.pid)[:2] == [os.getpid(), os.getppid()]
        assert not readers.allow(str(child.pid))


def test_the_launcher_is_named_where_the_kernel_asks_for_it() -> None:
    code = "import sys; from pacehound.instrument import readers; print(readers.allow(sys.argv[1]))"
    said = subprocess.run([sys.executable, "-c", code, str(os.getpid())], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(YAMA.exists())
