"""What decides in a validation, each with its unit and reason."""

from __future__ import annotations

SLOW_RATIO = 1.25
"""Times the median of the peers. Falcon takes 1.1 for groups of GPUs that are alone on their device; healthy ranks that
share two processors with others came to 1.41 once in twenty runs, though not in most repetitions
(docs/proofs/0014-validation.md)."""

LINK_SLOW_RATIO = 1.25
"""The same, where a device moves the data."""

CPU_LINK_SLOW_RATIO = 2.0
"""Where processors do: a transfer waits for two processes, and healthy ones came to 1.6 in most repetitions."""

SLOW_SHARE = 0.8
"""Of the repetitions a rank must be slower than its peers by half of that, to be slow and not disturbed for once. Its
fastest must be so, too, beside the fastest of its peers: on a machine whose memory others used, too, the copies of a
healthy rank came to be slower in seven of eight repetitions (2026-11-25), though not in each."""

LEAST_REPETITIONS = 8
"""Fewer prove nothing: with a half chance each, 7 of 8 come by chance in one of thirty runs, 8 of 10 in one of twenty,
and all of it must be by a quarter."""

LEAST_PEERS = 2
"""A rank of two that differ: nobody can tell which is right."""

PEERS_EACH_SIDE = 4
"""Of a rank that is measured without its whole job, in each of its communicators: a median of eight is that of healthy
ones also where two more are slow."""

MOST_TURNS = 8
"""Of the ranks of one machine in a repetition: more would take longer than the budget."""

CPU_SHARE_WINDOW_S = 0.15
"""Longer than the 100 ms in which Linux gives a group its processor time (`cpu.max`, `cpu.cfs_period_us`): in less a
group that was idle before gets all that it wants."""

CPU_WINDOW_S = 0.04
"""Ten pieces of work of some milliseconds: for what is slow in itself and not for want of a processor."""

START_WITHIN_NS = 120_000_000_000
"""Processes beside the ranks load torch and meet each other while the job goes on: seconds, a minute on a host whose
processors the job takes."""

RENEW_EVERY_NS = 2_000_000_000
"""Agents end processes for which nobody has asked for 15 s (collector/agent/measuring.py): six words may be lost."""

RESULT_WITHIN_NS = 10_000_000_000
"""After the budget: what is under way ends, and is judged and told."""

TRANSFERS_SHARE = 0.5
"""Of what is left of the budget, for the transfers that say how fast links are; they are made as small as that takes.
What was sent first, to see how long it takes, may have gone in one burst, faster than what comes after (chosen)."""

BUDGET_S = 20.0
"""For one validation (DESIGN.md 7): ranks may stand still for it, and are let go after it."""

MEASURE_S = 17.0
"""Of that, for what is measured; what is not measured by then is left out. Ranks are gathered before, and the result is
told after. Eight ranks that take turns at two processors were measured in 16.7 s, beside another job (2026-11-25)."""
assert MEASURE_S < BUDGET_S

LEAST_MEASURE_S = 4.0
"""Less is measured where ranks may stand still for a shorter time. Eight repetitions of two computations, by two ranks
that take turns at a processor, take three seconds; nobody is held for less."""
