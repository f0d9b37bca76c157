"""Health is said of what was seen, and of nothing else."""

from __future__ import annotations

from dataclasses import replace

from pacehound.pages.seen import Seen, not_watched, words

NOTHING = Seen(jobs=0, hosts=0, ranks=0, calls=0, lost_calls=0, iterations=0)
SEEN = Seen(jobs=1, hosts=1, ranks=4, calls=100, lost_calls=0, iterations=5)


def test_a_job_that_the_store_does_not_know_is_not_healthy() -> None:
    assert words(NOTHING, "typo", (), has_incidents=False) == [
        "not watched: nothing of job typo has reached this store"
    ]
    assert not_watched(NOTHING, None) == "nothing of any job has reached this store"


def test_a_job_of_which_no_call_was_seen_is_not_healthy() -> None:
    silent = replace(NOTHING, jobs=1, hosts=1)
    assert words(silent, "j", (), has_incidents=False) == ["not watched: no collective call of job j was seen"]


def test_where_not_everything_was_kept_no_health_is_said() -> None:
    lines = words(SEEN, "j", ("3 messages are not stored, 825 tries to write failed",), has_incidents=False)
    assert not any("no incident" in line for line in lines)
    assert lines[-1] == "the head says: 3 messages are not stored, 825 tries to write failed"


def test_what_was_lost_is_said_beside_incidents_too() -> None:
    lines = words(replace(SEEN, lost_calls=7), "j", (), has_incidents=True)
    assert lines == ["lost before they could be read or sent: 7 calls"]
