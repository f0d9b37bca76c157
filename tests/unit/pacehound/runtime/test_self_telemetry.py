"""What a process says of itself: over HTTP, as traces, and in the table of `pacehound status`."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from pacehound.bus.kafka_state import GroupState, KafkaState, TopicState
from pacehound.clock import ManualClock, SystemClock
from pacehound.errors import InvalidInput, InvalidSetting, Unavailable
from pacehound.runtime.liveness import Liveness
from pacehound.runtime.metric_names import DEAD_LETTERED, LAG, LAST_BATCH, MESSAGES, PROCESS, RECORDING_DROPPED
from pacehound.runtime.metrics_server import MetricsServer
from pacehound.runtime.phases import Stages
from pacehound.runtime.scrape import metrics_of
from pacehound.runtime.status import Scrape, Status, process_state, rows_of, status_answer
from pacehound.runtime.survey import survey
from pacehound.runtime.telemetry import Telemetry
from pacehound.runtime.traces import make_traces
from pacehound.settings import Settings, TelemetrySettings
from tests.fakes.span_receiver import receiver


def fetched(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_and_health_are_served_and_a_loop_that_stands_still_is_ill_with_its_reason() -> None:
    clock, telemetry = ManualClock(), Telemetry()
    liveness = Liveness(clock)
    telemetry.add(MESSAGES, 3, topic="incidents")
    server = MetricsServer("127.0.0.1:0", telemetry, liveness)
    try:
        status, text = fetched(server.port, "/metrics")
        assert status == 200
        assert 'pacehound_messages_total{topic="incidents"} 3.0' in text.splitlines()
        assert fetched(server.port, "/health") == (200, "well\n")
        liveness.mark_stuck("Kafka is away")
        clock.advance_s(31)
        assert fetched(server.port, "/health") == (503, "the loop has not turned for 31 s: Kafka is away\n")
        liveness.mark_alive()
        assert fetched(server.port, "/health")[0] == 200
        assert fetched(server.port, "/")[0] == 404
        with pytest.raises(InvalidSetting, match="cannot be listened on"):
            MetricsServer(f"127.0.0.1:{server.port}", telemetry, liveness)
    finally:
        server.close()


@pytest.mark.parametrize("listen", ["9464", "host:port", "127.0.0.1:99999", ":"])
def test_an_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(InvalidSetting, match=r"telemetry\.listen"):
        MetricsServer(listen, Telemetry(), Liveness(ManualClock()))


def test_a_rendering_is_read_again_as_it_was() -> None:
    telemetry = Telemetry()
    telemetry.add(DEAD_LETTERED, 2, topic='a "b"\n\\', error="E")
    telemetry.set(LAG, 7)
    found = {(s.name, s.labels.get("topic")): s.value for s in metrics_of(telemetry.render())}
    assert found["pacehound_dead_letters_total", 'a "b"\n\\'] == 2
    assert found["pacehound_lag_messages", None] == 7


def test_a_batch_is_one_trace_with_its_stages_and_idling_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
    clock = ManualClock(1_000_000_000_000)
    with receiver() as (url, bodies):
        traces = make_traces("alerts", url)
        stages = Stages(Telemetry(), clock, traces)
        for messages in (0, 5):
            for stage in ("poll", "work"):
                with stages.stage(stage):
                    clock.advance_s(0.25)
            stages.end_batch(messages)
        traces.close()
    (body,) = bodies
    (resource,) = body.resource_spans
    assert "pacehound-alerts" in {a.value.string_value for a in resource.resource.attributes}
    spans = {span.name: span for span in resource.scope_spans[0].spans}
    assert sorted(spans) == ["batch", "poll", "work"]
    root = spans["batch"]
    assert {span.parent_span_id for name, span in spans.items() if name != "batch"} == {root.span_id}
    assert len({span.trace_id for span in spans.values()}) == 1
    assert root.end_time_unix_nano - root.start_time_unix_nano == 500_000_000
    assert spans["work"].end_time_unix_nano - spans["work"].start_time_unix_nano == 250_000_000
    assert root.attributes[0].value.int_value == 5


def test_without_an_endpoint_nothing_of_opentelemetry_is_loaded() -> None:
    assert not make_traces("alerts", "").is_on
    code = (
        "import sys; from pacehound.runtime.traces import make_traces; make_traces('x', '');"
        "sys.exit(any(name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter')) for name in sys.modules))"
    )
    root = Path(__file__).resolve().parents[4]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, timeout=60, check=False).returncode == 0
    with pytest.raises(InvalidSetting, match="is no URL"):
        make_traces("alerts", "collector:4318")


def telemetry_of(done: float) -> Telemetry:
    telemetry = Telemetry()
    telemetry.set(PROCESS, 1, process="writer", version="0")
    telemetry.add(MESSAGES, done, topic="calls")
    telemetry.add(DEAD_LETTERED, 2, topic="calls", error="E")
    telemetry.add(RECORDING_DROPPED, 4)
    telemetry.set(LAG, 30)
    telemetry.set(LAST_BATCH, 95)
    return telemetry


def scraped(done: float, at_s: float, problem: str = "") -> Scrape:
    return Scrape(target="t", at_s=at_s, samples=metrics_of(telemetry_of(done).render()), problem=problem)


def test_two_looks_at_a_process_give_its_line() -> None:
    state = process_state(scraped(10, 0), scraped(60, 2), now_unix_s=100)
    assert (state.name, state.rate_per_s, state.lag, state.drops, state.dead_letters) == ("writer", 25.0, 30, 4, 2)
    assert (state.batch_age_s, state.problem) == (5.0, "")
    assert process_state(scraped(60, 0), scraped(10, 2), now_unix_s=100).rate_per_s == 0.0
    silent = process_state(scraped(1, 0), Scrape(target="t", at_s=2, problem="refused"), now_unix_s=100)
    assert (silent.problem, silent.batch_age_s) == ("refused", None)


def test_what_is_not_as_it_should_be_is_said_in_sentences() -> None:
    kafka = KafkaState(
        topics=(
            TopicState(name="calls", messages=5, problem=""),
            TopicState(name="hosts", messages=0, problem="is not there; run `pacehound topics`"),
        ),
        groups=(
            GroupState(group="writer", topic="calls", state="stable", members=1, lag=5),
            GroupState(group="alerts", topic="incidents", state="empty", members=0, lag=3),
        ),
    )
    status = Status(
        kafka=kafka,
        kafka_problem="",
        processes=(process_state(scraped(1, 0), scraped(1, 1, "stands still"), now_unix_s=100),),
    )
    answer = status_answer(status)
    assert answer["schema"] == 1
    assert not answer["is_well"]
    assert answer["problems"] == [
        "topic hosts is not there; run `pacehound topics`",
        "group alerts has no member and 3 messages of incidents before it",
        "writer at t: stands still",
        "writer at t has dropped 4",
    ]
    assert ("writer", "stands still", "30", "0.0/s", "4", "2", "5 s ago") in list(rows_of(status))


def test_a_survey_of_nobody_is_refused_and_one_that_finds_nobody_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="nobody to ask"):
        survey(Settings(), SystemClock())

    def away(_: str, token: str) -> list[object]:
        raise Unavailable("t does not answer")

    monkeypatch.setattr("pacehound.runtime.survey.scrape", away)
    waits: list[float] = []
    found = survey(Settings(telemetry=TelemetrySettings(targets="t")), ManualClock(), waits.append)
    assert [process.problem for process in found.processes] == ["t does not answer"]
    assert waits == [1.0]
