"""What evidence says, in words."""

from __future__ import annotations

from typing import Any


def words_of(finding: Any) -> tuple[str, ...]:
    """The sentences of a finding's evidence, in its order; of an answer in JSON too."""
    if isinstance(finding, dict):
        return tuple(piece["words"] for piece in finding["evidence"])
    return tuple(piece.words for piece in finding.evidence)
