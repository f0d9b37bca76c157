"""How an agent learns that its `pacehound run` is gone without a word (kill -9)."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from pacehound.launcher.run_dir import write_ended
from pacehound.runtime.head.interrupted import WATCHING_INTERRUPTED


def hold(descriptor: int, run_dir: Path) -> threading.Thread:
    """Write `ended.json` when the other end of the pipe closes, unless the run has written it already.

    The command may well go on; nobody looks after its watch any more, so the watch ends in good order.
    """

    def wait() -> None:
        try:
            while os.read(descriptor, 1):
                pass
            if run_dir.exists():
                write_ended(run_dir, exit_code=None, signal_number=None, why=WATCHING_INTERRUPTED)
        except OSError:
            return

    thread = threading.Thread(target=wait, name="lifeline", daemon=True)
    thread.start()
    return thread
