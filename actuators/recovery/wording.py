"""A priced plan in a few words, as the reasons of decisions name it."""

from __future__ import annotations

from actuators.recovery.policy import Option


def option_words(option: Option, before: float) -> str:
    """Its layout, its share of the throughput of before (samples/s), and what it takes to get there."""
    plan = option.state.plan
    lengths = sorted({len(stages) for stages in plan.stages})
    pp = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]}-{lengths[-1]}"
    moved = option.restoration.moved_bytes if option.restoration else 0.0
    return (
        f"{plan.kind} DP {plan.dp} x PP {pp} ({option.estimate.throughput / before:.1%} of the throughput before, "
        f"{option.downtime_s:.1f} s down, {moved / 1e9:.1f} GB moved)"
    )
