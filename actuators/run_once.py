"""Runs one command of a site, once: a small process that outlives whoever has asked for it.

python run_once.py FOLDER

FOLDER has `command`: the words, and after how many seconds it is ended, as JSON. `begun` is written before the command
is run, `ended` with its exit status after it, and `said` is what it printed. `lock` is held from before `begun` until
after `ended`: who finds `begun`, and neither `ended` nor the lock held, knows that this process was ended before the
command was. Only the standard library is imported, since a head waits for it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

COMMAND, BEGUN, ENDED, SAID, LOCK = "command", "begun", "ended", "said", "lock"

NOT_RUN = 127
"""As a shell says where there is no such command."""
TOO_LONG = 124
"""As `timeout` says."""


def write_durably(path: Path, text: str) -> None:
    """Whole or not at all, and still there after the machine has lost its power."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    with made.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    made.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def run_once(folder: Path) -> None:
    """Run the command of `folder`, unless somebody has begun to; whoever comes second waits for the first."""
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / BEGUN).exists():
            return
        command = json.loads((folder / COMMAND).read_text(encoding="utf-8"))
        write_durably(folder / BEGUN, str(os.getpid()))
        with (folder / SAID).open("wb") as said:
            try:
                process = subprocess.Popen(
                    command["words"], stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
                )
            except OSError as error:
                said.write(f"{command['words'][0]}: {error.strerror}".encode())
                status = NOT_RUN
            else:
                status = _ended(process, command["within_s"])
        write_durably(folder / ENDED, str(status))


def _ended(process: subprocess.Popen[bytes], within_s: float) -> int:
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return TOO_LONG


if __name__ == "__main__":
    run_once(Path(sys.argv[1]))
