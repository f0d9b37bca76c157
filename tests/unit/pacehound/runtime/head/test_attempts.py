"""Which attempt a run is: the same for all hosts of a run, another one for the next run."""

from __future__ import annotations

import json

import pytest
from head_parts import MemoryStore, parts, sample, topology

from pacehound.clock import ManualClock
from pacehound.errors import InvalidEvent
from pacehound.model import codec
from pacehound.model.believed import MAX_ATTEMPT
from pacehound.runtime.head.attempts import (
    FILE_NAME,
    MAX_JOBS,
    OWN_SILENCE_S,
    SILENCE_S,
    Answer,
    Attempts,
    AttemptsFile,
    Question,
    attempt_by_time,
    next_attempt,
)
from pacehound.runtime.head.node import Head
from pacehound.settings import Settings


def asked(book, now_s, host="a", stored=None, job="j"):
    return book.attempt_for(job, host, now_s, stored).attempt


def speaks(book, now_s, *hosts, attempt=0, closed=False, job="j", have_met=False):
    return [book.heard(job, attempt, host, closed=closed, now_s=now_s, have_met=have_met) for host in hosts]


def test_hosts_that_start_hours_apart_agree_while_nothing_has_been_heard():
    book = Attempts()
    assert [asked(book, now_s, host) for now_s, host in ((0.0, "a"), (300.0, "b"), (9_000.0, "c"))] == [0, 0, 0]


def test_a_late_host_of_a_run_that_goes_on_gets_the_same():
    book = Attempts()
    asked(book, 0.0)
    for second in range(100):
        speaks(book, float(second), "a")
    assert asked(book, 100.0, "b") == 0


def test_the_next_run_is_above_all_that_was_stored():
    assert asked(Attempts(), 0.0, stored=4) == 5
    assert asked(Attempts(), 0.0, stored=0) == 1


def test_asking_again_before_anything_was_heard_changes_nothing():
    """A request whose answer was lost is asked again; a head started again in between answers the same."""
    book = Attempts()
    assert [asked(book, 0.0, stored=2), asked(book, 1.0, stored=2), asked(Attempts(), 2.0, stored=2)] == [3, 3, 3]


def test_a_run_is_over_when_all_its_hosts_have_said_so():
    book = Attempts()
    asked(book, 0.0)
    speaks(book, 10.0, "a", "b")
    speaks(book, 20.0, "a", closed=True)
    assert asked(book, 20.0, "late") == 0
    speaks(book, 21.0, "b", closed=True)
    assert asked(book, 21.0, "c", stored=0) == 1


def test_the_first_host_to_end_begins_the_next_run_and_the_others_follow_whatever_the_order():
    book = Attempts()
    asked(book, 0.0)
    speaks(book, 10.0, "a", "b")
    speaks(book, 20.0, "a", closed=True)
    assert asked(book, 20.5, "a") == 1
    assert speaks(book, 20.6, "b") == [False]  # the end of the first run
    speaks(book, 20.7, "b", closed=True)
    assert asked(book, 21.0, "b") == 1
    speaks(book, 22.0, "a", "b", attempt=1)
    assert asked(book, 22.5, "c") == 1


def test_elastic_restarts_belong_to_their_run_and_the_next_run_is_above_them():
    book = Attempts()
    asked(book, 0.0)
    speaks(book, 10.0, "a", "b")
    speaks(book, 20.0, "a", closed=True)  # the former attempt of the same run is over on this host …
    assert speaks(book, 20.0, "a", attempt=1) == [True]  # … and the next one is there
    assert asked(book, 20.1, "a") == 1
    speaks(book, 21.0, "b", closed=True)
    speaks(book, 21.0, "b", attempt=1)
    assert asked(book, 22.0, "new") == 1  # its torchrun counts restarts from 0, the job is in its attempt 1
    speaks(book, 30.0, "a", "b", attempt=1, closed=True)
    assert asked(book, 31.0, stored=1) == 2


def test_who_comes_when_the_ranks_have_met_is_of_the_attempt_that_begins_with_it():
    """torchrun starts the ranks of all hosts again, and the launcher of the new one has asked before they begin."""
    book = Attempts()
    asked(book, 0.0)
    speaks(book, 10.0, "a")
    assert asked(book, 10.0, "b") == 0  # nobody has met yet: they are started one after the other
    speaks(book, 20.0, "a", "b", have_met=True)
    assert [asked(book, 30.0, host) for host in ("new", "new", "other")] == [1, 1, 1]
    assert [asked(book, 30.0, host) for host in ("a", "")] == [0, 0]  # a launcher for each rank asks of its own
    speaks(book, 31.0, "a", attempt=1)
    assert asked(book, 31.0, "third") == 1
    speaks(book, 32.0, "a", "new", attempt=1, have_met=True)
    assert book.attempt_for("j", "third", 33.0, stored=1) == Answer(2, live=1)


def test_a_late_word_of_a_closed_host_does_not_open_the_run_again():
    book = Attempts()
    speaks(book, 1.0, "a")
    speaks(book, 2.0, "a", closed=True)
    speaks(book, 3.0, "a")
    assert asked(book, 4.0) == 1


def test_a_host_that_lost_its_run_without_a_word_begins_a_new_one():
    """Killed with everything of ours: a container that ran out of memory and was started again."""
    book = Attempts()
    asked(book, 0.0)
    speaks(book, 10.0, "a", "b")
    speaks(book, 10.0 + OWN_SILENCE_S, "b")
    assert asked(book, 10.0 + OWN_SILENCE_S) == 0
    assert asked(book, 10.5 + OWN_SILENCE_S) == 1


def test_a_requeue_on_other_hosts_is_a_new_run_once_the_former_ones_are_silent():
    book = Attempts()
    speaks(book, 10.0, "a", "b")
    assert asked(book, 10.0 + SILENCE_S, "c") == 0
    assert asked(book, 10.5 + SILENCE_S, "c", stored=0) == 1


def test_a_run_that_asked_nobody_is_known_by_what_it_says():
    """After a new start of the head, and of launchers that got no answer in time."""
    book = Attempts()
    speaks(book, 1.0, "a", attempt=3)
    assert asked(book, 2.0, "b", stored=3) == 3


def test_jobs_do_not_disturb_each_other_and_are_forgotten_in_the_end():
    book = Attempts()
    speaks(book, 0.0, "a", closed=True)
    for number in range(MAX_JOBS):
        assert asked(book, 1.0, job=f"job-{number}") == 0
    assert len(book._runs) == MAX_JOBS
    assert asked(book, 2.0, stored=0) == 1  # the store still knows it


def test_who_cannot_ask_a_head_reads_what_was_noted(tmp_path):
    assert next_attempt(tmp_path, "j") == 0
    file = AttemptsFile(tmp_path / FILE_NAME)
    file.note("j", 2)
    file.note("j", 1)
    AttemptsFile(tmp_path / FILE_NAME).note("other", 0)
    assert [next_attempt(tmp_path, job) for job in ("j", "other", "unknown")] == [3, 1, 0]
    for number in range(MAX_JOBS):
        file.note(f"job-{number}", 0)
    assert len(json.loads((tmp_path / FILE_NAME).read_bytes())) == MAX_JOBS


@pytest.mark.parametrize("content", [b"", b"{", b'{"j": "x"}', b"[]"])
def test_a_damaged_note_counts_as_none(tmp_path, content):
    (tmp_path / FILE_NAME).write_bytes(content)
    assert next_attempt(tmp_path, "j") == 0
    AttemptsFile(tmp_path / FILE_NAME).note("j", 0)
    assert next_attempt(tmp_path, "j") == 1


def test_a_note_that_cannot_be_written_costs_nothing_else(tmp_path):
    (tmp_path / "file").write_text("in the way")
    AttemptsFile(tmp_path / "file" / FILE_NAME).note("j", 0)
    assert next_attempt(tmp_path / "file", "j") == 0


def test_nobody_claims_the_last_attempt_of_a_job():
    """Nothing would be left to count its next runs with."""
    head = Head(settings=Settings(), parts=parts(), clock=ManualClock(1_800_000_000 * 10**9))
    now = attempt_by_time(1_800_000_000)
    claimed = [2, now, now + 86_401, MAX_ATTEMPT]
    receipt = head.ingest(b"".join(codec.encode(sample(attempt=attempt)) for attempt in claimed))
    assert (receipt.accepted, receipt.rejected) == (2, 2)
    assert "InvalidEvent: attempt is 222249601; today it must be in 0..222249600" in receipt.reason
    with pytest.raises(InvalidEvent):
        head.publish([sample(attempt=MAX_ATTEMPT)])
    assert head.attempt_for(Question(job="j", host="h")).attempt == now
    head.publish([sample(attempt=now, closed=True)])
    assert head.attempt_for(Question(job="j", host="h")).attempt == now + 1


def test_the_head_counts_runs_by_what_arrives_and_what_is_stored(tmp_path):
    store = MemoryStore()
    clock = ManualClock(0)
    file = AttemptsFile(tmp_path / FILE_NAME)
    head = Head(settings=Settings(), parts=parts(store), clock=clock, attempts_file=file)
    question = Question(job="j", host="h")
    assert head.attempt_for(question) == Answer(0)
    head.publish([topology(), sample()])
    assert (head.attempt_for(question), next_attempt(tmp_path, "j")) == (Answer(0), 1)
    assert head.attempt_for(Question(job="j", host="another")) == Answer(1, live=0), "the ranks have met without it"
    head.publish([sample(closed=True, why="job ended")])
    assert head.attempt_for(question) == Answer(1)
    head.start()
    assert head.settle(5.0)
    assert head.stop()
    later = Head(settings=Settings(), parts=parts(store), clock=clock)
    assert later.attempt_for(question) == Answer(1)
