"""Alertmanager is told in its own words."""

from __future__ import annotations

import json

import httpx
import pytest

from alerts.notice import Notice
from alerts.sinks.alertmanager import Alertmanager, alert_of
from pacehound.errors import InvalidSetting
from tests.fakes.events import START_NS, incident


def sink(status: int, requests: list[httpx.Request]) -> Alertmanager:
    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(status)

    return Alertmanager("http://am:9093/", httpx.MockTransport(answer))


def closed(closed_ns: int) -> Notice:
    return Notice(incident=incident(state="closed", version=3, closed_ns=closed_ns), state="closed", group="g")


def test_an_incident_is_one_alert_from_its_opening_to_its_end() -> None:
    requests: list[httpx.Request] = []
    delivery = sink(200, requests).deliver(Notice(incident=incident(), group="g", page_url="http://head"))
    assert delivery.outcome == "delivered"
    assert str(requests[0].url) == "http://am:9093/api/v2/alerts"
    (opened,) = json.loads(requests[0].content)
    ended = alert_of(closed(START_NS + 60_000_000_000))
    labels = {"alertname": "PacehoundIncident", "severity": "page", "group": "g", "job": "j", "incident": "i0"}
    assert opened["labels"] == ended["labels"] == labels
    assert opened["startsAt"] == ended["startsAt"] == "2026-09-21T14:13:32.000000+00:00"
    assert opened["endsAt"].startswith("2027-09-21")
    assert ended["endsAt"] == "2026-09-21T14:14:20.000000+00:00"
    assert opened["annotations"]["culprits"] == "2"
    assert len(opened["annotations"]["description"].splitlines()) == 3
    assert opened["generatorURL"] == "http://head/#/incident/i0"
    never = alert_of(closed(0))
    assert never["endsAt"] >= never["startsAt"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "delivered"), (400, "refused"), (425, "unavailable"), (429, "unavailable"), (503, "unavailable")],
)
def test_its_answer_says_whether_to_try_again(status: int, outcome: str) -> None:
    assert sink(status, []).deliver(Notice(incident=incident())).outcome == outcome


@pytest.mark.parametrize("url", ["am:9093", "http://", "http://[::1", "ftp://user:s3cret@am:9093"])
def test_a_url_that_cannot_be_posted_to_is_refused_by_the_name_of_its_setting(url: str) -> None:
    with pytest.raises(InvalidSetting, match="alertmanager_url") as refusal:
        Alertmanager(url)
    assert "s3cret" not in str(refusal.value)
