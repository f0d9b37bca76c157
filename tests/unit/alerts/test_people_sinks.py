"""PagerDuty, Slack and e-mail are told within their published schemas, whatever names hold."""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterator

import httpx
import pytest

from alerts.notice import Delivery, Notice
from alerts.sinks.email import Email
from alerts.sinks.pagerduty import PagerDuty
from alerts.sinks.slack import Slack
from alerts.sinks.webhook import Webhook, signature
from alerts.trial import trial
from pacehound.clock import ManualClock
from tests.fakes.events import finding, incident
from tests.fakes.mail import FakeMail
from tests.fakes.pager import FakePagerDuty, FakeSlack

KEY = "0123456789abcdef0123456789abcdef"
HOSTILE = [
    "<!channel> <https://evil|click> & `x`",
    "a\r\nBcc: everybody@example.org\r\n\r\nbody",
    "\x1b]0;owned\x07\u202egpj.exe",
    "<script>alert(1)</script>",
    "ü" * 5_000,
    "&" * 5_000,
]


def notices(job: str = "j") -> list[Notice]:
    many = finding(culprits=tuple(range(2048)), links=tuple((n, n + 1) for n in range(500)))
    same = {"page_url": "http://head:4319", "jobs": (job, *(f"{job}{n}" for n in range(40))), "n_incidents": 41}
    opened = incident(job=job, findings=(many,) * 8)
    ended = incident(job=job, state="closed", closed_why=job, closed_ns=5, version=3)
    return [
        Notice(incident=opened, **same),
        Notice(incident=opened, state="acknowledged", acknowledged_by=job, **same),
        Notice(incident=ended, state="closed", **same),
    ]


def pagerduty(fake: FakePagerDuty) -> PagerDuty:
    return PagerDuty(KEY, transport=httpx.MockTransport(fake))


def slack(fake: FakeSlack) -> Slack:
    return Slack("https://hooks.slack.example/services/s3cret", transport=httpx.MockTransport(fake))


@pytest.fixture(scope="module")
def mail() -> Iterator[FakeMail]:
    with FakeMail() as server:
        yield server


def by_mail(server: FakeMail, **changes: str) -> Email:
    fields = {"url": server.url, "password": "", "sender": "pacehound@example.org", "readers": "a@example.org,b@c.d"}
    return Email(**(fields | changes))


def test_pagerduty_is_triggered_acknowledged_and_resolved_by_one_key() -> None:
    fake = FakePagerDuty()
    sink = pagerduty(fake)
    states = []
    for notice in notices():
        assert sink.deliver(notice).outcome == "delivered"
        states.append(list(fake.incidents.values()))
    assert states == [["triggered"], ["acknowledged"], []]
    sink.deliver(notices()[0])
    sink.deliver(notices()[0])
    assert (fake.pages, fake.wrong) == (2, [])
    (payload,) = [event["payload"] for event in fake.events[:1]]
    assert payload["severity"] == "error"
    assert payload["custom_details"]["what to do"].startswith("look at clocks")
    assert fake.events[0]["links"][0]["href"] == "http://head:4319/#/incident/i0"


@pytest.mark.parametrize("job", HOSTILE, ids=lambda job: ascii(job)[:20])
def test_hostile_names_stay_text_within_every_schema(job: str, mail: FakeMail) -> None:
    pager, channel = FakePagerDuty(), FakeSlack()
    before = len(mail.messages)
    for notice in notices(job):
        assert pagerduty(pager).deliver(notice) == Delivery(outcome="delivered")
        assert slack(channel).deliver(notice) == Delivery(outcome="delivered")
        assert by_mail(mail).deliver(notice) == Delivery(outcome="delivered")
    assert pager.wrong == channel.wrong == []
    assert all(message["blocks"][0]["text"]["text"].isprintable() for message in channel.messages)
    for raw in mail.messages[before:]:
        message = email.message_from_bytes(raw.data, policy=email.policy.default)
        assert message["To"] == "a@example.org, b@c.d"
        assert message["Bcc"] is None
        assert message.get_content_type() == "text/plain"
        assert all(line.isprintable() for line in message.get_content().splitlines())
        assert raw.readers == ["a@example.org", "b@c.d"]


def test_slack_shows_three_lines_and_the_link() -> None:
    fake = FakeSlack()
    slack(fake).deliver(Notice(incident=incident(), page_url="http://head"))
    _, section, context = fake.messages[0]["blocks"]
    assert [line.split(":")[0] for line in section["text"]["text"].splitlines()] == ["*What*", "*Cost*", "*Do*"]
    assert context["elements"][0]["text"] == "<http://head/#/incident/i0|The incident in Pacehound>"


def test_mails_of_one_alert_are_one_thread_and_a_repeat_has_the_same_id(mail: FakeMail) -> None:
    before = len(mail.messages)
    opened, _, ended = notices()
    for notice in (opened, opened, ended):
        assert by_mail(mail).deliver(notice).outcome == "delivered"
    first, again, last = (email.message_from_bytes(raw.data) for raw in mail.messages[before:])
    assert first["Message-ID"] == again["Message-ID"] == last["In-Reply-To"] != last["Message-ID"]
    assert first["Subject"].startswith("[page] open: job j: slow")


def test_a_server_of_mail_that_is_away_busy_or_refuses_is_judged_by_what_it_says(mail: FakeMail) -> None:
    notice = notices()[0]
    assert by_mail(mail, url="smtp://127.0.0.1:1").deliver(notice).outcome == "unavailable"
    mail.answer = "451 later"
    assert by_mail(mail).deliver(notice).outcome == "unavailable"
    mail.answer = "550 never"
    assert by_mail(mail).deliver(notice).outcome == "refused"
    mail.answer = ""
    assert by_mail(mail).reach().outcome == "delivered"


def test_no_password_goes_to_a_server_that_begins_no_tls(mail: FakeMail) -> None:
    before = len(mail.messages)
    url = mail.url.replace("127.0.0.1", "user@127.0.0.2")
    delivery = by_mail(mail, url=url, password="s3cret").deliver(notices()[0])
    assert delivery.outcome == "refused"
    assert "s3cret" not in delivery.detail
    assert len(mail.messages) == before
    assert not any(b"AUTH" in line for line in mail.commands)


@pytest.mark.parametrize("state", ["down", 500, 404])
def test_what_a_sink_says_of_a_failure_holds_no_secret(state: str | int) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if state == "down":
            raise httpx.ConnectError(f"no way to {request.url}", request=request)
        return httpx.Response(int(state))

    transport = httpx.MockTransport(answer)
    for sink in (PagerDuty(KEY, transport=transport), Slack("https://h/s3cret", transport=transport)):
        delivery = sink.deliver(notices()[0])
        assert delivery.outcome == ("refused" if state == 404 else "unavailable")
        assert "s3cret" not in delivery.detail
        assert KEY not in delivery.detail


def test_a_signed_request_can_be_checked_and_an_old_one_is_known() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    clock = ManualClock(1_790_000_000 * 10**9)
    Webhook("https://h/x", "s3cret", clock, httpx.MockTransport(answer)).deliver(notices()[0])
    Webhook("https://h/x", transport=httpx.MockTransport(answer)).deliver(notices()[0])
    signed, plain = seen
    assert signed.headers["Pacehound-Timestamp"] == "1790000000"
    expected = signature("s3cret", 1_790_000_000, signed.content)["Pacehound-Signature"]
    assert signed.headers["Pacehound-Signature"] == expected
    assert signature("other", 1_790_000_000, signed.content)["Pacehound-Signature"] != expected
    assert signature("s3cret", 1_790_000_001, signed.content)["Pacehound-Signature"] != expected
    assert "Pacehound-Signature" not in plain.headers


def test_a_trial_opens_an_alert_that_says_it_is_none_and_ends_it() -> None:
    fake = FakePagerDuty()
    answers = list(trial(pagerduty(fake)))
    assert [(state, one.outcome) for state, one in answers] == [("open", "delivered"), ("closed", "delivered")]
    assert "pacehound-test" in fake.events[0]["payload"]["summary"]
    assert (fake.pages, fake.incidents) == (1, {})
