"""Clock offsets from collective ends: what they recover, and what they know that they do not know."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pacehound.model.calls import Sees
from pacehound.model.events import Topology
from pacehound.model.rounds import Rounds
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.job import JobSpec, simulate
from streams.pipeline import Pipeline
from streams.rounds.clocks import HostClocks
from streams.rounds.round_table import RoundTable
from tests.fakes.events import topology
from tests.fakes.hand_made_rounds import MS, rounds

HOSTS = {"a": (0, 1), "b": (2, 3), "c": (4, 5)}


def announced(host: str, communicator: str = "world", members: tuple[int, ...] = (0, 1, 2, 3, 4, 5)) -> Topology:
    return topology(communicator, members, host=host, host_ranks=tuple(r for r in HOSTS[host] if r in members))


def clocks(*hosts: str) -> HostClocks:
    made = HostClocks()
    for host in hosts or HOSTS:
        made.on_topology(announced(host))
    return made


def barriers(
    n: int, ahead_ms: dict[str, float], *, drift_ms: float = 0.0, first: int = 0, late: dict[int, float] | None = None
) -> Rounds:
    """Small all_reduces a second apart; host `b` drifts by `drift_ms` per round, ranks in `late` notice ends late."""
    spans = []
    for number in range(first, first + n):
        row = []
        for host, ranks in HOSTS.items():
            ahead = ahead_ms[host] + (drift_ms * number if host == "b" else 0.0)
            for rank in ranks:
                noticed = (late or {}).get(rank, 0.0)
                row.append((1000.0 * number + ahead, 1000.0 * number + 1.0 + ahead + noticed))
        spans.append(row)
    return rounds("world", range(6), spans, size_bytes=8)


def test_offsets_of_hosts_come_out_of_the_ends_and_are_known_to_microseconds() -> None:
    followed = clocks()
    followed.add(RoundTable([barriers(20, {"a": 0.0, "b": 50.0, "c": -50.0})]))
    offsets = followed.offsets()
    assert (offsets.of([0, 2, 4]) - offsets.of([0])).tolist() == [0, 50 * MS, -50 * MS]
    assert offsets.uncertainty_between_ns(0, 2) == 0.0
    assert offsets.uncertainty_between_ns(2, 3) == 0.0


def test_a_rank_that_notices_every_end_late_does_not_move_its_host() -> None:
    followed = clocks()
    followed.add(RoundTable([barriers(20, {"a": 0.0, "b": 10.0, "c": 0.0}, late={3: 4.0})]))
    offsets = followed.offsets()
    assert abs(int(offsets.of(2) - offsets.of(0)) - 10 * MS) <= 2 * MS


def test_a_drifting_clock_is_followed_and_its_drift_is_in_the_uncertainty() -> None:
    followed = clocks()
    followed.add(RoundTable([barriers(3000, {"a": 0.0, "b": 0.0, "c": 0.0}, drift_ms=0.05)]))
    offsets = followed.offsets()
    truth_ns = 0.05 * 2999 * MS
    assert abs(int(offsets.of(2) - offsets.of(0)) - truth_ns) <= offsets.uncertainty_between_ns(0, 2)
    assert offsets.uncertainty_between_ns(0, 2) < 5 * MS


def test_a_host_that_is_seen_first_late_has_no_offset_until_it_has_ended_rounds_with_others() -> None:
    followed = clocks("a", "b")
    followed.add(RoundTable([barriers(10, {"a": 0.0, "b": 5.0, "c": 7.0})]))
    assert math.isinf(followed.offsets().uncertainty_between_ns(0, 4))
    followed.on_topology(announced("c"))
    followed.add(RoundTable([barriers(10, {"a": 0.0, "b": 5.0, "c": 7.0}, first=10)]))
    offsets = followed.offsets()
    assert int(offsets.of(4) - offsets.of(0)) == 7 * MS
    assert math.isfinite(offsets.uncertainty_between_ns(0, 4))


def test_hosts_that_share_no_communicator_are_tied_through_one_that_knows_both() -> None:
    followed = HostClocks()
    for host in HOSTS:
        followed.on_topology(announced(host))
    spans = [[(1000.0 * n, 1000.0 * n + 1), (1000.0 * n + 20, 1000.0 * n + 21)] for n in range(10)]
    followed.add(RoundTable([rounds("ab", (0, 2), spans, size_bytes=8)]))
    ahead = [[(s + 20, e + 20), (s - 10, e - 10)] for ((s, e), _) in spans]
    followed.add(RoundTable([rounds("bc", (3, 4), ahead, size_bytes=8)]))
    offsets = followed.offsets()
    assert (offsets.of([2, 4]) - offsets.of(0)).tolist() == [20 * MS, -10 * MS]


@pytest.mark.parametrize(
    ("op", "size_bytes", "sees"),
    [("reduce_scatter", 8, Sees.ALL), ("broadcast", 8, Sees.ALL), ("all_reduce", 1 << 28, Sees.ALL),
     ("all_reduce", 8, Sees.LAUNCH)],
)  # fmt: skip
def test_operations_that_ranks_leave_one_by_one_and_sources_without_ends_say_nothing(
    op: str, size_bytes: int, sees: Sees
) -> None:
    followed = clocks()
    spans = [[(1000.0 * n, 1000.0 * n + 1 + rank) for rank in range(6)] for n in range(10)]
    followed.add(RoundTable([rounds("world", range(6), spans, op=op, size_bytes=size_bytes, sees=sees)]))
    assert math.isinf(followed.offsets().uncertainty_between_ns(0, 2))
    assert followed.offsets().of([0, 2]).tolist() == [0, 0]


def test_offsets_of_a_simulated_job_with_lost_rows() -> None:
    true_ms = (50.0, -50.0, 20.0, 0.0)
    layout = Layout(tp=2, dp=2, pp=4)
    spec = JobSpec(layout=layout, iterations=20, ranks_per_host=4, clock_offsets_ms=true_ms, dropped_fraction=0.05)
    pipeline, followed = Pipeline(Settings()), HostClocks()
    for event in simulate(spec).events():
        if isinstance(event, Topology):
            followed.on_topology(event)
        for out in pipeline.on_event(event):
            if isinstance(out, Rounds):
                followed.add(RoundTable([out]))
    offsets = followed.offsets()
    found_ms = (offsets.of(np.arange(16)) - offsets.of(15)).reshape(4, 4) / MS
    assert found_ms == pytest.approx(np.repeat(np.array(true_ms), 4).reshape(4, 4), abs=0.01)
    assert offsets.uncertainty_ns.max() < 1 * MS
