"""Streams of one job in one order, whatever is sent twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pacehound.model.events import HostSample
from streams.rounds.merge import Merge


def test_an_event_that_was_sent_twice_before_its_turn_comes_twice() -> None:
    """Who takes it knows it by its identity; here it must only not break the order of the others."""
    sample = HostSample(job="j", attempt=0, time_ns=5, host="h", processes=())
    merge: Merge[HostSample] = Merge()
    merge.expect("host:j/h")
    for _ in range(3):
        merge.push("host:j/h", sample)
    merge.advance("host:j/h", 10)
    assert merge.take_events(10) == [sample] * 3


def sample(time_ns: int, host: str) -> HostSample:
    return HostSample(job="j", attempt=0, time_ns=time_ns, host=host, processes=())


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.sampled_from("xyz")), max_size=12), st.booleans()
)
def test_events_come_by_time_stream_and_id_also_after_a_snapshot(
    pushed: list[tuple[int, str, str]], is_restored: bool
) -> None:
    merge: Merge[HostSample] = Merge()
    for time_ns, stream, host in pushed:
        merge.push(stream, sample(time_ns, host))
    if is_restored:
        state, merge = merge.__getstate__(), Merge()
        merge.__setstate__(state)
    ordered = sorted(pushed, key=lambda one: (one[0], one[1], sample(one[0], one[2]).identity()))
    assert [(event.time_ns, event.host) for event in merge.take_events(3)] == [(at, host) for at, _, host in ordered]


def test_a_snapshot_holds_events_with_their_ids_as_workers_of_before_read_them() -> None:
    merge: Merge[HostSample] = Merge()
    event = sample(5, "h")
    merge.push("host:j/h", event)
    assert merge.__getstate__()["_events"] == [(5, "host:j/h", event.identity(), 1, event)]
