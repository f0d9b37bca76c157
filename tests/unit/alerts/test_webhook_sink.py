"""The webhook's requests and what its answers mean; no network."""

import json

import httpx
import pytest

from alerts.notice import Notice
from alerts.sinks.webhook import Webhook
from pacehound.errors import InvalidSetting
from tests.fakes.events import incident

SECRET = "s3cret"
URL = f"https://hooks.example/{SECRET}?token={SECRET}"
NOTICE = Notice(incident=incident())


def webhook(answer):
    return Webhook(URL, transport=httpx.MockTransport(answer))


def test_a_notice_is_one_post_of_json_with_its_key():
    seen = []

    def answer(request):
        seen.append(request)
        return httpx.Response(204)

    assert webhook(answer).deliver(NOTICE).outcome == "delivered"
    [request] = seen
    body = json.loads(request.content)
    assert (request.method, str(request.url)) == ("POST", URL)
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Idempotency-Key"] == body["idempotency_key"] == NOTICE.idempotency_key
    assert (body["schema"], body["type"], body["state"]) == (1, "pacehound.incident", "open")
    assert body["text"] == NOTICE.text
    assert body["incident"]["findings"][0]["culprits"] == [2]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "delivered"), (301, "refused"), (400, "refused"), (404, "refused"), (410, "refused"), (429, "unavailable"),
     (408, "unavailable"), (425, "unavailable"), (500, "unavailable"), (503, "unavailable")],
)  # fmt: skip
def test_an_answer_says_whether_to_try_again(status, outcome):
    headers = {"Location": "https://elsewhere.example"} if status == 301 else {}
    delivery = webhook(lambda _: httpx.Response(status, headers=headers)).deliver(NOTICE)
    assert delivery.outcome == outcome
    assert SECRET not in delivery.detail


@pytest.mark.parametrize(
    "error", [httpx.ConnectError, httpx.ReadTimeout, httpx.ConnectTimeout, httpx.RemoteProtocolError, httpx.ProxyError]
)
def test_a_receiver_who_cannot_be_reached_is_tried_again(error):
    def answer(request):
        raise error(f"no way to {request.url}", request=request)

    delivery = webhook(answer).deliver(NOTICE)
    assert delivery.outcome == "unavailable"
    assert SECRET not in delivery.detail
    assert "hooks.example" in delivery.detail


@pytest.mark.parametrize(
    "url", ["", "hooks.example/x", "ftp://hooks.example", "https://", "http://[::1", "file:///etc"]
)
def test_a_url_that_cannot_be_posted_to_is_refused_at_the_start(url):
    with pytest.raises(InvalidSetting, match="webhook_url"):
        Webhook(url)
