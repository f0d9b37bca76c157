"""Ids, partitions, layouts, clocks and routes: the small pure functions that every process must compute alike."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.clock import ClockPair, ManualClock, SystemClock
from pacehound.model import topics
from pacehound.model.events import DeadLetter, HostSample, Tick
from pacehound.model.identity import attempt_mark, communicator_id, digest, event_id, round_trace_id
from pacehound.model.routing import host_stream, route
from pacehound.model.topology import Layout, ring_edges

PART = st.none() | st.integers(-(2**40), 2**40) | st.text(max_size=8) | st.lists(st.integers(0, 99), max_size=3)


def test_ids_are_those_of_the_first_release():
    """Stored ids must be found again: a change here is a change of every store."""
    assert event_id("finding", "job-1", 0) == "0ccb65cd003afb133082dbe6dd2848ca"
    assert communicator_id("job-1", 0, "default_pg", [1, 0], 0) == "73d63b0013cd4c1b9e2d1901307963bf"
    assert topics.partition_of(b"a communicator", 32) == 16


@given(st.lists(PART, max_size=4), st.lists(PART, max_size=4))
def test_different_parts_have_different_digests(one, other):
    assert (digest(*one) == digest(*other)) == (one == other)


def test_a_float_takes_no_part_in_an_id():
    with pytest.raises(TypeError, match=r"a float \(0\.5\)"):
        digest("x", 0.5)


def test_all_members_name_a_communicator_alike_and_reinitialising_names_another():
    assert communicator_id("j", 0, "0", [0, 1], 0) == communicator_id("j", 0, "0", (1, 0), 0)
    ids = {communicator_id("j", a, n, r, g) for a in (0, 1) for n in "01" for r in ([0, 1], [0, 2]) for g in (0, 1)}
    assert len(ids) == 16


def test_a_round_is_a_trace_id_and_a_pair_is_counted_apart():
    assert len(round_trace_id("c", 0)) == len(round_trace_id("abcdef", 0)) == 16
    assert round_trace_id("abcdef", 0) != round_trace_id("abcdee", 0)
    assert (
        len(
            {round_trace_id("c", 0), round_trace_id("c", 1), round_trace_id("c", 0, 1, 2), round_trace_id("c", 0, 2, 1)}
        )
        == 4
    )


@given(st.binary(max_size=40), st.integers(1, 64))
def test_a_partition_exists(key, partitions):
    assert 0 <= topics.partition_of(key, partitions) < partitions


def test_keys_spread_over_all_partitions():
    used = {topics.partition_of(f"communicator {i}".encode(), 32) for i in range(1000)}
    assert used == set(range(32))


def test_a_topic_without_partitions_is_refused():
    with pytest.raises(ValueError, match="at least one partition"):
        topics.partition_of(b"k", 0)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_the_groups_of_each_kind_partition_the_world(tp, dp, pp):
    layout = Layout(tp=tp, dp=dp, pp=pp)
    for kind, size in (("tp", tp), ("dp", dp), ("pp", pp)):
        groups = list(layout.groups(kind))
        assert {len(group) for group in groups} == {size}
        assert sorted(rank for group in groups for rank in group) == list(range(layout.world_size))
    assert all(layout.rank(*layout.position(rank)) == rank for rank in range(layout.world_size))


def test_a_layout_refuses_what_it_does_not_have():
    with pytest.raises(ValueError, match="tp=0"):
        Layout(tp=0)
    with pytest.raises(ValueError, match="rank 8 is outside the world of 8"):
        Layout(dp=8).position(8)
    with pytest.raises(ValueError, match="unknown kind of group 'ep'"):
        list(Layout().groups("ep"))


def test_a_ring_comes_back_to_its_start_and_one_rank_has_no_link():
    assert ring_edges((1, 2)) == [(1, 2), (2, 1)]
    assert ring_edges((1,)) == []


def test_events_of_one_stream_share_a_key():
    sample = HostSample(job="j", attempt=0, time_ns=1, host="h", processes=())
    assert route(sample) == (topics.HOSTS, "host:j/h")
    assert route(Tick(job="j", attempt=0, time_ns=1, stream=host_stream("j", "h"))) == route(sample)
    assert route(Tick(job="j", attempt=0, time_ns=1, stream="c")) == (topics.CALLS, "c")
    letter = DeadLetter(source_topic="calls", partition=0, offset=1, time_ns=2, error="E", reason="r", payload=b"x")
    assert route(letter) == (topics.DEAD_LETTERS, "calls")


def test_a_manual_clock_moves_forward_only():
    clock = ManualClock(time_ns=1_000)
    clock.advance_s(1.5)
    assert (clock.now_ns(), clock.monotonic_s()) == (1_500_001_000, 1.500001)
    with pytest.raises(ValueError, match=r"moved back by 1\.0 s"):
        clock.advance_s(-1.0)


def test_a_clock_pair_maps_monotonic_to_unix_time():
    pair = ClockPair.read()
    mapped_ns = pair.to_unix_ns(time.monotonic_ns())
    assert abs(mapped_ns - SystemClock().now_ns()) < 1_000_000_000
    assert SystemClock().monotonic_s() <= SystemClock().monotonic_s()


def test_marks_of_attempts_differ() -> None:
    assert len({attempt_mark(attempt) for attempt in range(1_000)}) == 1_000
