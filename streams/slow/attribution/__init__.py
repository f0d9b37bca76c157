"""Who made the iterations of a job longer: slow ones held against quiet ones, rank by rank and link by link.

Two measurements of every iteration, each against its own quiet baseline (Greyhound's and CCL-D's classes S1-S3):

- S1, computation: the rank's *own time* grew (critical_path.py). Waiting is not in it, so that a slow tensor-parallel
  rank is told from its pipeline, and that from its data-parallel groups, wherever they lie.
- S2, communication: the *transfer* of a communicator or pair grew, counted from the latest start: no rank's own time is
  in it. The link is named where a source tells it: a pair, rates (rates.py), or the kernel's
  view of connections (connections.py). Else the members are candidates.
- S3: both, on the same rank and its link.

A name must explain at least half of the growth, in most of the slow iterations. A charge that wanders over ranks, or
follows the bytes, is imbalance: no name.

`attribute` asks in turn: `links` and `ranks`, with `ties` between ranks, and `work` when neither has an answer; the
answer is weighed by `shortages` of processors. They compare the `growth` of what the `records` hold of each iteration,
and what else is known is the `observed`.
"""
