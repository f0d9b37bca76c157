"""Hosts whose clocks nobody has set: who left first is known by calls, and that the clocks are apart is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pacehound.model.events import Finding
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import ExitRank, SlowCompute
from simulator.job import simulate
from simulator.spec import JobSpec
from streams.scoring.whole_job import findings_of_job

JOB = JobSpec(layout=Layout(tp=2, dp=4, pp=2), iterations=300, seed=3)
"""On two hosts."""

KILLED = ExitRank(rank=1, step=200, signal=9, peers_fail_after_s=0.05)
LEFT = ExitRank(rank=9, step=200, exit_code=1, peers_fail_after_s=0.05)
SLOW = SlowCompute(ranks=(9,), factor=1.6, from_step=200)
AHEAD_MS = (-5_000.0, -300.0, 0.0, 300.0, 5_000.0)
"""Of the second host."""


def finding(fault: ExitRank | SlowCompute, ahead_ms: float) -> Finding:
    spec = replace(JOB, faults=(fault,), clock_offsets_ms=(0.0, ahead_ms))
    found = findings_of_job(simulate(spec).events(), Settings())
    return found[-1]


@pytest.mark.parametrize("ahead_ms", AHEAD_MS)
def test_who_left_first_is_named_however_the_clocks_stand(ahead_ms: float) -> None:
    found = finding(KILLED, ahead_ms)
    assert (found.kind, found.verdict, found.culprits, found.candidates) == ("exit", "culprit", (1,), ())
    found = finding(LEFT, ahead_ms)
    assert (found.kind, found.verdict, found.culprits, found.candidates) == ("exit", "suspected", (9,), ())


@pytest.mark.parametrize("ahead_ms", AHEAD_MS)
def test_clocks_that_are_apart_are_told_of(ahead_ms: float) -> None:
    hosts = "host0 and host1" if ahead_ms > 0 else "host1 and host0"
    found = finding(SLOW, ahead_ms)
    assert (found.kind, found.verdict, found.culprits) == ("slow", "culprit", (9,))
    told = [words for words in found.unseen if "clocks" in words]
    how = "what happened on several hosts is put in order by calls"
    apart_s = abs(ahead_ms) / 1_000
    assert told == ([f"the clocks of hosts {hosts} are {apart_s:.1f} s apart: {how}"] if ahead_ms else [])
