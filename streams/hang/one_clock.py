"""Processes of all hosts on one clock: who left first is told by times of several hosts.

Hosts that nobody has set the clocks of are seconds apart, and a rank that fails for a peer does so within tenths of a
second. How far the clocks are apart is known from calls (`streams.rounds.clocks`): of small ones to microseconds, and
of any other to what they take, which is enough here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pacehound.model.events import ProcessState
from streams.watching.moment import Moment


def on_one_clock(processes: Mapping[int, ProcessState], moment: Moment) -> tuple[dict[int, ProcessState], int]:
    """The same processes by rank, those that have left with times of the common clock, and up to when all were heard.

    Time goes on when all hosts have come to it by their own clocks: who is ahead comes there first.

    >>> import numpy as np
    >>> from streams.rounds.clocks import ClockOffsets
    >>> two = {rank: ProcessState(rank=rank, pid=1, state="exited", since_ns=5_000) for rank in (0, 1)}
    >>> clocks = ClockOffsets(np.array([0, 1]), np.array([0.0, 3_000.0]), np.array([1.0, 1.0]), np.array([0, 1]))
    >>> moment = Moment(now_ns=9_000, rough_clocks=lambda: clocks, host_of={0: "a", 1: "b"})
    >>> moved, until_ns = on_one_clock(two, moment)
    >>> [process.since_ns for process in moved.values()], until_ns
    ([5000, 2000], 6000)

    """
    if len(set(moment.host_of.values())) < 2:
        return dict(processes), moment.now_ns
    clocks = moment.rough_clocks()
    left = [rank for rank, process in processes.items() if process.state == "exited"]
    moved = {
        rank: replace(processes[rank], since_ns=processes[rank].since_ns - ahead_ns)
        for rank, ahead_ns in zip(left, clocks.of(left).tolist(), strict=True)
        if ahead_ns
    }
    return {**processes, **moved}, moment.now_ns - round(float(clocks.offset_ns.max(initial=0.0)))
