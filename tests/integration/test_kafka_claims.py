"""Workers that claim a command of the site at the same moment, on a real broker: one of them runs it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from engine_world import publish

from actuators.acting.site import Ran
from actuators.service import decisions
from actuators.site_commands import SiteCommands
from actuators.site_folder import SiteFolder
from bench.rig.broker import Broker
from bench.rig.realjob import until
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.model.events import Decision, SiteStep
from pacehound.model.topics import DECISIONS, partition_of
from pacehound.settings import ActuatorSettings, KafkaSettings

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

N_WORKERS, N_TRIES = 4, 10


def test_whoever_is_first_in_the_log_runs_the_command_and_nobody_else(broker: Broker, tmp_path: Path) -> None:
    kafka = KafkaSettings(servers=broker.servers, prefix=f"{tmp_path.name}.")
    ensure_topics(kafka)
    ran = tmp_path / "ran"
    settings = ActuatorSettings(stop_command=f"sh -c 'echo {{attempt}} >> {ran}'")
    ordered = Decision(
        job="j", attempt=0, time_ns=1, incident="i", incident_version=0, mode="auto", action="checkpoint_restart",
        reason="", price_s=1.0, loss_s=2.0, number=1, taken=True, site=SiteStep(step="decided", n_ranks=4),
    )  # fmt: skip
    publish(kafka, ordered)
    partition = partition_of(b"j", DECISIONS.partitions)
    workers = [
        SiteCommands(settings, SiteFolder(tmp_path / str(number)), lambda _: decisions(kafka, [partition]))
        for number in range(N_WORKERS)
    ]
    at_once = threading.Barrier(N_WORKERS)

    def claims(worker: SiteCommands, number: int) -> str:
        """Why somebody else runs this try; empty where it is run here."""
        origin = worker.origin
        step = SiteStep(step="stop", restart=ordered.identity(), state="begins", number=number,
                        by=origin.by, where=origin.where, host=origin.host)  # fmt: skip
        claim = replace(ordered, action="stop_job", number=2 + number, site=step)
        at_once.wait()
        publish(kafka, claim)
        if not (why := worker.why_not(claim)):
            worker.begin(run=f"run{number}", name="stop", values={"attempt": str(number)})
            until("it has ended", lambda: isinstance(worker.seen(f"run{number}"), Ran), 30, 0.05)
        return why

    with ThreadPoolExecutor(N_WORKERS) as pool:
        for number in range(N_TRIES):
            whys = list(pool.map(lambda worker, number=number: claims(worker, number), workers))
            assert whys.count("") == 1, whys
            assert all("runs the stop command" in why for why in whys if why), whys
    assert ran.read_text().split() == [str(number) for number in range(N_TRIES)]
