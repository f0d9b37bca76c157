"""What is said at the end of a run: health only of what was seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pacehound.launcher.summary import summary, why_not_watched
from pacehound.launcher.watch import Outcome
from pacehound.model.events import Cost, Finding, Incident, Instant, VerdictWord
from pacehound.runtime.watched import Watched

SEEN = Watched(ranks=4, calls=1200, iterations=50, sent=9)


def test_no_incident_is_said_of_what_was_seen() -> None:
    assert summary(Outcome(watched=SEEN)) == [
        "no incident in what was seen: 1,200 calls of 4 ranks in 50 iterations on this host"
    ]
    alone = Watched(ranks=1, calls=1, sent=1)
    assert summary(Outcome(watched=alone)) == ["no incident in what was seen: 1 call of 1 rank on this host"]


@pytest.mark.parametrize(
    ("watched", "why"),
    [
        (None, "its agent has left no word of what it saw"),
        (Watched(), "the command made no call of torch.distributed"),
        (Watched(ranks=2), "no collective call of its ranks was seen"),
    ],
)
def test_where_nothing_was_seen_nothing_is_called_healthy(watched: Watched | None, why: str) -> None:
    for sent_to in ("", "http://head:4318"):
        (line,) = summary(Outcome(watched=watched, sent_to=sent_to))
        assert line.startswith(f"not watched: {why}")
    assert why_not_watched(Outcome(watched=watched)).startswith(why)
    assert why_not_watched(Outcome(watched=SEEN)) == ""


def test_why_nothing_was_seen_is_said_where_it_is_known_and_nothing_was() -> None:
    why = "process 7 (python a.py) was begun without the variables"
    assert summary(Outcome(watched=Watched(), why_unseen=why)) == [f"not watched: {why}"]
    assert why_not_watched(Outcome(watched=SEEN, why_unseen=why)) == ""


def test_ranks_in_the_background_are_said_to_be_unwatched_from_then_on() -> None:
    (_, line) = summary(Outcome(watched=msgspec.structs.replace(SEEN, went_on=1)))
    assert line.startswith("1 rank went on when the command had ended")


def an_incident(number: int, *findings: Finding) -> Incident:
    return Incident(
        id=f"i{number}", version=1, job="j", attempt=0, time_ns=9, state="closed", opened_ns=3, closed_ns=9,
        closed_why="job ended", findings=findings, cost=Cost(excess_s=4.1, ranks=8, gpu_hours=0.0092),
    )  # fmt: skip


def a_finding(verdict: VerdictWord, *culprits: int, relief: int | None = None) -> Finding:
    return Finding(
        id=f"f{culprits}", job="j", attempt=0, kind="slow", verdict=verdict, cause="S1", culprits=culprits,
        onset=Instant(step=100, time_ns=1), relief=None if relief is None else Instant(step=relief, time_ns=2),
    )  # fmt: skip


def test_an_incident_is_a_line_that_says_what_is_surest_and_where_the_rest_is() -> None:
    incident = an_incident(1, a_finding("unknown"), a_finding("culprit", 2, relief=200))
    assert summary(Outcome(watched=SEEN, incidents=(incident,)), how_known="pacehound incidents --job j") == [
        "1 incident in 1,200 calls of 4 ranks in 50 iterations on this host",
        "Rank 2 slows the job down: computation (S1) [culprit], step 100 to 200, 4.1 s lost by each of 8 ranks",
        "since when, for whom and how that is known: pacehound incidents --job j",
    ]
    (_, line, _) = summary(Outcome(watched=SEEN, incidents=(an_incident(1, a_finding("suspected", 2)),)), how_known="x")
    assert line.startswith("Probably rank 2 slows the job down: computation (S1) [suspected], step 100 to the end")


def test_a_rank_that_was_slow_and_then_held_everybody_up_is_told_of_as_that() -> None:
    hang = replace(a_finding("suspected", 2), id="h", kind="hang", cause="H1")
    (_, line, _) = summary(
        Outcome(watched=SEEN, incidents=(an_incident(1, a_finding("culprit", 2), hang),)), how_known="x"
    )
    assert line.startswith("Probably rank 2 holds the job up")


def test_who_made_the_others_leave_has_not_left() -> None:
    exit_of = replace(a_finding("suspected", 2), kind="exit", cause="H1")
    (_, line, _) = summary(Outcome(watched=SEEN, incidents=(an_incident(1, exit_of),)), how_known="x")
    assert line.startswith("Probably rank 2 made the job fail: did not enter a call that its peers wait in (H1)")


def test_a_run_ends_in_ten_lines_however_much_was_found() -> None:
    many = tuple(an_incident(number, a_finding("culprit", number)) for number in range(100))
    lines = summary(Outcome(watched=SEEN, incidents=many), how_known="pacehound incidents --job j")
    assert len(lines) <= 10
    assert lines[0].startswith("100 incidents in")
    assert "Rank 99" in lines[-2]


def test_what_the_ranks_could_not_do_is_told() -> None:
    lines = summary(Outcome(watched=Watched(), notes=("instrument switched off in a hook: OSError: no room",)))
    assert lines[1:] == ["in a rank: instrument switched off in a hook: OSError: no room"]


def test_sent_is_said_of_what_has_arrived_alone() -> None:
    """An endpoint that refuses: not `sent to`, but where it is, why, and who sends it."""
    assert summary(Outcome(watched=SEEN, sent_to="http://head:4318")) == [
        "1,200 calls of 4 ranks in 50 iterations on this host, sent to http://head:4318"
    ]
    refusing = Watched(ranks=4, calls=1200, unsent=7, receiver_said="answered 401: check the token")
    outcome = Outcome(watched=refusing, sent_to="http://head:4318", is_complete=False, kept_in=Path("/s/run-1"))
    seen, unsent, _ = summary(outcome)
    assert "sent to" not in seen
    assert unsent == (
        "not sent to http://head:4318 (answered 401: check the token): 7 messages, kept in /s/run-1 for 7 days: "
        "the next `pacehound run` to there sends it along, `pacehound flush --endpoint http://head:4318` at once"
    )
    _, lost, _ = summary(Outcome(watched=refusing, sent_to="http://head:4318", is_complete=False))
    assert lost.endswith("7 messages, lost, for there was no disk to keep them")


def test_what_was_lost_or_refused_is_counted() -> None:
    lines = summary(Outcome(watched=Watched(ranks=4, calls=1200, lost_calls=3000, refused=2)))
    assert lines[1:] == [
        "lost before they could be read or sent: 3,000 records of calls",
        "refused by the receiver for good: 2 messages",
    ]


def test_no_incident_is_not_said_of_a_head_that_is_not_well() -> None:
    """Its store may fail from now on, or its pipeline may have ended: what it says of a job is not the whole of it."""
    lines = summary(Outcome(watched=SEEN, head_problems=("store waits: no space left on device",)))
    assert lines == [
        "1,200 calls of 4 ranks in 50 iterations on this host",
        "in the head: store waits: no space left on device",
    ]


def test_an_unfinished_run_is_not_called_free_of_incidents() -> None:
    lines = summary(Outcome(watched=SEEN, is_complete=False))
    assert not any("no incident" in line for line in lines)
    assert lines[-1] == "not everything that was seen had been processed when the command ended"


@pytest.mark.parametrize(("iterations", "is_said"), [(0, True), (39, True), (40, False), (None, False)])
def test_where_no_slowdown_can_be_found_that_there_is_none_is_not_called_health(
    iterations: int | None, is_said: bool
) -> None:
    lines = summary(Outcome(watched=SEEN, iterations=iterations))
    assert lines[0].startswith("no incident in what was seen")
    assert [line.partition(":")[0] for line in lines[1:]] == ["a slowdown could not be found"] * is_said
