"""Why a finding says what it says: each piece has a kind, its numbers with their units, and a sentence made of them.

A file per family: `levels` of iterations, `computing` ranks, `transfers`, `machines`, `waiting` in calls, `leaving`,
`straggling` in simulations, and the `life` of a finding. `wire` writes and reads them.
"""

from pacehound.model.evidence.piece import Evidence, OnlyWords, merged, not_about
from pacehound.model.evidence.wire import KINDS, PARTS, read_json

__all__ = ["KINDS", "PARTS", "Evidence", "OnlyWords", "merged", "not_about", "read_json"]
