"""Ranks that become slow while the level is learnt and whom no peers tell: held against their own first iterations.

The only rank of a stage cannot be told from its stage's work by others, and of two halves none is the slow one. What
they did before tells: where the iterations have become longer for good, and a rank's own time has grown by as much, it
is suspected. No more than that, for the few iterations before it are no level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pacehound.model.evidence import merged
from pacehound.model.evidence.levels import Level
from streams.rounds.round_columns import TransferKey
from streams.slow.always.found import AlwaysSlow
from streams.slow.always.peers import Parts
from streams.slow.attribution.attribute import attribute
from streams.slow.attribution.crowds import weighed_by_crowd
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.records import IterationRecord, columns_of
from streams.slow.long_iterations import typical_s
from streams.slow.thresholds import BEYOND_MIDDLE


def grown_ranks(
    records: Sequence[IterationRecord],
    first: int,
    keys: Mapping[TransferKey, int],
    parts: Parts,
    observed: Observations,
    min_change: float,
) -> AlwaysSlow | None:
    """Those whose own time makes the iterations from the `first` on longer than those before by `min_change`.

    Nothing where too few came before, where the longer ones are not clear of them, where more work would be the
    answer, or where the machine may be or has yet to be read. `keys` as in `attribute`.
    """
    quiet, slow = records[1:first], records[first:]
    before_s, after_s = typical_s(quiet), typical_s(slow)
    if after_s < (1.0 + min_change) * before_s or not _is_clear(quiet, slow):
        return None
    magnitude, onset_ns, ranks = after_s / before_s - 1.0, slow[0].time_ns, slow[-1].ranks
    found = attribute(slow, quiet, keys, observed, onset_ns)
    found = weighed_by_crowd(found, ranks.tolist(), onset_ns, magnitude, observed)
    at = np.flatnonzero(np.isin(ranks, found.culprits))
    if not len(at) or found.awaits_processors:
        return None
    own_ns, usual_ns = columns_of(slow, "own_ns", ranks[at]), np.median(columns_of(quiet, "own_ns", ranks[at]), axis=0)
    level = Level(before_s=before_s, after_s=after_s, since_step=slow[0].step)
    is_alone = all(len(parts.of_part(int(number))) == 1 for number in parts.part[at])
    few = f"what was usual before: the {len(quiet)} iterations before it are few, and " + (
        "no other rank does the same work" if is_alone else "others of the same work do not tell which of them is slow"
    )
    found = replace(found, verdict="suspected", evidence=merged((level,), found.evidence), unseen=(*found.unseen, few))
    return AlwaysSlow(
        found,
        cost_ns=1e9 * (after_s - before_s),
        level_ns=float((np.median(own_ns, axis=0) - usual_ns).mean()),
        own_before_ns=dict(zip(ranks[at].tolist(), usual_ns.tolist(), strict=True)),
    )


def _is_clear(quiet: Sequence[IterationRecord], slow: Sequence[IterationRecord]) -> bool:
    """Nearly all of both lie on their side of the middle between them."""
    middle_s = 0.5 * (typical_s(quiet) + typical_s(slow))
    below = np.mean([record.step_time_s < middle_s for record in quiet])
    above = np.mean([record.step_time_s > middle_s for record in slow])
    return bool(min(below, above) >= BEYOND_MIDDLE)
