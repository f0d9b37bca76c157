"""`pacehound alerts test`, `silence` and `acknowledge`, and what the doctor says of sinks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from alerts.orders import OrdersFile, Silence
from pacehound.cli import pacehound
from pacehound.cli.doctor_checks import check_alerts
from pacehound.settings import AlertSettings
from tests.fakes.webhook import FakeWebhook


def said(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(pacehound, ["alerts", *arguments])
    return result.exit_code, result.output


def test_a_test_alert_goes_to_the_sink_that_is_named_and_what_became_of_it_is_said() -> None:
    with FakeWebhook(answers=[200, 503]) as webhook:
        where = ("--set", f"alerts.webhook_url={webhook.url}", "--set", "alerts.slack_url=http://127.0.0.1:1/s3cret")
        status, words = said("test", "webhook", *where, "--json")
        assert status == 1
        assert [one["outcome"] for one in json.loads(words)["deliveries"]] == ["delivered", "unavailable"]
        assert [one.body["state"] for one in webhook.received] == ["open", "closed"]
        webhook.answers = [200]
        status, words = said("test", "webhook", *where)
        assert (status, words) == (0, "webhook: open: delivered\nwebhook: closed: delivered\n")
        status, words = said("test", *where)
        assert status == 1
        assert "slack: open: unavailable (127.0.0.1:1: ConnectError)" in words
        assert "s3cret" not in words


def test_a_sink_that_is_not_set_is_refused_with_those_that_are() -> None:
    status, words = said("test", "pager", "--set", "alerts.webhook_url=http://127.0.0.1:1/x")
    assert (status, words) == (2, "pacehound: no sink 'pager' is set; set are webhook\n")


def test_silences_and_acknowledgements_reach_the_file_that_the_alerts_read(tmp_path: Path) -> None:
    path = tmp_path / "orders"
    where = ("--set", f"alerts.orders_file={path}")
    assert said("silence", "--job", "pre-*", "--for", "2h", "--why", "new switch", *where)[0] == 0
    assert said("acknowledge", "i7", *where)[0] == 0
    file = OrdersFile(path)
    file.look()
    silence, acknowledgement = file.orders.said
    assert isinstance(silence, Silence)
    assert (silence.job, silence.why, silence.until_ns - silence.from_ns) == ("pre-*", "new switch", 7200 * 10**9)
    assert file.orders.acknowledgement({"i7"}, 0) == acknowledgement


@pytest.mark.parametrize("duration", ["2", "0h", "h", "-1h", "2y", "99999d"])
def test_a_duration_that_is_none_is_refused_with_what_to_write(duration: str, tmp_path: Path) -> None:
    status, words = said(
        "silence", "--job", "j", f"--for={duration}", "--why", "w", "--set", f"alerts.orders_file={tmp_path / 'o'}"
    )
    assert status == 2
    assert "write a number and s, m, h or d" in words


def test_the_doctor_tries_the_sinks_and_tells_nobody_anything() -> None:
    assert check_alerts(AlertSettings()).result == "ok"
    with FakeWebhook() as webhook:
        assert check_alerts(AlertSettings(webhook_url=webhook.url)).detail.startswith("webhook answer")
        assert webhook.received == []
    away = check_alerts(AlertSettings(slack_url="http://127.0.0.1:1/s3cret"))
    assert (away.result, away.detail) == ("missing", "slack: 127.0.0.1:1: ConnectError")
    wrong = check_alerts(AlertSettings(smtp_url="http://h"))
    assert (wrong.result, "alerts.smtp_url" in wrong.detail) == ("missing", True)
