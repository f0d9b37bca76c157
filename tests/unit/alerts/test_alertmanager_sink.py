"""Alertmanager is told in its own words, and several receivers are told once each."""

from __future__ import annotations

import json

import httpx
import pytest

from alerts.notice import Delivery, Notice
from alerts.service import sinks_of
from alerts.sinks.alertmanager import Alertmanager, alert_of
from alerts.sinks.several import Several
from pacehound.errors import InvalidSetting
from pacehound.settings import AlertSettings
from tests.fakes.events import START_NS, incident


def sink(status: int, requests: list[httpx.Request]) -> Alertmanager:
    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(status)

    return Alertmanager("http://am:9093/", httpx.MockTransport(answer))


def test_an_incident_is_one_alert_from_its_opening_to_its_end() -> None:
    requests: list[httpx.Request] = []
    delivery = sink(200, requests).deliver(Notice(incident=incident()))
    assert delivery.outcome == "delivered"
    assert str(requests[0].url) == "http://am:9093/api/v2/alerts"
    (opened,) = json.loads(requests[0].content)
    closed = alert_of(Notice(incident=incident(state="closed", version=3, closed_ns=START_NS + 60_000_000_000)))
    assert opened["labels"] == closed["labels"] == {"alertname": "PacehoundIncident", "job": "j", "incident": "i0"}
    assert opened["startsAt"] == closed["startsAt"] == "2026-09-21T14:13:32.000000+00:00"
    assert opened["endsAt"].startswith("2027-09-21")
    assert closed["endsAt"] == "2026-09-21T14:14:20.000000+00:00"
    assert opened["annotations"]["culprits"] == "2"
    never = alert_of(Notice(incident=incident(state="closed", closed_ns=0)))
    assert never["endsAt"] >= never["startsAt"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "delivered"), (400, "refused"), (425, "unavailable"), (429, "unavailable"), (503, "unavailable")],
)
def test_its_answer_says_whether_to_try_again(status: int, outcome: str) -> None:
    assert sink(status, []).deliver(Notice(incident=incident())).outcome == outcome


class FakeSink:
    """Answers as it is told."""

    def __init__(self, *outcomes: str) -> None:
        self.outcomes = list(outcomes)
        self.calls = 0

    def deliver(self, notice: Notice) -> Delivery:
        self.calls += 1
        return Delivery(outcome=self.outcomes.pop(0))  # type: ignore[arg-type]


def test_who_was_reached_is_not_told_again_while_another_one_is_away() -> None:
    first, second = FakeSink("delivered"), FakeSink("unavailable", "unavailable", "delivered")
    both = Several([first, second])
    outcomes = [both.deliver(Notice(incident=incident())).outcome for _ in range(3)]
    assert outcomes == ["unavailable", "unavailable", "delivered"]
    assert (first.calls, second.calls) == (1, 3)


def test_one_that_refuses_does_not_keep_the_other_from_being_told() -> None:
    first, second = FakeSink("refused"), FakeSink("delivered")
    assert Several([first, second]).deliver(Notice(incident=incident())).outcome == "refused"
    assert second.calls == 1


def test_settings_name_the_receivers() -> None:
    both = sinks_of(AlertSettings(webhook_url="http://h/x", alertmanager_url="http://am:9093"))
    assert [type(one).__name__ for one in both] == ["Webhook", "Alertmanager"]
    with pytest.raises(InvalidSetting, match="nobody to tell"):
        sinks_of(AlertSettings())


@pytest.mark.parametrize("url", ["am:9093", "http://", "http://[::1", "ftp://user:s3cret@am:9093"])
def test_a_url_that_cannot_be_posted_to_is_refused_by_the_name_of_its_setting(url: str) -> None:
    with pytest.raises(InvalidSetting, match="alertmanager_url") as refusal:
        sinks_of(AlertSettings(alertmanager_url=url))
    assert "s3cret" not in str(refusal.value)
