"""What an agent has seen of its run, and what became of it: its last word to `pacehound run`, in `watched.json`.

And what it says before, in `why_unseen`, where it sees nothing and knows why.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from pacehound.model.json_documents import UNREADABLE_JSON

WATCHED_FILE = "watched.json"
WHY_UNSEEN_FILE = "why_unseen"


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """One host's part of a run.

    Attributes
    ----------
    ranks, calls, iterations
        Ranks that made a call, all their calls, and the optimizer steps of the rank that made most.
    lost_calls
        Written and never read, or dropped while the receiver was away.
    refused
        Messages and records that the receiver will never take.
    sent, unsent
        Messages that it has taken, and that still wait.
    is_saved
        What waits is on disk.
    receiver_said
        Why the receiver does not take messages; empty while it does.
    went_on
        Ranks that were still there when the command had ended.

    """

    ranks: int = 0
    calls: int = 0
    iterations: int = 0
    lost_calls: int = 0
    refused: int = 0
    sent: int = 0
    unsent: int = 0
    is_saved: bool = True
    receiver_said: str = ""
    went_on: int = 0


def write_watched(run_dir: Path, watched: Watched) -> None:
    """Wholly or not at all; where even that fails, the run says that it does not know."""
    scratch = run_dir / f"{WATCHED_FILE}.new"
    try:
        scratch.write_bytes(msgspec.json.encode(watched))
        scratch.replace(run_dir / WATCHED_FILE)
    except OSError:
        with contextlib.suppress(OSError):
            scratch.unlink()


def read_watched(run_dir: Path) -> Watched | None:
    """`None` where no agent has said anything."""
    try:
        return msgspec.json.decode((run_dir / WATCHED_FILE).read_bytes(), type=Watched)
    except (OSError, *UNREADABLE_JSON):
        return None


def write_why_unseen(run_dir: Path, reason: str) -> None:
    """Why nothing is seen of a process of the run; empty where that does not hold any more."""
    with contextlib.suppress(OSError):
        (run_dir / WHY_UNSEEN_FILE).write_text(reason, encoding="utf-8")


def read_why_unseen(run_dir: Path) -> str:
    """Empty where no agent has said anything."""
    try:
        return (run_dir / WHY_UNSEEN_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
