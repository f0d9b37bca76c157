"""A closer look by order: each process times its calls until a moment, the machine is looked at, and 0 ends it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import collector.agent.control_block as at
from collector.agent.holding import Holder
from collector.agent.profiling import Profiling
from pacehound.model.orders import Profile
from tests.fakes.held_ranks import SimulatedRank

NOW_NS = 50_000_000_000


def timing_of(folder: Path, rank: SimulatedRank) -> tuple[int, int]:
    """The request that lies in its control block: which, and until when."""
    block = (folder / f"{rank.process.pid}.control").read_bytes()
    return struct.unpack_from("<q", block, at.TIMING_ID)[0], struct.unpack_from("<q", block, at.TIMING_UNTIL_NS)[0]


def test_it_asks_each_process_and_who_looks_at_the_machine_until_the_time_is_over(tmp_path: Path) -> None:
    ranks = [SimulatedRank(tmp_path, rank) for rank in range(2)]
    looks: list[tuple[int, Sequence[int], str, int]] = []
    holder = Holder(tmp_path)
    asked: list[tuple[int, int]] = []
    profiling = Profiling(holder.block_of, lambda *what: looks.append(what), lambda *what: asked.append(what))
    processes = [rank.process for rank in ranks]
    profiling.begin(Profile(for_ms=10_000), 77, processes, "incident x", NOW_NS)
    assert [timing_of(tmp_path, rank) for rank in ranks] == [(77, NOW_NS + 10_000_000_000)] * 2
    profiling.begin(Profile(for_ms=0), 78, processes, "enough", NOW_NS)
    assert [timing_of(tmp_path, rank)[0] for rank in ranks] == [0, 0]
    assert looks == [(0, [0, 1], "incident x", NOW_NS + 10_000_000_000), (0, [0, 1], "enough", NOW_NS)]
    assert asked == [(NOW_NS + 10_000_000_000, NOW_NS), (NOW_NS, NOW_NS)], "calls behind digests are asked for so long"
    for rank in ranks:
        rank.close()


def test_where_there_is_nobody_or_no_control_block_nothing_is_asked(tmp_path: Path) -> None:
    looks: list[tuple[int, Sequence[int], str, int]] = []
    asked: list[tuple[int, int]] = []
    block_of = Holder(tmp_path).block_of
    profiling = Profiling(block_of, lambda *what: looks.append(what), lambda *what: asked.append(what))
    profiling.begin(Profile(for_ms=10_000), 77, [], "incident x", NOW_NS)
    assert (looks, asked) == ([], [])
    rank = SimulatedRank(tmp_path / "elsewhere", 3)
    profiling.begin(Profile(for_ms=10_000), 77, [rank.process], "incident x", NOW_NS)
    assert [one[1] for one in looks] == [[3]], "the machine is looked at all the same"
    rank.close()
