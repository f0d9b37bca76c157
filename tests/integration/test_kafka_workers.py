"""`pacehound alerts` and `pacehound actuators` on a real broker: once, in spite of kills, and no poison stops them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_world import Ours, events_on, messages_on, publish
from events import incident
from pager import FakePagerDuty, served
from poison import every_poison
from webhook import FakeWebhook

from bench.rig.broker import Broker
from bench.rig.realjob import until
from pacehound.bus.kafka import KafkaProducer
from pacehound.bus.kafka_state import kafka_state
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.bus.signing import Keys, public_key_of
from pacehound.model import codec, topics
from pacehound.model.events import Command, DeadLetter, Decision, Incident, Notification
from pacehound.model.orders import Profile, read_order
from pacehound.settings import KafkaSettings

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
]

WITHIN_S = 200
PER_KILL = 6
"""Incidents for each kill, of two states each that somebody is told of."""


@pytest.fixture
def kafka(broker: Broker, request: pytest.FixtureRequest) -> KafkaSettings:
    made = KafkaSettings(servers=broker.servers, prefix=f"{request.node.name.replace('[', '.').rstrip(']')}.")
    ensure_topics(made)
    return made


def lives(number: int) -> list[Incident]:
    """An incident that opens, goes on and is closed."""
    same = {"id": f"i{number}", "job": f"j{number % 5}"}
    return [
        incident(**same, version=0),
        incident(**same, version=1),
        incident(**same, version=2, state="closed", closed_ns=1, closed_why="relieved"),
    ]


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(1, id="short"),
        pytest.param(8, id="long", marks=[pytest.mark.prove]),
    ],
)
def test_every_state_is_told_once_and_every_decision_made_once_although_they_are_killed(
    kills: int, kafka: KafkaSettings, tmp_path: Path
) -> None:
    """A kill between notices and their notes tells again, with the same keys: the states of one turn at most."""
    n_incidents = PER_KILL * kills
    pager = FakePagerDuty()
    with FakeWebhook() as webhook, served(pager) as pager_url:
        environ = {
            "PACEHOUND_ALERTS_WEBHOOK_URL": webhook.url,
            "PACEHOUND_ALERTS_PAGERDUTY_KEY": "0123456789abcdef0123456789abcdef",
            "PACEHOUND_ALERTS_PAGERDUTY_URL": f"{pager_url}/v2/enqueue",
        }
        alerts = Ours("alerts", kafka, tmp_path / "alerts.log", environ).start()
        actuators = Ours("actuators", kafka, tmp_path / "actuators.log").start()
        try:
            for name in ("alerts", "actuators"):
                until(f"{name} has begun", lambda name=name: has_begun(kafka, name), WITHIN_S, 0.2)
            for number in range(n_incidents):
                opened, goes_on, closed = lives(number)
                if number % PER_KILL == 0:
                    until("no page is open", lambda: not pager.incidents, WITHIN_S, 0.02)
                pages = pager.pages
                publish(kafka, opened, goes_on)
                if number % PER_KILL == 0:  # what is over within a turn wakes nobody
                    until("somebody is paged", lambda pages=pages: pager.pages > pages, WITHIN_S, 0.02)
                publish(kafka, closed)
                if number % PER_KILL == 3:
                    told = len(webhook.received)
                    until("somebody is told", lambda told=told: len(webhook.received) > told, WITHIN_S, 0.01)
                    victim = (alerts, actuators)[number // PER_KILL % 2]
                    victim.kill()
                    victim.start()
            expected = {(f"i{n}", state) for n in range(n_incidents) for state in ("open", "closed")}
            until("all are told", lambda: set(webhook.delivered) == expected, WITHIN_S, 0.2)

            def is_settled() -> bool:
                told = [e for e in events_on(kafka, topics.NOTIFICATIONS) if isinstance(e, Notification)]
                return {(e.incident, e.state) for e in told if e.sink == "webhook"} == expected

            until("all is noted", is_settled, WITHIN_S, 0.5)

            def decided() -> list[Decision]:
                return [e for e in events_on(kafka, topics.DECISIONS) if isinstance(e, Decision)]

            until("no page is left open", lambda: not pager.incidents, WITHIN_S, 0.2)
            until("all is decided", lambda: len({d.incident for d in decided()}) == n_incidents, WITHIN_S, 0.5)
        finally:
            codes = alerts.stop(), actuators.stop()
        assert codes == (0, 0), alerts.text()[-2000:] + actuators.text()[-2000:]
        again = {key: n for key, n in Counter(r.key for r in webhook.received).items() if n > 1}
        assert len(again) <= kills * 2 * PER_KILL
        assert set(again.values()) <= set(range(2, kills + 2))
        for number in range(n_incidents):
            states = [state for one, state in dict.fromkeys(webhook.delivered) if one == f"i{number}"]
            assert states == ["open", "closed"]
        assert pager.wrong == []
        keys = {event["dedup_key"] for event in pager.events if event["event_action"] == "trigger"}
        assert 1 <= pager.pages == len(keys) <= n_incidents, "nobody is paged twice for one thing, whoever was killed"
        ids = Counter(decision.identity() for decision in decided())
        assert set(ids.values()) == {1}
    assert events_on(kafka, topics.DEAD_LETTERS) == []


@pytest.mark.parametrize("name", ["alerts", pytest.param("actuators", marks=pytest.mark.prove)])
def test_every_kind_of_poison_is_set_aside_and_counted_and_the_partition_goes_on(
    name: str, kafka: KafkaSettings, tmp_path: Path
) -> None:
    poisons = every_poison(topics.INCIDENTS)
    with (
        FakeWebhook() as webhook,
        Ours(name, kafka, tmp_path / "log", {"PACEHOUND_ALERTS_WEBHOOK_URL": webhook.url}) as ours,
    ):
        until("it has begun", lambda: has_begun(kafka, name), WITHIN_S, 0.2)
        producer = KafkaProducer(kafka, "test")
        partition = topics.partition_of(b"j", topics.INCIDENTS.partitions)
        for poison in poisons:
            producer.publish_to(topics.INCIDENTS, partition, b"j", poison.value)
        tick = codec.encode(next(iter(events_of_another_topic())))
        producer.publish_to(topics.INCIDENTS, partition, b"j", tick)
        producer.flush(60)
        publish(kafka, incident(job="j"))
        n_bad = len(poisons) + 1

        def is_through() -> bool:
            return ours.metric("pacehound_messages_total") == n_bad + 1

        until("all is dealt with", is_through, WITHIN_S, 0.2)
        assert ours.metric("pacehound_dead_letters_total") == n_bad
        until("it is committed", lambda: ours.metric("pacehound_last_batch_timestamp_seconds") > 0, WITHIN_S, 0.1)
        assert ours.get("/health") == (200, "well\n")
    letters = [letter for letter in events_on(kafka, topics.DEAD_LETTERS) if isinstance(letter, DeadLetter)]
    assert [(x.offset, x.error) for x in letters] == [
        *((offset, poison.error) for offset, poison in enumerate(poisons)),
        (len(poisons), "MalformedMessage"),
    ]
    assert [x.payload for x in letters] == [*(poison.payload for poison in poisons), tick]
    assert {(x.source_topic, x.partition, x.key) for x in letters} == {("incidents", partition, "j")}
    if name == "alerts":
        assert webhook.delivered == [("i0", "open")]
    else:
        assert {d.incident for d in events_on(kafka, topics.DECISIONS) if isinstance(d, Decision)} == {"i0"}


def has_begun(kafka: KafkaSettings, group: str) -> bool:
    """It is in its group. (It is well before that, and alerts do not tell of what lies before their beginning.)"""
    return any(state.group == group and state.members for state in kafka_state(kafka).groups)


def events_of_another_topic() -> Iterator[Incident]:
    from events import one_of_each

    return (event for event in one_of_each() if type(event).__name__ == "Tick")


@pytest.mark.prove
def test_a_receiver_that_is_away_is_waited_for_in_order_and_one_that_refuses_is_set_aside(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    with FakeWebhook(answers=[503, 503, 403, 200]) as webhook:
        environ = {"PACEHOUND_ALERTS_WEBHOOK_URL": webhook.url}
        with Ours("alerts", kafka, tmp_path / "log", environ):
            until("it has begun", lambda: has_begun(kafka, "alerts"), WITHIN_S, 0.2)
            first, second = incident(id="a", job="j"), incident(id="b", job="j")
            publish(kafka, first, second)
            assert webhook.wait_for(4, WITHIN_S)
            until("it is noted", lambda: len(events_on(kafka, topics.NOTIFICATIONS)) == 1, WITHIN_S, 0.2)
        assert [r.body["incident"]["id"] for r in webhook.received] == ["a", "a", "a", "b"]
    (letter,) = events_on(kafka, topics.DEAD_LETTERS)
    assert isinstance(letter, DeadLetter)
    assert (letter.error, letter.payload) == ("NoticeRefused", codec.encode(first))
    assert "answered 403" in letter.reason


@pytest.mark.prove
def test_alerts_that_are_set_up_later_tell_of_what_is_open_and_not_of_the_past(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    publish(kafka, *lives(1), incident(id="still", job="j1"))
    with FakeWebhook() as webhook:
        environ = {"PACEHOUND_ALERTS_WEBHOOK_URL": webhook.url}
        with Ours("alerts", kafka, tmp_path / "log", environ):
            assert webhook.wait_for(1, WITHIN_S)
            publish(kafka, incident(id="still", job="j1", version=1, state="closed"))
            assert webhook.wait_for(2, WITHIN_S)
            until("it is noted", lambda: len(messages_on(kafka, topics.NOTIFICATIONS)) == 2, WITHIN_S, 0.2)
        assert webhook.delivered == [("still", "open"), ("still", "closed")]


@pytest.mark.prove
def test_a_process_that_is_started_before_its_broker_says_so_and_ends_in_order(tmp_path: Path) -> None:
    nowhere = KafkaSettings(servers="127.0.0.1:1")
    with Ours("actuators", nowhere, tmp_path / "log") as ours:
        until("it answers", lambda: ours.get("/health")[0], WITHIN_S, 0.1)
        until("it complains", lambda: "waits for Kafka" in ours.text(), WITHIN_S, 0.1)
        assert ours.stop() == 0


def test_in_mode_auto_a_slow_job_s_agents_are_told_to_look_closer_by_a_signed_order(
    kafka: KafkaSettings, tmp_path: Path
) -> None:
    publish(kafka, incident(id="slow", job="j1"))
    environ = {"PACEHOUND_ACTUATORS_MODE": "auto"}
    with Ours("actuators", kafka, tmp_path / "log", environ, arguments=("--store", str(tmp_path / "keys"))):
        until("it is ordered", lambda: messages_on(kafka, topics.COMMANDS), WITHIN_S, 0.2)
        until("it is recorded", lambda: len(messages_on(kafka, topics.DECISIONS)) >= 2, WITHIN_S, 0.2)
    (command,) = events_on(kafka, topics.COMMANDS)
    assert isinstance(command, Command)
    assert Keys([public_key_of(tmp_path / "keys")]).have_signed(command)
    order = read_order(command.order)
    assert (order.job, order.incident, type(order.what)) == ("j1", "slow", Profile)
    decided = {(one.action, one.taken) for one in events_on(kafka, topics.DECISIONS) if isinstance(one, Decision)}
    assert decided == {("ignore", False), ("profile", True)}
