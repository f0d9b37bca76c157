"""`pacehound topics`, `dead-letters` and `status` on a real broker with real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient
from engine_world import Ours, events_on, messages_on, publish
from events import incident

from bench.rig.broker import Broker
from bench.rig.realjob import until
from pacehound import cli
from pacehound.bus.kafka import MAX_MESSAGE_BYTES, KafkaProducer
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.model import codec, topics
from pacehound.model.events import DeadLetter
from pacehound.settings import KafkaSettings

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
]

WITHIN_S = 90
PARTITION = topics.partition_of(b"j", topics.INCIDENTS.partitions)


@pytest.fixture
def kafka(broker: Broker, request: pytest.FixtureRequest) -> KafkaSettings:
    return KafkaSettings(servers=broker.servers, prefix=f"{request.node.name}.")


def pacehound(kafka: KafkaSettings, *arguments: str) -> Result:
    settings = ["--set", f"kafka.servers={kafka.servers}", "--set", f"kafka.prefix={kafka.prefix}"]
    return CliRunner().invoke(cli.pacehound, [*arguments, *settings])


def answer(kafka: KafkaSettings, *arguments: str) -> Any:
    result = pacehound(kafka, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_topics_are_made_once_and_a_wrong_one_is_an_error(kafka: KafkaSettings, broker: Broker) -> None:
    for _ in range(2):
        made = pacehound(kafka, "topics")
        assert made.exit_code == 0, made.output
        assert f"{len(topics.TOPICS)} topics" in made.stderr
    name = f"{kafka.prefix}hosts"
    admin = AdminClient({"bootstrap.servers": broker.servers})
    admin.delete_topics([name])[name].result()
    missing = ["topic hosts is not there; run `pacehound topics`"]
    until("it is said", lambda: answer(kafka, "status")["problems"] == missing, WITHIN_S, 0.2)


def test_what_was_set_aside_is_listed_shown_and_replayed_once(kafka: KafkaSettings, tmp_path: Path) -> None:
    ensure_topics(kafka)
    good = codec.encode(incident(job="j"))
    future = good.replace(b"pacehound.incident", b"pacehound.nextyear")
    whole = b"\xff" * MAX_MESSAGE_BYTES
    producer = KafkaProducer(kafka, "test")
    for value in (future, b"\xff noise", whole):
        producer.publish_to(topics.INCIDENTS, PARTITION, b"j", value)
    producer.flush(60)
    with Ours("actuators", kafka, tmp_path / "log") as ours:
        until("all is set aside", lambda: len(messages_on(kafka, topics.DEAD_LETTERS)) == 3, WITHIN_S, 0.2)

        rows = answer(kafka, "dead-letters", "list")["letters"]
        assert [(r["error"], r["offset"], r["payload_bytes"], r["key"], r["replayed_ns"]) for r in rows] == [
            ("UnknownSchema", 0, len(future), "j", 0),
            ("MalformedMessage", 1, 7, "j", 0),
            ("MalformedMessage", 2, MAX_MESSAGE_BYTES, "j", 0),
        ]
        assert answer(kafka, "dead-letters", "list", "--topic", "calls")["letters"] == []
        table = pacehound(kafka, "dead-letters", "list").stdout
        assert f"incidents/{PARTITION}@1" in table
        shown = pacehound(kafka, "dead-letters", "show", rows[0]["id"][:12]).stdout
        assert "event name 'pacehound.nextyear' is not one of Pacehound's" in " ".join(shown.split())
        assert "70 61 63 65" in shown
        unknown = pacehound(kafka, "dead-letters", "show", "nothing")
        assert (unknown.exit_code, "no dead letter 'nothing'" in unknown.stderr) == (2, True)
        assert pacehound(kafka, "dead-letters", "replay").exit_code == 2

        done = answer(kafka, "dead-letters", "replay", rows[1]["id"])["letters"]
        assert [one["offset"] for one in done] == [1]
        until("it is set aside again", lambda: len(messages_on(kafka, topics.DEAD_LETTERS)) == 5, WITHIN_S, 0.2)
        values = [(m.key, m.partition, m.value) for m in messages_on(kafka, topics.INCIDENTS)]
        assert values[3:] == [("j", PARTITION, b"\xff noise")]
        rows = answer(kafka, "dead-letters", "list")["letters"]
        assert [bool(row["replayed_ns"]) for row in rows] == [False, True, False, False]
        assert ours.get("/health")[0] == 200
    replayed = pacehound(kafka, "dead-letters", "replay", "--all")
    assert replayed.stdout == "replayed 3 dead letters\n", replayed.output
    assert pacehound(kafka, "dead-letters", "replay", "--all").stdout == "replayed 0 dead letters\n"
    assert [m.value for m in messages_on(kafka, topics.INCIDENTS)][4:] == [future, whole, b"\xff noise"]
    assert all(isinstance(event, DeadLetter) for event in events_on(kafka, topics.DEAD_LETTERS))


def test_the_status_shows_lag_members_and_what_each_process_says(kafka: KafkaSettings, tmp_path: Path) -> None:
    ensure_topics(kafka)
    publish(kafka, *(incident(id=f"i{n}", job="j") for n in range(20)))
    with Ours("actuators", kafka, tmp_path / "log") as ours:
        target = f"telemetry.targets=127.0.0.1:{ours.port},127.0.0.1:1"

        def is_read() -> bool:
            groups = answer(kafka, "status", "--set", target)["kafka"]["groups"]
            assert {g["problem"] for g in groups} <= {""}, groups
            return [(g["group"], g["topic"], g["members"], g["lag"]) for g in groups] == [
                ("actuators", "incidents", 1, 0)
            ]

        until("all is read", is_read, WITHIN_S, 0.2)
        found = answer(kafka, "status", "--set", target)
        process, nobody = found["processes"]
        assert (process["name"], process["problem"], process["lag"], process["drops"]) == ("actuators", "", 0, 0)
        assert 0 <= process["batch_age_s"] < WITHIN_S
        assert nobody["problem"].startswith("http://127.0.0.1:1/metrics does not answer")
        assert {t["name"]: t["messages"] for t in found["kafka"]["topics"]}["incidents"] == 20
        assert not found["is_well"]
        table = pacehound(kafka, "status", "--set", f"telemetry.targets=127.0.0.1:{ours.port}").stdout
        assert "group actuators" in table
        assert "all is well" in table
    publish(kafka, incident(id="late", job="j"))
    problems = answer(kafka, "status")["problems"]
    assert problems == ["group actuators has no member and 1 messages of incidents before it"]


def test_a_broker_that_is_away_is_an_answer_too() -> None:
    nowhere = KafkaSettings(servers="127.0.0.1:1")
    found = answer(nowhere, "status")
    assert found["kafka"] is None
    assert "127.0.0.1:1" in found["kafka_problem"]
    assert pacehound(KafkaSettings(), "topics").exit_code == 2
