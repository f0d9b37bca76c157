"""Ticks are for silence alone: never early, never while somebody catches up, one per period."""

import copy

from head_parts import open_stream
from hypothesis import given
from hypothesis import strategies as st

from pacehound.runtime.silence import Silence

OPEN = {"c": open_stream("j")}


def silence(grace_s=0.0):
    return Silence(started_s=0.0, silent_after_s=5.0, every_s=1.0, grace_s=grace_s)


def test_a_stream_is_due_only_once_it_was_silent_for_longer_than_lateness():
    subject = silence()
    subject.heard("c", "j", "h", lag_s=0.0, now_s=10.0)
    assert subject.due(OPEN, 15.0) == []
    assert subject.due(OPEN, 15.1) == ["c"]


def test_a_silent_stream_gets_one_tick_per_period_until_it_is_heard_again():
    subject = silence()
    subject.heard("c", "j", "h", lag_s=0.0, now_s=0.0)
    ticked = [now / 10 for now in range(60, 90) if subject.due(OPEN, now / 10)]
    assert ticked == [6.0, 7.0, 8.0]
    subject.heard("c", "j", "h", lag_s=0.0, now_s=9.0)
    assert subject.due(OPEN, 10.0) == []


def test_one_silent_host_is_enough_however_much_the_others_talk():
    subject = silence()
    streams = {"c": open_stream("j", "a", "b")}
    subject.heard("c", "j", "b", lag_s=0.0, now_s=0.0)
    for now_s in range(10):
        subject.heard("c", "j", "a", lag_s=0.0, now_s=float(now_s))
    assert subject.due(streams, 9.0) == ["c"]


def test_a_host_that_has_not_introduced_itself_is_waited_for_as_long():
    subject = silence()
    streams = {"c": open_stream("j", "a", is_complete=False)}
    assert subject.due(streams, 0.0) == []
    subject.heard("c", "j", "a", lag_s=0.0, now_s=5.5)
    assert subject.due(streams, 5.6) == ["c"]


def test_a_head_that_has_just_started_ticks_nobody():
    subject = silence(grace_s=10.0)
    subject.heard("c", "j", "h", lag_s=0.0, now_s=1.0)
    assert subject.due(OPEN, 9.9) == []
    assert subject.due(OPEN, 10.0) == ["c"]


def test_while_a_job_catches_up_its_quiet_streams_are_queued_and_not_silent():
    """One stream arrives a minute late; the other one of the job gets no tick, that of another job does."""
    subject = silence()
    streams = {"behind": open_stream("j"), "quiet": open_stream("j"), "other": open_stream("k")}
    for name, stream in streams.items():
        subject.heard(name, stream.job, "h", lag_s=0.0, now_s=0.0)
    subject.heard("behind", "j", "h", lag_s=60.0, now_s=9.0)
    assert subject.due(streams, 10.0) == ["other"]
    assert "quiet" in subject.due(streams, 15.0)


def test_a_host_whose_clock_is_wrong_is_not_for_ever_behind():
    subject = silence()
    streams = {"talks": open_stream("j", "skewed"), "quiet": open_stream("j")}
    subject.heard("quiet", "j", "h", lag_s=0.0, now_s=0.0)
    for now_s in range(10):
        subject.heard("talks", "j", "skewed", lag_s=3600.0, now_s=float(now_s))
    assert subject.due(streams, 9.0) == ["quiet"]


def test_a_stream_never_heard_counts_from_when_it_was_first_seen_open():
    subject = silence()
    assert subject.due(OPEN, 100.0) == []
    assert subject.due(OPEN, 105.5) == ["c"]


def test_state_is_bounded_by_the_open_streams():
    subject = silence()
    for number in range(1000):
        subject.heard(f"c{number}", f"j{number}", "h", lag_s=0.0, now_s=0.0)
        subject.heard(f"c{number}", f"j{number}", "h", lag_s=99.0, now_s=0.0)
    for now_s in (60.0, 61.0):
        subject.due({}, now_s)
    assert not subject._heard_s
    assert not subject._ticked_s
    assert not subject._least_lag_s
    assert not subject._behind_until_s


def test_a_host_that_may_be_quiet_may_still_be_when_something_else_was_heard_of_it():
    """Its sample says that there may be none for a minute; what its cards are like says nothing of that."""
    subject, streams = silence(), {"host": open_stream("j")}
    subject.heard("host", "j", "h", lag_s=0.0, now_s=20.0, quiet_s=60.0)
    subject.heard("host", "j", "h", lag_s=0.0, now_s=25.0, quiet_s=None)
    assert subject.due(streams, now_s=80.0) == []
    subject.heard("host", "j", "h", lag_s=0.0, now_s=81.0, quiet_s=None)
    assert subject.due(streams, now_s=86.0) == []
    assert subject.due(streams, now_s=86.5) == ["host"]
    subject.heard("host", "j", "h", lag_s=0.0, now_s=90.0, quiet_s=60.0)
    subject.heard("host", "j", "h", lag_s=0.0, now_s=91.0, quiet_s=0.0)
    assert subject.due(streams, now_s=97.0) == ["host"], "it has said that it says more again"


HEARD = st.tuples(
    st.sampled_from(["c", "d"]),
    st.sampled_from(["h", "i"]),
    st.sampled_from([0.0, 0.5, 60.0]),
    st.sampled_from([0.0, 4.0]),
)


@given(
    st.lists(st.tuples(HEARD, st.floats(0.0, 8.0)), max_size=12), st.sampled_from([0.0, 10.0]), st.floats(0.01, 0.99)
)
def test_who_sleeps_as_long_as_it_says_misses_no_tick(heard, grace_s, share):
    """Whatever was heard, and whenever somebody asks before that time is over, nothing is due."""
    subject, streams = silence(grace_s), {"c": open_stream("j", "h", "i"), "d": open_stream("k", is_complete=False)}
    now_s = 0.0
    for (name, host, lag_s, quiet_s), later_s in heard:
        now_s += later_s
        subject.due(streams, now_s)
        wait_s = subject.may_wait_s(streams, now_s)
        assert copy.deepcopy(subject).due(streams, now_s + share * wait_s) == [] or wait_s == 0.01
        subject.heard(name, streams[name].job, host, lag_s=lag_s, now_s=now_s, quiet_s=quiet_s)
    for _ in range(3):
        subject.due(streams, now_s)
        now_s += subject.may_wait_s(streams, now_s) + 0.001
        assert subject.due(streams, now_s), "nor does it wake for nothing"


def test_where_no_stream_is_open_nothing_is_waited_for():
    assert silence().may_wait_s({}, 5.0) == float("inf")
