"""Python stacks by py-spy, where it is installed: read from the process' memory while it goes on.

Native frames would need the process to be stopped for as long as its symbols take to load, so they are not asked for;
the kernel's view says what the innermost Python frame waits in.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from pacehound.errors import Unavailable
from pacehound.model.json_documents import UNREADABLE_JSON

MAX_FRAMES = 64
MAX_NAME = 200
TIME_LIMIT_S = 5.0
_TRIES = 3
"""A stack that changes while it is read may make no sense."""
_PACKAGES = re.compile(r".*/(?:site-packages|dist-packages|lib/python3\.\d+)/")


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0


class _Thread(msgspec.Struct):
    thread_name: str | None = None
    os_thread_id: int | None = None
    frames: list[_Frame] = []


def find() -> str | None:
    """Where py-spy is: beside this interpreter, or on the path."""
    beside = str(Path(sys.executable).parent)
    return shutil.which("py-spy", path=os.pathsep.join((beside, os.environ.get("PATH", os.defpath))))


def main_thread(program: str, pid: int, time_limit_s: float = TIME_LIMIT_S) -> tuple[str, ...]:
    """The frames of a process' main thread, innermost first.

    Raises
    ------
    Unavailable
        It cannot be read: not allowed, gone, no Python, or not within the time.

    """
    reason = ""
    for _ in range(_TRIES):
        try:
            done = subprocess.run(
                [program, "dump", "--pid", str(pid), "--nonblocking", "--json"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=time_limit_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"py-spy cannot read process {pid}: {error}") from error
        if done.returncode == 0:
            try:
                return parse(done.stdout, pid)
            except UNREADABLE_JSON as error:
                reason = str(error)
        else:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            reason = lines[0][:200] if lines else f"exit status {done.returncode}"
    raise Unavailable(f"py-spy cannot read process {pid}: {reason}")


def parse(output: bytes, pid: int) -> tuple[str, ...]:
    """The main thread's frames in what `py-spy dump --json` prints.

    Raises
    ------
    msgspec.DecodeError
        It is not what py-spy prints.

    """
    threads = msgspec.json.decode(output, type=list[_Thread])
    main = next((t for t in threads if t.os_thread_id == pid), None)
    main = main or next((t for t in threads if t.thread_name == "MainThread"), None)
    frames = main.frames if main is not None else []
    return tuple(
        f"{frame.name[-MAX_NAME:]} ({_place(frame.filename)[-MAX_NAME:]}:{frame.line})" for frame in frames[:MAX_FRAMES]
    )


def _place(filename: str) -> str:
    """A file's path from its package on.

    >>> _place("/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py")
    'torch/utils/data/dataloader.py'
    """
    return _PACKAGES.sub("", filename)
