"""From iterations to a verdict: who is asked first, and what is left when nobody is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pacehound.model.evidence.computing import NobodyApart
from streams.rounds.round_columns import TransferKey
from streams.slow.attribution.growth import growth_of
from streams.slow.attribution.links import slow_transfers, stands_out
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.ranks import late_launch, slow_ranks
from streams.slow.attribution.records import IterationRecord, mean_step_time_s
from streams.slow.attribution.shortages import weighed_by_shortages
from streams.slow.attribution.verdict import Attribution
from streams.slow.attribution.work import change_of_work, nobody_apart
from streams.slow.thresholds import ATTRIBUTED_ITERATIONS, MIN_EXPLAINED, MIN_SLOW_ITERATIONS, MIN_TRANSFER_SHARE


def attribute(
    slow: Sequence[IterationRecord],
    quiet: Sequence[IterationRecord],
    keys: Mapping[TransferKey, int],
    observed: Observations,
    onset_ns: int,
) -> Attribution:
    """Say whose delay it is: O(N) array work over the ranks for a fixed number of iterations.

    `keys` numbers, in ascending order, the communicators and pairs in `transfer_ns`. The slow iterations may be the
    last ones of many: what hosts read every few seconds counts since `onset_ns`, when the first one ended.
    """
    found = _whose(slow, quiet, keys, observed, onset_ns)
    if not slow or not quiet:
        return found
    magnitude = mean_step_time_s(slow) / mean_step_time_s(quiet) - 1.0
    return weighed_by_shortages(found, slow[-1].ranks.tolist(), onset_ns, magnitude, observed)


def _whose(
    slow: Sequence[IterationRecord],
    quiet: Sequence[IterationRecord],
    keys: Mapping[TransferKey, int],
    observed: Observations,
    onset_ns: int,
) -> Attribution:
    """What the calls tell."""
    if len(slow) < MIN_SLOW_ITERATIONS or len(quiet) < ATTRIBUTED_ITERATIONS:
        return Attribution("slow", "unknown", None, unseen=("too few iterations to compare",))
    total_ns = 1e9 * (mean_step_time_s(slow) - mean_step_time_s(quiet))
    if total_ns <= 0:
        return Attribution("slow", "unknown", None, unseen=("the slow iterations take no longer than before",))
    if not any(r.sees_transfers for r in slow):
        return late_launch(slow, quiet, total_ns)
    growth = growth_of(slow, quiet, keys, total_ns)
    named = slow_transfers(slow, growth, keys, observed, onset_ns)
    computing = slow_ranks(slow, quiet, growth, named, keys, observed)
    if computing is not None:
        return computing
    work = change_of_work(slow, quiet)
    if work:
        return Attribution("change", "unknown", None, evidence=(work, NobodyApart(growth="is work")))
    if named is None or named.growth < MIN_TRANSFER_SHARE * growth.total:
        return nobody_apart(slow, quiet, growth)
    if named.links and named.growth < MIN_EXPLAINED * growth.total and not stands_out(named, growth, keys, observed):
        others = NobodyApart(growth="is of other links")
        return Attribution("slow", "unknown", None, evidence=(*named.evidence[:1], others), unseen=named.unseen)
    if named.links:
        is_sure = named.is_sure and named.growth >= MIN_EXPLAINED * growth.total
        verdict: Literal["culprit", "suspected"] = "culprit" if is_sure else "suspected"
        return Attribution(
            "slow", verdict, "S2", (), named.candidates, named.links, evidence=named.evidence, unseen=named.unseen
        )
    return Attribution(
        "slow",
        "unknown",
        None if named.is_late else "S2",
        candidates=named.candidates,
        evidence=named.evidence,
        unseen=named.unseen,
    )
