"""What is held back lets a job's time go on when all of it would, and not before; nothing is lost of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.calls import Sees
from pacehound.model.digests import digests_of
from pacehound.model.events import Watermark
from pacehound.model.rounds import Rounds
from pacehound.settings import Settings
from streams.rounds import held_back
from streams.rounds.held_back import HeldBack
from streams.rounds.merge import CLOSED_NS
from streams.snapshots.schema import state_codec

TICK_NS = 10
COMMUNICATORS = ("a", "b", "c")
HOST = "host:j/h"

RAISES = st.lists(
    st.tuples(st.sampled_from((*COMMUNICATORS, HOST)), st.integers(0, 25), st.booleans()), min_size=1, max_size=60
)


def raised(stream: str, time_ns: int) -> Watermark:
    return Watermark(job="j", attempt=0, time_ns=time_ns, stream=stream)


@given(RAISES)
def test_time_goes_on_in_the_same_ticks_and_each_is_told_once(raises: list[tuple[str, int, bool]]) -> None:
    held = HeldBack(TICK_NS)
    held.expect(COMMUNICATORS)
    true, told = dict.fromkeys(COMMUNICATORS, -1), dict.fromkeys(COMMUNICATORS, -1)
    latest = 0
    for stream, by_ns, is_restored in raises:
        if is_restored:
            codec = state_codec(Settings())
            held = codec.decode(codec.encode(held))
        before = min(told[name] for name in COMMUNICATORS) // TICK_NS
        true[stream] = max(true.get(stream, 0), 0) + by_ns
        latest = max(latest, true[stream])
        heard = held.take([raised(stream, true[stream])])
        assert len({one.stream for one in heard}) == len(heard)
        told |= {one.stream: one.time_ns for one in heard}
        of_all = min(true[name] for name in COMMUNICATORS) // TICK_NS
        assert min(told[name] for name in COMMUNICATORS) // TICK_NS == of_all
        assert bool(heard) == (of_all > before)
        if heard:
            assert told == true


def rounds(source: str) -> Rounds:
    cells = np.ones((1, 2), np.int64)
    return Rounds(
        job="j",
        attempt=0,
        communicator="a",
        source=source,
        sees=Sees.ALL,
        ranks=(0, 1),
        seq=np.array([4], np.int64),
        op=np.zeros(1, np.int8),
        size_bytes=np.zeros(1, np.int64),
        arrival_ns=cells,
        start_ns=cells,
        end_ns=cells,
    )


def test_rounds_of_digests_wait_for_the_watermarks_and_those_of_calls_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldBack(TICK_NS)
    held.expect(["a"])
    calls, digests = rounds("c10d"), rounds(digests_of("c10d"))
    assert held.take([digests, calls]) == [calls]
    codec = state_codec(Settings())
    held = codec.decode(codec.encode(held))
    told = held.take([digests, raised("a", 30)])
    assert [type(one) for one in told] == [Rounds, Rounds, Watermark]
    assert held.take([raised("a", 40)]) == [raised("a", 40)]
    monkeypatch.setattr(held_back, "MAX_ROUNDS", 2)
    assert [len(held.take([digests])) for _ in range(4)] == [0, 0, 3, 0], "no more are kept than that"


def test_what_ends_is_told_at_once_and_no_longer_waited_for() -> None:
    held = HeldBack(TICK_NS)
    held.expect(COMMUNICATORS)
    assert held.take([raised("a", 35), raised(HOST, 31)]) == []
    assert [one.stream for one in held.take([raised("b", CLOSED_NS)])] == ["a", HOST, "b"]
    held.forget(["b", "c"])
    assert [one.time_ns for one in held.take([raised("a", 41)])] == [41]


def test_nothing_is_told_before_a_new_communicator_has_come_to_it() -> None:
    held = HeldBack(TICK_NS)
    held.expect(["a"])
    assert len(held.take([raised("a", 20)])) == 1
    held.expect(["a", "b"])
    assert held.take([raised("a", 60)]) == []
    assert len(held.take([raised("b", 20)])) == 2
