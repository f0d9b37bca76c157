"""When the iterations of a host have ended, as far as its rings tell."""

from __future__ import annotations

import numpy as np

from collector.agent.seen import Seen
from collector.calls import rings


def header(attempt: int = 0) -> rings.RingHeader:
    return rings.RingHeader(
        capacity=64,
        pid=1,
        tid=1,
        process_start_ticks=0,
        rank=0,
        local_rank=0,
        world_size=2,
        attempt=attempt,
        created_ns=0,
    )


def steps(rank: int, *times_ns: int, first: int = 0) -> rings.Records:
    records = np.zeros(len(times_ns), rings.MARKER_BODY)
    records["step"] = first + np.arange(len(times_ns))
    records["kind"], records["rank"], records["time_ns"] = rings.MARKER, rank, times_ns
    return records.view(rings.RAW)


def test_an_iteration_has_ended_when_the_rank_that_made_fewest_has_ended_it() -> None:
    seen = Seen()
    assert seen.ended_iterations == (0, None)
    seen.take(header(), steps(0, 10, 20, 30), 0)
    seen.take(header(), steps(1, 12, 25), 0)
    assert seen.ended_iterations == (2, 25)
    seen.take(header(), steps(1, 34, first=2), 0)
    assert seen.ended_iterations == (3, 34), "the last of those that have made as many"
    seen.take(header(attempt=1), steps(0, 90), 0)
    assert seen.ended_iterations == (1, 90)


def test_who_goes_on_from_an_agent_that_noted_no_time_knows_none() -> None:
    seen = Seen(steps={"0.0": 7, "0.1": 8})
    assert seen.ended_iterations == (7, None)
    seen.take(header(), steps(0, 50, first=7), 0)
    assert seen.ended_iterations == (8, 50)


def test_iterations_that_nobody_marked_count_where_a_later_one_is_marked() -> None:
    """Another optimizer has taken the lead (`IterationEnds`), or a ring was too short."""
    seen = Seen()
    seen.take(header(), steps(0, 10, 20), 0)
    seen.take(header(), steps(0, 300, 310, first=18), 0)
    assert (seen.iterations, seen.ended_iterations) == (20, (20, 310))
