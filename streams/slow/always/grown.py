"""Ranks and links that become slow while the level is learnt and whom no peers tell: held against the first iterations.

The only rank of a stage cannot be told from its stage's work by others, of two halves none is the slow one, and a
communicator may be the only one of its kind. What they did before tells: where the iterations have become longer for
good, and a rank's own time or a transfer has grown by as much, it is suspected. No more than that, for the few
iterations before it are no level; and where nobody is, it is told that they have become longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pacehound.model.evidence import merged
from pacehound.model.evidence.levels import Level
from streams.rounds.round_columns import TransferKey
from streams.slow.always.found import AlwaysSlow
from streams.slow.always.links import transfers_ns
from streams.slow.always.peers import Parts
from streams.slow.attribution.attribute import attribute
from streams.slow.attribution.crowds import weighed_by_crowd
from streams.slow.attribution.observations import Observations, members_of
from streams.slow.attribution.records import IterationRecord, columns_of, mean_step_time_s
from streams.slow.long_iterations import typical_s
from streams.slow.thresholds import ATTRIBUTED_ITERATIONS, BEYOND_MIDDLE


def grown(
    records: Sequence[IterationRecord],
    first: int,
    keys: Mapping[TransferKey, int],
    parts: Parts,
    observed: Observations,
    min_change: float,
) -> AlwaysSlow | None:
    """What makes the iterations from the `first` on longer than those before by `min_change`.

    Nothing where too few came before, where the longer ones are not clear of them, where more work would be the
    answer, or where the machine may be or has yet to be read. `keys` as in `attribute`.
    """
    quiet, slow = records[1:first], records[first:]
    if len(quiet) < ATTRIBUTED_ITERATIONS or mean_step_time_s(slow) <= mean_step_time_s(quiet):
        return None
    before_s, after_s = typical_s(quiet), typical_s(slow)
    if after_s < (1.0 + min_change) * before_s:
        return None
    magnitude, onset_ns, ranks = after_s / before_s - 1.0, slow[0].time_ns, slow[-1].ranks
    found = attribute(slow, quiet, keys, observed, onset_ns)
    found = weighed_by_crowd(found, ranks.tolist(), onset_ns, magnitude, observed)
    if found.kind != "slow" or found.awaits_processors or found.may_be_the_machine:
        return None
    is_clear = _is_clear(*(np.array([record.step_time_s for record in some]) for some in (quiet, slow)))
    if not is_clear and found.cause == "S2":
        is_clear = _transfers_are_clear(quiet, slow, found.candidates, keys, observed)
    if not is_clear:
        return None
    level = Level(before_s=before_s, after_s=after_s, since_step=slow[0].step)
    few = f"what was usual before: the {len(quiet)} iterations before it are few"
    cost_ns = 1e9 * (after_s - before_s)
    level_ns, own_before_ns = cost_ns, dict[int, float]()
    if found.culprits:
        at = np.flatnonzero(np.isin(ranks, found.culprits))
        is_alone = all(len(parts.of_part(int(number))) == 1 for number in parts.part[at])
        if is_alone:
            few += ", and no other rank does the same work"
        else:
            few += ", and others of the same work do not tell which of them is slow"
        own_ns, usual_ns = (np.median(columns_of(some, "own_ns", ranks[at]), axis=0) for some in (slow, quiet))
        level_ns = float((own_ns - usual_ns).mean())
        own_before_ns = dict(zip(ranks[at].tolist(), usual_ns.tolist(), strict=True))
    found = replace(
        found,
        verdict="suspected" if found.culprits or found.links else "unknown",
        evidence=merged((level,), found.evidence),
        unseen=(*found.unseen, few),
    )
    return AlwaysSlow(found, cost_ns, level_ns, own_before_ns=own_before_ns, before_ns=1e9 * before_s)


def _transfers_are_clear(
    quiet: Sequence[IterationRecord],
    slow: Sequence[IterationRecord],
    members: Sequence[int],
    keys: Mapping[TransferKey, int],
    observed: Observations,
) -> bool:
    """Those among these ranks, whatever pauses make iterations longer."""
    numbers = [number for key, number in keys.items() if set(members_of(key, observed)) == set(members)]
    return bool(numbers) and _is_clear(
        *(transfers_ns(some, len(keys))[:, numbers].sum(axis=1) for some in (quiet, slow))
    )


def _is_clear(before: npt.NDArray[np.float64], since: npt.NDArray[np.float64]) -> bool:
    """Nearly all of both lie on their side of the middle between them."""
    middle = 0.5 * (np.median(before) + np.median(since))
    return bool(min(np.mean(before < middle), np.mean(since > middle)) >= BEYOND_MIDDLE)
