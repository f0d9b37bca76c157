"""How long it takes to say who it was: by number of ranks, and what following the rounds costs until then."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from pacehound.model.calls import OP_CODE, Sees
from pacehound.model.events import OpenCall, Progress, RankProgress, Topology
from pacehound.model.rounds import Rounds
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from streams.hang.hang_watch import HangWatch
from streams.rounds.clocks import ClockOffsets, HostClocks
from streams.rounds.round_columns import RoundColumns, TransferKey
from streams.rounds.round_table import RoundTable
from streams.slow.attribution.attribute import attribute
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.records import IterationRecord
from streams.slow.critical_path import RoundIndex, Stretch
from streams.slow.rates import RateTracker
from streams.slow.slow_rounds import SlowRounds
from streams.slow.transfer_times import TransferTracker
from streams.watching.moment import Moment

LAYOUTS = (Layout(tp=2, dp=4, pp=2), Layout(tp=8, dp=64, pp=8), Layout(tp=8, dp=256, pp=8))
REPEATS = 7
RANKS_PER_HOST = 8
TP_CALLS, PAIR_CALLS, DP_CALLS = 8, 4, 2
STEP_NS = 200_000_000
GAP_NS, CALL_NS = 10_000_000, 2_000_000
BASE_NS = 1_790_000_000_000_000_000
QUIET, SLOW = 100, 100


def run() -> list[dict[str, Any]]:
    """One row per world size and figure, and how times grow with the ranks."""
    measured = [row for layout in LAYOUTS for row in _of_layout(layout)]
    rows = list(measured)
    for figure in ("locate a slow rank", "locate a hang"):
        _, first, last = (row["value"] for row in measured if row["figure"] == figure)
        exponent = math.log(last / first) / math.log(16_384 / 4_096)
        rows.append({"case": "growth, 4,096 to 16,384", "figure": figure, "value": exponent, "unit": "exponent"})
    return rows


def _of_layout(layout: Layout) -> list[dict[str, Any]]:
    ranks = layout.world_size
    blocks = list(one_iteration(layout))
    n_rounds = sum(len(block) for block in blocks)
    stretch = Stretch(np.arange(ranks), np.full(ranks, BASE_NS), np.full(ranks, BASE_NS + STEP_NS))
    offsets = _clocks(ranks)

    def arranged() -> RoundIndex:
        return RoundIndex(RoundColumns.of(blocks), offsets)

    index = arranged()
    slow, quiet, keys = _records(index, stretch)
    observed = Observations(communicators={b.communicator: (b.communicator, b.ranks) for b in blocks}, outliers=list)
    if attribute(slow, quiet, keys, observed, slow[0].time_ns).culprits != (ranks - 1,):
        raise RuntimeError("the slow rank was not found: its time would say nothing")
    look, fresh = _hang(layout)
    if not look(fresh()):
        raise RuntimeError("the hang was not found: its time would say nothing")
    figures = {
        "locate a slow rank": (1e3 * _seconds(lambda: attribute(slow, quiet, keys, observed, slow[0].time_ns)), "ms"),
        "locate a hang": (1e3 * _seconds(look, fresh), "ms"),
        "arrange the rounds of an iteration": (
            1e3 * _seconds(arranged),
            "ms",
        ),
        "measure an iteration (own times, transfers, critical path)": (
            1e3 * _seconds(lambda: index.measured([stretch])),
            "ms",
        ),
        "follow a round (clocks, transfers, windows)": (1e6 * _following(blocks) / n_rounds, "us/round"),
        "rounds per iteration": (float(n_rounds), "rounds"),
    }
    case = f"{ranks:,} ranks"
    return [{"case": case, "figure": figure, "value": value, "unit": unit} for figure, (value, unit) in figures.items()]


def one_iteration(layout: Layout) -> Iterator[Rounds]:
    """The rounds of one iteration: every rank computes and calls in turn, the last rank is late to everything."""
    late = layout.world_size - 1
    for kind, n_calls in (("tp", TP_CALLS), ("dp", DP_CALLS)):
        for number, group in enumerate(layout.groups(kind)):
            yield _block(f"{kind}{number}", group, n_calls, late, first=0 if kind == "tp" else TP_CALLS)
    for group in layout.groups("pp"):
        for pair in pairwise(group):
            yield _block("pp", pair, PAIR_CALLS, late, first=TP_CALLS + DP_CALLS, is_pair=True)
    world = tuple(range(layout.world_size))
    yield _block("world", world, 1, late, first=TP_CALLS + DP_CALLS + PAIR_CALLS, size_bytes=8)


def _block(
    communicator: str,
    ranks: tuple[int, ...],
    n: int,
    late: int,
    *,
    first: int,
    is_pair: bool = False,
    size_bytes: int = 1 << 20,
) -> Rounds:
    begin = BASE_NS + (first + np.arange(n))[:, None] * GAP_NS + np.zeros(len(ranks), np.int64)
    start = begin + np.where(np.array(ranks) == late, CALL_NS // 2, 0)
    return Rounds(
        job="bench", attempt=0, communicator=communicator, source="bench", sees=Sees.ALL, is_pair=is_pair, ranks=ranks,
        seq=np.arange(n), op=np.full(n, OP_CODE["send" if is_pair else "all_reduce"], np.int8),
        size_bytes=np.full(n, size_bytes), arrival_ns=start, start_ns=start, end_ns=begin + CALL_NS,
    )  # fmt: skip


def _clocks(ranks: int) -> ClockOffsets:
    n_hosts = -(-ranks // RANKS_PER_HOST)
    host = np.arange(ranks) // RANKS_PER_HOST
    rng = np.random.default_rng(0)
    return ClockOffsets(np.arange(ranks), np.zeros(ranks), np.full(n_hosts, 1e4)[host] * rng.random(), host)


def _records(
    index: RoundIndex, stretch: Stretch
) -> tuple[list[IterationRecord], list[IterationRecord], dict[TransferKey, int]]:
    """Slow and quiet iterations: the measured one, and one rank whose own time has grown."""
    rng = np.random.default_rng(0)
    measured = index.measured([stretch])
    charges = measured.charges[0]
    keys = {key: number for number, key in enumerate(index.keys)}
    culprit = int(stretch.ranks[-1])

    def record(step: int, extra_ns: float) -> IterationRecord:
        own_ns = (measured.own_ns[0] * np.exp(0.01 * rng.standard_normal(len(stretch.ranks)))).astype(np.float32)
        own_ns[-1] += extra_ns
        charged = dict(charges.ranks)
        charged[culprit] = charged.get(culprit, 0) + round(extra_ns)
        return IterationRecord(
            step=step, time_ns=BASE_NS + step * STEP_NS, step_time_s=(STEP_NS + extra_ns) / 1e9, ranks=stretch.ranks,
            charges=type(charges)(charged, charges.transfers), own_ns=own_ns, own_most_ns=own_ns.copy(),
            transfer_ns=measured.transfers_ns[0].astype(np.float32), n_rounds=measured.n_rounds[0],
            size_bytes=measured.size_bytes[0],
        )  # fmt: skip

    slow = [record(QUIET + step, 0.4 * STEP_NS) for step in range(SLOW)]
    return slow, [record(step, 0.0) for step in range(QUIET)], keys


def _hang(layout: Layout) -> tuple[Callable[[HangWatch], object], Callable[[], HangWatch]]:
    """A rank that never enters a call: its tensor-parallel peers wait for it, and everybody else for these.

    What one look costs, and how to make a fresh watch for it.
    """
    world, now_ns = layout.world_size, BASE_NS + 3_600_000_000_000
    everybody = tuple(range(world))
    groups = list(layout.groups("tp"))

    def fresh() -> HangWatch:
        watch = HangWatch("bench", 0, Settings.load({}, []).hang)
        open_tp = OpenCall(seq=7, op="all_reduce", count=1, dtype="float32", launch_ns=BASE_NS)
        open_world = OpenCall(seq=3, op="all_reduce", count=2, dtype="float32", launch_ns=BASE_NS)
        for number, group in enumerate(groups):
            is_late = world - 1 in group
            for name, members, open_call in (
                ("world", everybody, None if is_late else open_world),
                (f"tp{number}", group, open_tp if is_late else None),
            ):
                _announce(watch, name, members, group, open_call, now_ns, late=world - 1)
        return watch

    def look(watch: HangWatch) -> object:
        return watch.on_tick(Moment(now_ns=now_ns, step=10, step_time_s=0.2, n_iterations=100))

    return look, fresh


def _announce(
    watch: HangWatch,
    name: str,
    members: tuple[int, ...],
    here: tuple[int, ...],
    open_call: OpenCall | None,
    now_ns: int,
    *,
    late: int,
) -> None:
    """A host says who is in a communicator and how far its ranks are: in `open_call`, all but the late one."""
    host = f"host{here[0] // RANKS_PER_HOST}"
    watch.hear(
        Topology(
            job="bench", attempt=0, time_ns=BASE_NS, host=host, communicator=name, name=name,
            is_world=name == "world", members=members, host_ranks=here, world_size=late + 1,
        ),
        None,
    )  # fmt: skip
    done = 6 if name != "world" else 2
    progress = tuple(
        RankProgress(rank=rank, last_launched=done, last_completed=done)
        if open_call is None or rank == late
        else RankProgress(rank=rank, last_launched=open_call.seq, last_completed=done, open=(open_call,))
        for rank in here
    )
    # It was said once when they entered, and again an hour later: nothing has moved since.
    for time_ns in (BASE_NS, now_ns):
        watch.hear(Progress(job="bench", attempt=0, time_ns=time_ns, host=host, communicator=name, ranks=progress), 10)


def _following(blocks: list[Rounds]) -> float:
    """Seconds for everything that takes in each round of an iteration."""

    def follow() -> None:
        followers = (HostClocks().add, TransferTracker().add, RateTracker().add, SlowRounds("bench", 0).on_rounds)
        arrived = RoundTable(blocks)
        for add in followers:
            add(arrived)

    return _seconds(follow)


def _seconds(work: Callable[..., object], fresh: Callable[[], object] | None = None) -> float:
    """The shortest of some repeats, on the CPU's clock; `fresh` makes what it works on, outside of the time."""
    times = []
    for _ in range(REPEATS):
        given = () if fresh is None else (fresh(),)
        before_s = time.process_time()
        work(*given)
        times.append(time.process_time() - before_s)
    return min(times)
