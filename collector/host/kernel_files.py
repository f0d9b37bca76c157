"""Files of /proc and /sys, which may be gone or closed to us at any moment."""

from __future__ import annotations

from pathlib import Path


def text_of(path: Path) -> str:
    """What stands in a file, without white space around it; empty where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
