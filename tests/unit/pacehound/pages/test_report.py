"""The page of an incident says who, since when, how much, what it costs and how we know, in 80 columns."""

from __future__ import annotations

import io
from dataclasses import replace

from head_parts import an_incident

from pacehound.model.events import Cost, Decision, Finding, Instant
from pacehound.model.evidence import OnlyWords
from pacehound.pages.incidents import (
    cost_words,
    decision_words,
    headline,
    incidents_answer,
    print_incidents,
    ranks_words,
)
from pacehound.pages.measured import measured_words
from pacehound.pages.terminal import terminal

HOUR_NS = 3600 * 10**9
FINDING = Finding(
    id="f",
    job="j",
    attempt=0,
    kind="slow",
    verdict="culprit",
    cause="S1",
    culprits=(2,),
    victims=(0, 1, 3),
    onset=Instant(step=200, time_ns=HOUR_NS),
    detected=Instant(step=214, time_ns=HOUR_NS + 10**9),
    magnitude=0.4,
    pages=True,
    evidence=(
        OnlyWords(
            words="rank 2 arrives last in 97 % of the rounds, 41 ms after the others on average over 14 iterations"
        ),
    ),
    unseen=("device times: gloo runs on the host",),
)
DECISION = Decision(
    job="j",
    attempt=0,
    time_ns=1,
    incident="i1",
    incident_version=3,
    mode="observe",
    action="adjust_microbatches",
    reason="the slow rank computes",
    price_s=30.0,
    loss_s=95.0,
)


def page(*incidents, decisions=()):
    file = io.StringIO()
    print_incidents(terminal(file), incidents, decisions)
    return file.getvalue()


def test_an_open_incident_tells_the_whole_story_in_80_columns():
    text = page(
        an_incident(findings=(FINDING,), cost=Cost(excess_s=95.0, ranks=4, gpu_hours=0.1056)), decisions=[DECISION]
    )
    for said in (
        "OPEN",
        "Rank 2 slows the job down: computation (S1)",
        "step 200, 1970-01-01 01:00:00 UTC (noticed at step 214)",
        "it goes on",
        "an iteration takes 40 % longer",
        "ranks 0-1, 3",
        "95 s lost by each of 4 ranks = 0.11 rank-hours",
        "rank 2 arrives last",
        "device times",
        "adjust microbatches: the slow rank computes",
        "not done",
    ):
        assert said in " ".join(text.split()), said
    assert max(map(len, text.splitlines())) <= 80
    assert not any(line != line.rstrip() for line in text.splitlines())
    assert "\x1b" not in text


def test_nothing_that_is_done_has_no_price_and_what_was_lost_is_told_once():
    waits = replace(DECISION, action="ignore", reason="4 s are less than the 5 s of an action", price_s=0.0, loss_s=4.0)
    assert decision_words(waits) == "ignore: 4 s are less than the 5 s of an action; lost so far 4 s"
    over = replace(waits, reason="it is over: 4.0 s were lost in all", is_last=True)
    assert decision_words(over) == "ignore: it is over: 4.0 s were lost in all"


def test_a_name_that_is_not_certain_is_not_stated_as_one():
    suspected = Finding(id="f", job="j", attempt=0, kind="hang", verdict="suspected", cause="H1", culprits=(5,))
    assert headline(suspected).startswith("Probably rank 5")
    nobody = Finding(id="f", job="j", attempt=0, kind="hang", verdict="unknown", cause=None, candidates=(0, 1))
    assert headline(nobody) == "Something holds the job up"
    assert "one of" in page(an_incident(findings=(nobody,)))


def test_links_are_named_as_links():
    link = Finding(id="f", job="j", attempt=0, kind="slow", verdict="culprit", cause="S2", links=((3, 7),))
    assert headline(link) == "The link between ranks 3 - 7 slows the job down: communication (S2)"


def test_a_closed_incident_says_why_it_closed():
    text = page(an_incident(state="closed", closed_ns=9, closed_why="job killed", findings=(FINDING,)))
    assert "CLOSED (job killed)" in text
    assert "the end of what was seen" in text


def test_text_of_others_cannot_style_the_terminal():
    """Evidence and job names are data, never markup."""
    sly = an_incident(
        job="[red]j[/red]",
        findings=(FINDING.__class__(**{**fields(FINDING), "evidence": (OnlyWords(words="[bold]x"),)}),),
    )
    text = page(sly)
    assert "[red]j[/red]" in text
    assert "[bold]x" in text


def fields(finding):
    return {name: getattr(finding, name) for name in finding.__dataclass_fields__}


def test_many_ranks_are_drawn_together():
    assert ranks_words(range(512)) == "ranks 0-511"
    assert ranks_words(range(0, 64, 2)).endswith("… (32 in all)")


def test_no_cost_is_not_shown_as_zero():
    assert cost_words(Cost()) == ""


def test_the_json_answer_has_the_keys_of_the_design():
    answer = incidents_answer([an_incident(findings=(FINDING,))], [DECISION])
    assert answer["schema"] == 1
    (incident,) = answer["incidents"]
    assert {"id", "job", "state", "opened_ns", "closed_ns", "closed_why", "findings", "cost"} <= set(incident)
    (finding,) = incident["findings"]
    assert {
        "id",
        "kind",
        "verdict",
        "cause",
        "culprits",
        "candidates",
        "victims",
        "links",
        "onset",
        "detected",
        "relief",
        "magnitude",
        "lasting",
        "pages",
        "evidence",
        "unseen",
        "source",
    } <= set(finding)
    assert finding["onset"] == {"step": 200, "time_ns": HOUR_NS}
    assert "gpu_hours" in incident["cost"]
    assert incident["decisions"][0]["action"] == "adjust_microbatches"


def test_what_was_measured_while_an_incident_was_open_stands_below_it() -> None:
    incident = an_incident(findings=(FINDING,))
    row = {
        "event_id": "v",
        "job": incident.job,
        "attempt": incident.attempt,
        "time_ns": incident.opened_ns + 1,
        "ranks": [2],
        "hosts": ["h"],
        "verdict": "culprit",
        "measured": "memory",
        "reason": "1.50 times the peers' time",
    }
    before = row | {"event_id": "u", "time_ns": incident.opened_ns - 1}
    of_another = row | {"event_id": "w", "job": "another"}
    words = measured_words(incident, [of_another, row, row | {"ranks": [0], "verdict": "cleared"}, before])
    assert words.endswith("rank 2 is slow (memory: 1.50 times the peers' time); rank 0 is as fast as its peers")
    assert measured_words(incident, [of_another, before]) == ""
    file = io.StringIO()
    print_incidents(terminal(file), [incident], [], measured={incident.id: words})
    assert "measured" in file.getvalue()
