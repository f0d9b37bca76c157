"""A job under `pacehound run` whose head is asked again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pacehound.errors import InvalidInput, Unavailable
from pacehound.runtime.head.client import live_owner


class AskedJob:
    """What its head knows, asked from here: a command a second would take the processors that the ranks need."""

    store: Path

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Rows of a statement; none while the head cannot answer it."""
        owner = live_owner(self.store)
        try:
            return [] if owner is None else owner[1].rows(sql)
        except (Unavailable, InvalidInput):
            return []

    def steps(self) -> int:
        """Iterations that the store has heard of."""
        found = self.rows("SELECT max(step) AS step FROM iterations")
        return int(found[0]["step"] or 0) if found else 0
