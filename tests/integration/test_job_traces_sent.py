"""A round opens as one trace with all ranks, the culprit marked: from a head and from Kafka, to a real receiver."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from engine_world import Ours, publish
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from bench.rig.broker import Broker
from bench.rig.realjob import until
from pacehound.bus.kafka_state import kafka_state
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.model.conclusions import Conclusions
from pacehound.settings import KafkaSettings
from tests.fakes.events import finding, incident
from tests.fakes.hand_made_rounds import BASE_NS, MS, rounds
from tests.fakes.span_receiver import by_trace, receiver, spans_in

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 90
INCIDENT_ID = "0123456789abcdef0123456789abcdef"


def rank_of(span: Span) -> int:
    return next(one.value.int_value for one in span.attributes if one.key == "pacehound.rank")


def culprits_of(spans: list[Span]) -> set[int]:
    return {rank_of(span) for span in spans if span.status.code == Status.STATUS_CODE_ERROR}


def test_the_rounds_of_the_slow_rank_of_a_demo_are_sent_by_its_head() -> None:
    with receiver() as (url, bodies):
        settings = ["--set", f"traces.endpoint={url}", "--set", "traces.every_rounds=500"]
        done = subprocess.run(
            [sys.executable, "-m", "pacehound", "demo", *settings],
            cwd=ROOT,
            env=os.environ,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 0, done.stderr
    traces = by_trace(spans_in(bodies))
    about = [spans for spans in traces.values() if any(span.name.startswith("opened: slow") for span in spans)]
    assert len(about) == 1
    assert [span.name for span in about[0] if not span.parent_span_id] == ["incident: slow"]
    assert [span.name for span in about[0]].count("opened: slow") == 1
    assert any(span.name.startswith("decision: ") for span in about[0])
    pointed_at = {link.trace_id.hex() for span in about[0] for link in span.links}
    rounds_sent = [traces[trace_id] for trace_id in pointed_at]
    assert rounds_sent
    assert all(culprits_of(spans) == {2} for spans in rounds_sent)
    assert any(len(spans) == 8 for spans in rounds_sent), "all ranks of the job, side by side"
    sampled = [spans for trace_id, spans in traces.items() if trace_id not in pointed_at and spans is not about[0]]
    assert sampled
    assert all(not culprits_of(spans) for spans in sampled)


@pytest.mark.kafka
def test_a_process_on_kafka_sends_the_rounds_around_an_incident(
    broker: Broker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kafka = KafkaSettings(servers=broker.servers, prefix=f"{request.node.name}.")
    ensure_topics(kafka)
    grid = [[(10.0 * i, 10.0 * i + 5)] * 4 for i in range(30)]
    opened_ns = BASE_NS + 100 * MS
    named = finding(culprits=(3,))
    with receiver() as (url, bodies):
        environ = {"PACEHOUND_TRACES_ENDPOINT": url, "PACEHOUND_TRACES_EVERY_ROUNDS": "0"}
        with Ours("traces", kafka, tmp_path / "log", environ) as ours:

            def has_begun() -> bool:
                return any(state.group == "traces" and state.members for state in kafka_state(kafka).groups)

            until("it has begun", has_begun, WITHIN_S, 0.2)
            concluded = Conclusions(
                job="j", attempt=0, said=(rounds("dp", (0, 1, 2, 3), grid),)
            )  # as stage one says it
            publish(kafka, concluded)
            publish(kafka, incident(id=INCIDENT_ID, findings=(named,), opened_ns=opened_ns, time_ns=opened_ns + MS))
            until("it is sent", lambda: INCIDENT_ID in by_trace(spans_in(bodies)), WITHIN_S, 0.2)
            assert ours.stop() == 0
    traces = by_trace(spans_in(bodies))
    (opened,) = traces.pop(INCIDENT_ID)
    assert {link.trace_id.hex() for link in opened.links} == set(traces)
    assert {tuple(sorted(map(rank_of, spans))) for spans in traces.values()} == {(0, 1, 2, 3)}
    assert all(culprits_of(spans) == {3} for spans in traces.values())
