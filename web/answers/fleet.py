"""All jobs together: hosts that come back, and what was lost to what."""

from __future__ import annotations

from typing import Any

from web.source import Source


def fleet(source: Source) -> dict[str, Any]:
    """Hosts and ranks named again and again; rank-hours lost per week and cause."""
    return {
        "now_ns": source.now_ns(),
        "hosts": source.rows("repeat_offenders"),
        "losses": [{**row, "week": str(row["week"])} for row in source.rows("page/losses")],
    }
