"""Alerts of a head over its real store and a real webhook, also when the process is killed in between."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.rig.realjob import until
from pacehound.model import codec
from pacehound.model.routing import route
from pacehound.runtime.embedded import open_parts
from pacehound.runtime.head.node import Head
from pacehound.runtime.telemetry import Telemetry
from pacehound.settings import AlertSettings, Settings
from storage.client import Store
from storage.read import told
from tests.fakes.events import incident
from tests.fakes.webhook import FakeWebhook

pytestmark = [pytest.mark.integration]

ROOT = Path(__file__).parents[2]

# Tells of one open incident, notes that it did, says so, and waits to be killed. Where it never gets so far, it says
# what each of its threads was at.
TELL_AND_WAIT = """
import faulthandler, sys, time
from pathlib import Path
from tests.integration.test_store_alerts import a_head, hear
from tests.fakes.events import incident

faulthandler.dump_traceback_later(90, exit=True)
head = a_head(Path(sys.argv[1]), sys.argv[2])
hear(head, incident())
while head.query("SELECT count() AS n FROM notifications").column("n")[0].as_py() == 0:
    time.sleep(0.05)
faulthandler.cancel_dump_traceback_later()
print("told", flush=True)
time.sleep(60)
"""


def a_head(folder, url):
    telemetry = Telemetry()
    settings = Settings(alerts=AlertSettings(webhook_url=url))
    head = Head(settings=settings, parts=open_parts(settings, folder, telemetry), telemetry=telemetry)
    head.start()
    return head


def hear(head, *incidents):
    """As if the pipeline had concluded them."""
    for one in incidents:
        head.bus.publish(*route(one), codec.encode(one))


def told_of(folder):
    with Store.open(folder) as store:
        return {(one.incident, one.state) for one in told(store)}


def test_what_a_killed_head_could_not_tell_is_told_by_the_next(tmp_path):
    # What ended days ago is told to nobody, and a receiver hears nothing of what was before it was first told.
    with FakeWebhook(answers=[200, 503]) as webhook:
        head = a_head(tmp_path, webhook.url)
        hear(head, incident(id="before", job="k", time_ns=time.time_ns(), opened_ns=time.time_ns()))
        assert webhook.wait_for(1)
        assert until("it is noted", lambda: head.query("SELECT incident FROM notifications").num_rows, 10, 0.05)
        hear(head, incident(time_ns=time.time_ns(), opened_ns=time.time_ns()))
        assert webhook.wait_for(2)
        assert head.stop()
        webhook.answers = [200]
        head = a_head(tmp_path, webhook.url)
        assert webhook.wait_for(4)
        assert head.stop()
    assert told_of(tmp_path) == {("before", "open"), ("before", "closed"), ("i0", "closed")}, (
        "nobody watched it further"
    )


def test_each_state_reaches_the_webhook_once_though_the_process_is_killed_in_between(tmp_path):
    said = tmp_path / "said"
    with FakeWebhook() as webhook:
        command = [sys.executable, "-c", TELL_AND_WAIT, str(tmp_path), webhook.url]
        places = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "fakes")])
        environment = os.environ | {"PYTHONPATH": places}
        with said.open("w") as errors:
            first = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=environment
            )
        try:
            assert first.stdout.readline() == "told\n", f"{webhook.delivered}\n{said.read_text()}"
        finally:
            first.send_signal(signal.SIGKILL)
            first.wait(timeout=10)
            first.stdout.close()
        head = a_head(tmp_path, webhook.url)
        hear(head, incident(version=1))
        assert webhook.wait_for(2)
        assert head.stop()
        assert webhook.delivered == [("i0", "open"), ("i0", "closed")]  # the next head closes what nobody watched


def test_a_webhook_that_is_away_gets_every_notice_once_it_is_back(tmp_path):
    with FakeWebhook(answers=[503, 200]) as webhook:
        head = a_head(tmp_path, webhook.url)
        hear(head, incident(), incident(id="i1"))
        assert webhook.wait_for(3)
        assert head.stop()
        assert webhook.delivered[:2] == [("i0", "open"), ("i1", "open")]
        assert webhook.received[0].key == webhook.received[1].key  # the same notice, tried twice
    assert {("i0", "open"), ("i1", "open")} <= told_of(tmp_path)


def test_a_receiver_who_is_not_there_delays_the_end_by_no_more_than_was_allowed(tmp_path):
    head = a_head(tmp_path, "http://127.0.0.1:9/")
    hear(head, incident())
    assert head.settle(10.0)
    began_s = time.monotonic()
    assert head.stop(timeout_s=4.0)
    assert time.monotonic() - began_s < 8.0
    assert told_of(tmp_path) == set()
