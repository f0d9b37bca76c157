"""A real Alertmanager (Debian's package, where it is installed): one page for one fault, and its end."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

from alerts.sinks.alertmanager import Alertmanager
from alerts.worker import AlertWorker, Past
from bench.rig.realjob import until
from pacehound.bus import Message
from pacehound.clock import ManualClock, SystemClock
from pacehound.model.events import Incident
from pacehound.runtime.telemetry import Telemetry
from tests.fakes.events import finding, incident
from tests.fakes.webhook import FakeWebhook

PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager") or ""
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not PROGRAM, reason="Alertmanager is not installed (make debian)"),
]
ROOT = Path(__file__).parents[2]
WITHIN_S = 30


@contextmanager
def alertmanager(folder: Path, pages_to: str) -> Iterator[str]:
    """It runs with our own routes, and shorter waits; its page goes to a webhook of ours."""
    config = yaml.safe_load((ROOT / "docker/alertmanager.yml").read_text(encoding="utf-8"))
    config["route"] |= {"group_wait": "1s", "group_interval": "1s"}
    config["receivers"][0]["webhook_configs"] = [{"url": pages_to, "send_resolved": True}]
    path = folder / "alertmanager.yml"
    path.write_text(yaml.safe_dump(config))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [PROGRAM, f"--config.file={path}", f"--storage.path={folder / 'data'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}"
            until("it is ready", lambda: process.poll() is not None or is_ready(url), WITHIN_S, 0.1)
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            yield url
        finally:
            process.terminate()
            process.wait(timeout=10)


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready").status_code == 200
    except httpx.HTTPError:
        return False


def active(url: str) -> set[tuple[str, str]]:
    found = httpx.get(f"{url}/api/v2/alerts", params={"active": "true"}).json()
    return {(one["labels"]["incident"], one["labels"]["severity"]) for one in found}


def test_ten_jobs_that_go_down_at_once_are_one_page_there_which_ends_with_the_last(tmp_path: Path) -> None:
    now_ns = SystemClock().now_ns()
    with FakeWebhook() as pager, alertmanager(tmp_path, pager.url) as url:
        sink = Alertmanager(url)
        worker = AlertWorker([sink], lambda partitions: Past(), ManualClock(now_ns), Telemetry())

        def take(one: Incident) -> None:
            worker.on_event(one, Message(topic="incidents", key=one.job, partition=0, offset=0, value=b""))
            worker.on_settled()

        def job(number: int, **changes: object) -> Incident:
            same = {"id": f"i{number}", "job": f"<b>{number}\x1b", "opened_ns": now_ns, "time_ns": now_ns}
            stands = finding(kind="hang", cause="H3", magnitude=None)
            return incident(**(same | {"findings": (stands,)} | changes))

        assert sink.reach().outcome == "delivered"
        for number in range(10):
            take(job(number))
        until("all fire", lambda: active(url) == {(f"i{n}", "halt") for n in range(10)}, WITHIN_S, 0.1)
        until("somebody is paged", lambda: alerts_of(pager) == 10, WITHIN_S, 0.1)
        assert len({one.body["groupKey"] for one in pager.received}) == 1
        for number in range(10):
            take(job(number, version=1, state="closed", closed_ns=now_ns + 10**6))
        until("none fires", lambda: active(url) == set(), WITHIN_S, 0.1)
        until("the page ends", lambda: pager.received[-1].body["status"] == "resolved", WITHIN_S, 0.1)
        assert len({one.body["groupKey"] for one in pager.received}) == 1
        worker.close()


def alerts_of(pager: FakeWebhook) -> int:
    return max((len(one.body["alerts"]) for one in pager.received), default=0)
