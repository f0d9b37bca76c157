"""Rounds around an incident as traces: which ones, who is marked, what points to what, and that nothing is held up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from pacehound.bus import Message
from pacehound.cli.doctor_checks import check_traces
from pacehound.clock import ManualClock
from pacehound.errors import InvalidSetting
from pacehound.model.conclusions import Conclusions
from pacehound.model.events import Decision, Incident, Instant
from pacehound.model.identity import round_trace_id
from pacehound.model.rounds import Rounds
from pacehound.runtime.job_traces import (
    MAX_SPANS_OF_AN_INCIDENT,
    ROUNDS_AFTER,
    ROUNDS_BEFORE,
    UNNAMED_S,
    RoundWindow,
    worker_of,
)
from pacehound.runtime.metric_names import SPANS
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import TraceSettings
from tests.fakes.events import finding, incident
from tests.fakes.hand_made_rounds import BASE_NS, MS, rounds
from tests.fakes.made_pairs import pairs_of
from tests.fakes.span_receiver import by_trace, receiver, spans_in

SOMEWHERE = Message(topic="incidents", key="j", partition=0, offset=0, value=b"")
INCIDENT_ID = "0123456789abcdef0123456789abcdef"


def lockstep(communicator: str = "dp", ranks: tuple[int, ...] = (0, 1, 2, 3), n: int = 30) -> Rounds:
    """Rounds of 5 ms, one every 10 ms."""
    return rounds(communicator, ranks, [[(10.0 * i, 10.0 * i + 5)] * len(ranks) for i in range(n)])


def slow(at_ms: float = 105.0, **changes: object) -> Incident:
    opened_ns = BASE_NS + round(at_ms * MS)
    named = finding(culprits=(2,), onset=Instant(step=10, time_ns=opened_ns))
    return incident(
        **({"id": INCIDENT_ID, "opened_ns": opened_ns, "time_ns": opened_ns + 90 * MS, "findings": (named,)} | changes)
    )


def decided(**changes: object) -> Decision:
    told = {"job": "j", "attempt": 0, "time_ns": BASE_NS + 300 * MS, "incident": INCIDENT_ID, "incident_version": 0}
    words = {"mode": "observe", "action": "ignore", "reason": "too cheap", "price_s": 0.0, "loss_s": 1.5}
    return Decision(**(told | words | changes))  # type: ignore[arg-type]


class World:
    """A worker, and what a real receiver has of it."""

    def __init__(self, every_rounds: int = 0) -> None:
        self.every_rounds = every_rounds
        self.clock = ManualClock(BASE_NS)
        self.telemetry = Telemetry()

    def spans(self, *events: Rounds | Conclusions | Incident | Decision | float) -> list[Span]:
        """What is sent of these; a number lets so many seconds pass, and every event is a turn."""
        with receiver() as (url, bodies):
            settings = TraceSettings(endpoint=url, every_rounds=self.every_rounds)
            worker = worker_of(settings, self.clock, self.telemetry)
            for event in events:
                if isinstance(event, float):
                    assert worker.may_wait_s() > 0.0
                    self.clock.advance_s(event)
                else:
                    assert worker.on_event(event, SOMEWHERE) == []
                assert worker.on_turn() == []
            worker.close()
        return spans_in(bodies)


def attributes(span: Span) -> dict[str, object]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_the_rounds_around_an_onset_are_traces_of_all_ranks_with_the_culprit_marked_and_lead_to_the_incident() -> None:
    traces = by_trace(World().spans(lockstep(), slow()))
    about = traces.pop(INCIDENT_ID)
    assert set(traces) == {round_trace_id("dp", seq).hex() for seq in range(8, 8 + ROUNDS_BEFORE + ROUNDS_AFTER)}
    for spans in traces.values():
        assert sorted(attributes(span)["pacehound.rank"] for span in spans) == [0, 1, 2, 3]
        assert [attributes(one)["pacehound.rank"] for one in spans if one.status.code == Status.STATUS_CODE_ERROR] == [
            2
        ]
        assert [attributes(one)["pacehound.rank"] for one in spans if "pacehound.culprit" in attributes(one)] == [2]
        assert {link.trace_id.hex() for span in spans for link in span.links} == {INCIDENT_ID}
    (opened,) = about
    assert opened.name == "opened: slow"
    assert opened.end_time_unix_nano - opened.start_time_unix_nano == 90 * MS
    assert {link.trace_id.hex() for link in opened.links} == set(traces)
    marked = {span.span_id for spans in traces.values() for span in spans if "pacehound.culprit" in attributes(span)}
    assert {link.span_id for link in opened.links} == marked


def test_rounds_among_conclusions_are_traces_as_they_are_by_themselves() -> None:
    pairs = [replace(lockstep("pp", pair), is_pair=True) for pair in ((1, 2), (2, 3))]
    apart = by_trace(World().spans(lockstep(), *pairs, slow()))
    concluded = Conclusions(job="j", attempt=0, said=(lockstep(), pairs_of(pairs)))
    together = by_trace(World().spans(concluded, slow()))
    assert len(apart) == 1 + 3 * (ROUNDS_BEFORE + ROUNDS_AFTER)
    assert {one: [span.span_id for span in spans] for one, spans in apart.items()} == {
        one: [span.span_id for span in spans] for one, spans in together.items()
    }


def test_an_incident_is_one_trace_with_its_opening_its_decisions_and_its_end_above_them() -> None:
    closed_ns = BASE_NS + 900 * MS
    events = (
        lockstep(),
        slow(),
        decided(),
        slow(version=3, state="closed", closed_ns=closed_ns, closed_why="relieved"),
    )
    spans = by_trace(World().spans(*events))[INCIDENT_ID]
    assert [span.name for span in spans] == ["opened: slow", "decision: ignore", "incident: slow"]
    opened, decision, whole = spans
    assert opened.parent_span_id == decision.parent_span_id == whole.span_id
    assert whole.parent_span_id == b""
    assert (whole.start_time_unix_nano, whole.end_time_unix_nano) == (BASE_NS + 105 * MS, closed_ns)
    assert attributes(decision)["pacehound.reason"] == "too cheap"
    assert len(decision.links) == len(whole.links) == len(opened.links) == ROUNDS_BEFORE + ROUNDS_AFTER
    again = by_trace(World().spans(*events))[INCIDENT_ID]
    assert [span.span_id for span in again] == [span.span_id for span in spans], "who tells again tells the same"


def test_of_many_communicators_those_of_the_culprit_are_sent() -> None:
    spans = World().spans(lockstep("dp0", (0, 1)), lockstep("dp1", (2, 3)), lockstep("world"), slow())
    named = {attributes(span).get("pacehound.communicator") for span in spans}
    assert named == {"dp1", "world", None}


def test_rounds_of_what_nobody_is_named_for_are_sent_a_minute_later_and_once() -> None:
    nobody = slow(findings=(finding(verdict="unknown", cause=None, culprits=()),))
    assert World().spans(lockstep(), nobody) == []
    world = World()
    n_spans = len(world.spans(lockstep(), nobody, UNNAMED_S, replace(slow(), version=1), UNNAMED_S))
    assert n_spans == 4 * (ROUNDS_BEFORE + ROUNDS_AFTER) + 1 == world.telemetry.value(SPANS)


def test_an_incident_that_is_heard_of_when_it_is_over_and_one_of_a_job_without_rounds_are_told_all_the_same() -> None:
    over = slow(state="closed", closed_ns=BASE_NS + 900 * MS)
    names = [span.name for span in World().spans(over) if span.trace_id.hex() == INCIDENT_ID]
    assert names == ["opened: slow", "incident: slow"]


def test_one_round_in_so_many_is_sent_by_its_number_so_that_all_processes_choose_the_same() -> None:
    spans = World(every_rounds=10).spans(lockstep(n=30))
    assert {attributes(span)["pacehound.seq"] for span in spans} == {0, 10, 20}
    assert len(spans) == 12
    assert all(not span.links for span in spans)


def test_the_window_forgets_the_oldest_and_an_incident_is_no_more_than_a_viewer_can_open() -> None:
    window = RoundWindow(max_cells=100)
    first, second = lockstep(n=20), lockstep("other", n=20)
    window.note(first)
    assert window.around("j", 0, BASE_NS, frozenset()) != []
    window.note(second)
    assert {one.rounds.communicator for one in window.around("j", 0, BASE_NS, frozenset())} == {"other"}
    assert window.around("j", 1, BASE_NS, frozenset()) == []
    wide = RoundWindow()
    wide.note(lockstep("pair", (0, 1), n=8))
    for name in ("a", "b"):
        wide.note(lockstep(name, tuple(range(2_500)), n=6))
    chosen = wide.around("j", 0, BASE_NS + 25 * MS, frozenset())
    n_spans = sum(len(one.rows) * len(one.rounds.ranks) for one in chosen)
    assert n_spans <= MAX_SPANS_OF_AN_INCIDENT
    seqs = {one.rounds.communicator: [int(one.rounds.seq[row]) for row in one.rows] for one in chosen}
    assert seqs == {"a": [0, 1, 2, 3, 4, 5], "b": [2, 3]}, (
        "rounds are whole, and the last ones are those after the onset"
    )


def test_of_the_largest_job_one_round_is_sent_whole() -> None:
    window = RoundWindow()
    window.note(lockstep("world", tuple(range(16_384)), n=8))
    (chosen,) = window.around("j", 0, BASE_NS + 25 * MS, frozenset({7}))
    assert chosen.rows == (2,)


def test_a_receiver_that_is_away_holds_up_nothing_and_hostile_names_are_text(caplog: pytest.LogCaptureFixture) -> None:
    worker = worker_of(TraceSettings(endpoint="http://127.0.0.1:1"), ManualClock(BASE_NS), Telemetry())
    for event in (lockstep(), slow(job="\x1b]0;evil\x07<script>"), decided(action="\x1b[2J", reason="'; DROP TABLE")):
        assert worker.on_event(event, SOMEWHERE) == []
    worker.close()
    assert "will be missing" in caplog.text
    spans = World().spans(decided(action="\x1b[2J"))
    assert [span.name for span in spans] == ["decision: \\x1b[2J"]


def test_an_endpoint_that_is_no_url_is_refused_by_name() -> None:
    with pytest.raises(InvalidSetting, match=r"traces.endpoint='jaeger:4318' is no URL; write one as in"):
        worker_of(TraceSettings(endpoint="jaeger:4318"), ManualClock(0), Telemetry())


def test_the_doctor_sends_whoever_takes_traces_an_empty_message() -> None:
    assert check_traces(TraceSettings()).result == "ok"
    with receiver() as (url, bodies):
        assert check_traces(TraceSettings(endpoint=url)).detail == f"{url}/v1/traces takes them"
    assert spans_in(bodies) == []
    away = check_traces(TraceSettings(endpoint="http://127.0.0.1:1"))
    assert (away.result, away.fix[:18]) == ("missing", "start the receiver")


def test_incidents_of_other_producers_have_a_trace_of_their_own() -> None:
    spans = World().spans(slow(id="INC-7"), slow(id="INC-8"))
    assert len({span.trace_id for span in spans}) == 2
    assert {len(span.trace_id) for span in spans} == {16}
