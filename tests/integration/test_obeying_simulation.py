"""A simulated job behind a real head is commanded as a real one is: by the same commands, over the same channel."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bench.rig.loopback import Loopback
from pacehound.bus.otlp import OtlpProducer
from pacehound.bus.signing import Keys, public_key_of
from pacehound.clock import SystemClock
from pacehound.model import codec
from pacehound.model.events import Topology
from simulator.job import JobSpec, simulate
from simulator.obedient_agents import ObedientAgents
from simulator.obeying import obey
from simulator.running_job import RunningJob

pytestmark = [pytest.mark.integration, pytest.mark.prove]
JOB = "simulated"


def test_it_is_paused_measured_and_given_an_order_by_hand(tmp_path: Path) -> None:
    hosts, stopping = Loopback(tmp_path, JOB), threading.Event()
    hosts.start_head()
    sender = OtlpProducer(hosts.url, {"authorization": f"Bearer {hosts.token}"})
    running = RunningJob(slowness=[1.0, 1.0, 2.0, 1.0], step_s=0.02)
    agents = ObedientAgents(JOB, running, Keys([public_key_of(hosts.store)]), [(0, 1), (2, 3)])
    # A head gives orders to jobs that it has heard of.
    sender.send([codec.encode(one) for one in simulate(JobSpec(job=JOB)).events() if isinstance(one, Topology)])
    thread = threading.Thread(target=obey, args=(agents, sender, SystemClock(), stopping))
    thread.start()
    try:
        paused = hosts.ask("pause", "--job", JOB, "--for", "1")
        assert "4 ranks are held" in paused.stdout, paused.stderr
        answer = hosts.answer("validate", "--job", JOB)
        assert [one["rank"] for one in answer["culprits"]] == [2]
        answer = hosts.answer("order", "--job", JOB, "--payload", "[9, 9, 5, 9]", "microbatches")
        assert (answer["outcome"], running.counts) == ("applied", [9, 9, 5, 9])
    finally:
        stopping.set()
        thread.join()
        hosts.stop()
