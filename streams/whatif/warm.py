"""Making ready what the analysis calls before somebody waits for it."""

from __future__ import annotations

from streams import native_loops


def warm_up() -> None:
    """Build the loops in C, or load what was built before: a second, once per version."""
    native_loops.loaded()
