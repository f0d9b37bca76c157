"""All jobs together: hosts that come back, and what was lost to what."""

from __future__ import annotations

from typing import Any

from web.source import Source


def fleet(source: Source) -> dict[str, Any]:
    """Hosts and ranks named again and again; rank-hours lost per week and cause."""
    now_ns = source.now_ns()
    whole = {"since_ns": 0, "until_ns": now_ns + 1}
    return {
        "now_ns": now_ns,
        "hosts": source.rows("fleet/hosts", **whole),
        "losses": [{**row, "week": str(row["week"])} for row in source.rows("fleet/losses", **whole)],
    }
