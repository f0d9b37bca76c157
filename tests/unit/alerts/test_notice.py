"""What an alert says: one line, three lines, a link; and what names it."""

from __future__ import annotations

from alerts.notice import Notice, summary
from pacehound.model.events import Cost
from tests.fakes.events import finding, incident


def test_the_keys_name_what_it_is_about_and_not_the_version() -> None:
    keys = [
        Notice(incident=incident(version=v, state=s), state=s).idempotency_key
        for v, s in ((0, "open"), (3, "open"), (4, "closed"))
    ]
    assert keys[0] == keys[1] != keys[2]
    assert Notice(incident=incident(id="i1")).idempotency_key != keys[0]
    assert Notice(incident=incident()).dedup_key == Notice(incident=incident(version=4), state="closed").dedup_key
    assert Notice(incident=incident()).dedup_key != Notice(incident=incident(), level="halt").dedup_key


def test_the_line_for_a_person_never_names_somebody_who_is_not_a_culprit() -> None:
    nobody = finding(kind="hang", verdict="unknown", cause=None, culprits=(), candidates=(0, 1), magnitude=None)
    said = summary(incident(findings=(nobody,)))
    assert said == "job j: hang, nobody named (unknown), since step 200; open"
    link = finding(verdict="suspected", cause="S2", culprits=(), links=((2, 3),), magnitude=-0.05, onset=None)
    assert summary(incident(findings=(link,))) == "job j: slow, link 2->3 (suspected, S2), -5 %; open"
    closed = incident(state="closed", closed_why="job ended", findings=())
    assert summary(closed) == "job j: no finding; closed (job ended), 4.5 s lost in all"


def test_three_lines_say_what_it_costs_and_what_to_do() -> None:
    notice = Notice(incident=incident(cost=Cost(excess_s=90, ranks=64, gpu_hours=1.6)), page_url="http://head:4319/")
    assert notice.lines == (
        "job j: slow, rank 2 (culprit, S1), +40 % since step 200; open; since 2026-09-21 14:13:32 UTC",
        "29 % of the work of 64 ranks is lost; 90.0 s of the job's time so far, 1.6 rank-hours",
        "look at clocks, temperature and other work on the host of rank 2; replace it where it goes on",
    )
    assert notice.link == "http://head:4319/#/incident/i0"
    assert Notice(incident=incident()).link == ""


def test_an_alert_of_many_jobs_names_some_and_counts_the_others() -> None:
    notice = Notice(incident=incident(), jobs=("j", *(f"k{n}" for n in range(30))), n_incidents=31)
    assert "with it 30 more incidents, in 30 other jobs: k0, k1" in notice.text
    assert notice.text.endswith("k19 and 10 more")


def test_hostile_names_are_text_on_one_line() -> None:
    hostile = incident(job="a\x1b[2J\nb\u202eevil", closed_why="\x00\n", state="closed")
    for line in (*Notice(incident=hostile, state="closed").lines, Notice(incident=hostile).text):
        assert line.isprintable(), line


def test_a_thousand_culprits_do_not_fill_the_page() -> None:
    many = finding(culprits=tuple(range(4096)))
    assert "rank 15, 4080 more" in summary(incident(findings=(many,)))
