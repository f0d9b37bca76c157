"""Ticks are for silence alone: never early, never while somebody catches up, one per period."""

from pacehound.head.silence import Silence

OPEN = {"c": ("j", 0)}


def silence(grace_s=0.0):
    return Silence(started_s=0.0, silent_after_s=5.0, every_s=1.0, grace_s=grace_s)


def test_a_stream_is_due_only_once_it_was_silent_for_longer_than_lateness():
    subject = silence()
    subject.heard("c", "j", lag_s=0.0, now_s=10.0)
    assert subject.due(OPEN, 15.0) == []
    assert subject.due(OPEN, 15.1) == ["c"]


def test_a_silent_stream_gets_one_tick_per_period_until_it_is_heard_again():
    subject = silence()
    subject.heard("c", "j", lag_s=0.0, now_s=0.0)
    ticked = [now / 10 for now in range(60, 90) if subject.due(OPEN, now / 10)]
    assert ticked == [6.0, 7.0, 8.0]
    subject.heard("c", "j", lag_s=0.0, now_s=9.0)
    assert subject.due(OPEN, 10.0) == []


def test_a_head_that_has_just_started_ticks_nobody():
    subject = silence(grace_s=10.0)
    subject.heard("c", "j", lag_s=0.0, now_s=1.0)
    assert subject.due(OPEN, 9.9) == []
    assert subject.due(OPEN, 10.0) == ["c"]


def test_while_a_job_catches_up_its_quiet_streams_are_queued_and_not_silent():
    """One stream arrives a minute late; the other one of the job gets no tick, that of another job does."""
    subject = silence()
    streams = {"behind": ("j", 0), "quiet": ("j", 0), "other": ("k", 0)}
    for stream, (job, _) in streams.items():
        subject.heard(stream, job, lag_s=0.0, now_s=0.0)
    subject.heard("behind", "j", lag_s=60.0, now_s=9.0)
    assert subject.due(streams, 10.0) == ["other"]
    assert "quiet" in subject.due(streams, 15.0)


def test_a_stream_never_heard_counts_from_when_it_was_first_seen_open():
    subject = silence()
    assert subject.due(OPEN, 100.0) == []
    assert subject.due(OPEN, 105.5) == ["c"]


def test_state_is_bounded_by_the_open_streams():
    subject = silence()
    for number in range(1000):
        subject.heard(f"c{number}", f"j{number}", lag_s=99.0, now_s=0.0)
    subject.due({}, 60.0)
    assert not subject._heard_s
    assert not subject._ticked_s
    assert not subject._behind_until_s
