"""Alerts over a real store and a real webhook, also when the process is killed in between."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from alerts.app import Alerts
from alerts.sinks.webhook import Webhook
from storage.client import Store
from storage.notifications import NotificationLog
from tests.fakes.events import incident
from tests.fakes.webhook import FakeWebhook

pytestmark = [pytest.mark.integration]

ROOT = Path(__file__).parents[2]

# Tells of one open incident, says so, and waits to be killed.
TELL_AND_WAIT = """
import sys, time
from pathlib import Path
from tests.fakes.events import incident
from alerts.app import Alerts
from alerts.sinks.webhook import Webhook
from storage.client import Store
from storage.notifications import NotificationLog

alerts = Alerts(Webhook(sys.argv[2]), NotificationLog(Store.open(Path(sys.argv[1]))))
alerts.on_incident(incident())
alerts.step()
print("told", flush=True)
time.sleep(60)
"""


def test_each_state_reaches_the_webhook_once_though_the_process_is_killed_in_between(tmp_path):
    with FakeWebhook() as webhook:
        command = [sys.executable, "-c", TELL_AND_WAIT, str(tmp_path), webhook.url]
        first = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
        try:
            assert first.stdout.readline() == "told\n"
        finally:
            first.send_signal(signal.SIGKILL)
            first.wait(timeout=10)
            first.stdout.close()
        with Store.open(tmp_path) as store:
            alerts = Alerts(Webhook(webhook.url), NotificationLog(store))
            alerts.start()
            alerts.catch_up([incident(version=1)])
            alerts.on_incident(incident(version=1))
            alerts.on_incident(incident(version=2, state="closed"))
            assert alerts.close(timeout_s=10.0) == 0
        assert webhook.delivered == [("i0", "open"), ("i0", "closed")]


def test_a_webhook_that_is_away_gets_every_notice_once_it_is_back(tmp_path):
    with FakeWebhook(answers=[503, 200]) as webhook, Store.open(tmp_path) as store:
        alerts = Alerts(Webhook(webhook.url), NotificationLog(store))
        alerts.start()
        alerts.on_incident(incident())
        alerts.on_incident(incident(id="i1"))
        assert webhook.wait_for(3)
        assert alerts.close(timeout_s=10.0) == 0
        assert webhook.delivered == [("i0", "open"), ("i1", "open")]
        assert webhook.received[0].key == webhook.received[1].key  # the same notice, tried twice
        assert NotificationLog(store).sent() == {("i0", "open"), ("i1", "open")}


def test_a_receiver_who_is_not_there_delays_the_end_by_no_more_than_was_allowed(tmp_path):
    with Store.open(tmp_path) as store:
        alerts = Alerts(Webhook("http://127.0.0.1:9/"), NotificationLog(store))
        alerts.start()
        alerts.on_incident(incident())
        assert alerts.close(timeout_s=0.3) == 1
        assert NotificationLog(store).sent() == set()
