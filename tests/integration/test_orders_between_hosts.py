"""Orders to scripts whose ranks are on two hosts, and by way of Kafka: at one step on all of them, or on none."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_world import Ours, events_on, publish

from bench.rig import realjob
from bench.rig.broker import Broker
from bench.rig.loopback import Loopback, kill
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.bus.signing import signer_of
from pacehound.model.events import Cost, Decision
from pacehound.model.evidence.computing import OwnTimeGrew
from pacehound.model.evidence.machines import NobodySlow
from pacehound.model.topics import DECISIONS
from pacehound.settings import KafkaSettings
from tests.fakes.events import finding, incident
from tests.integration.ordered_script import EACH

pytestmark = [pytest.mark.integration, pytest.mark.prove]
SCRIPT = Path(__file__).with_name("ordered_script.py")
RANKS = 3
JOB = "ordered"
WITHIN_S = 120
KILLS = 6


class Scripts:
    """What three ranks have written down, wherever they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def command(self, n: int, first: int = 0) -> list[str]:
        """So many of them."""
        return [sys.executable, str(SCRIPT), str(self.folder), str(n), str(first), str(RANKS)]

    def step(self) -> int:
        """Of the slowest; -1 before all have begun."""
        steps = []
        for rank in range(RANKS):
            path = self.folder / f"{rank}.step"
            steps.append(int(path.read_text() or -1) if path.exists() else -1)
        return min(steps)

    def applied(self) -> list[list[str]]:
        """By rank."""
        return [(self.folder / f"{rank}.applied").read_text().splitlines() for rank in range(RANKS)]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Loopback]:
    made = Loopback(tmp_path, JOB)
    made.start_head()
    yield made
    made.stop()


def test_ranks_of_two_hosts_apply_an_order_at_one_step_or_none_does_where_an_agent_is_killed(
    hosts: Loopback, tmp_path: Path
) -> None:
    scripts = Scripts(tmp_path / "out")
    for host, n, first in (("a", 2, 0), ("b", 1, 2)):
        hosts.start(host, scripts.command(n, first))
    realjob.until("all ranks begin", lambda: scripts.step() > 5, WITHIN_S, 0.1)
    realjob.until("the agents listen", lambda: hosts.agent("a") and hosts.agent("b"), WITHIN_S, 0.1)
    answer = hosts.answer("order", "--job", JOB, "--payload", "[3, 5, 4]", "microbatches")
    assert (answer["outcome"], {one["host"] for one in answer["ranks"]}) == ("applied", {"a", "b"}), answer
    assert scripts.applied() == [[f"{answer['step']} microbatches {n}"] for n in (3, 5, 4)]
    for number in range(KILLS):
        host = "ab"[number % 2]
        realjob.until("the agents listen", lambda: hosts.agent("a") and hosts.agent("b"), WITHIN_S, 0.1)
        words = ["order", "--store", str(hosts.store), "--job", JOB, "--json", "--payload", "[1, 2, 3]", "microbatches"]
        ordering = subprocess.Popen(
            [*realjob.PACEHOUND, *words], stdout=subprocess.PIPE, env=realjob.environment(), text=True
        )
        time.sleep(random.Random(number).uniform(0.5, 8))  # the moment is what is drawn
        kill(hosts.agent(host))
        found: dict[str, Any] = json.loads(ordering.communicate(timeout=WITHIN_S)[0])
        behind = max(scripts.step(), found["step"] or 0) + 50
        realjob.until("the step has passed", lambda behind=behind: scripts.step() > behind, WITHIN_S, 0.1)
        steps = {tuple(line.split()[0] for line in lines) for lines in scripts.applied()}
        assert len(steps) == 1, f"kill {number} on {host}: {scripts.applied()}, {found}"
        print(f"agent of {host} killed: {found['outcome']}, {found['reason']}")


@pytest.mark.kafka
def test_on_kafka_a_person_and_the_actuators_give_scripts_orders(broker: Broker, tmp_path: Path) -> None:
    kafka = KafkaSettings(servers=broker.servers, prefix=f"{tmp_path.name}.")
    ensure_topics(kafka)
    keys, scripts = tmp_path / "keys", Scripts(tmp_path / "out")
    keys.mkdir(mode=0o700)
    run = realjob.start(
        tmp_path,
        scripts.command(RANKS),
        *("--endpoint", f"kafka://{kafka.servers}", "--job", JOB),
        settings=[f"kafka.prefix={kafka.prefix}", f"actuators.keys={signer_of(keys).key}", "host.name=a"],
    )
    try:
        realjob.until("all ranks begin", lambda: scripts.step() > 5, WITHIN_S, 0.1)
        where = ["--set", f"kafka.servers={kafka.servers}", "--set", f"kafka.prefix={kafka.prefix}"]
        words = ["order", "--store", str(keys), "--job", JOB, "--json", "--payload", "[3, 5, 4]", *where]
        answer = json.loads(realjob.pacehound(*words, "microbatches", timeout_s=WITHIN_S))
        assert answer["outcome"] == "applied"
        assert scripts.applied() == [[f"{answer['step']} microbatches {n}"] for n in (3, 5, 4)]

        grew = OwnTimeGrew(ranks=(1,), own_s=0.4, peers_s=0.0, iteration_s=0.4)
        evidence = (grew, NobodySlow(n_measured=3, n_cleared=3))
        proven = finding(cause="S1", culprits=(1,), candidates=(), victims=(), magnitude=1.0, evidence=evidence)
        now_ns = time.time_ns()
        slow = incident(id="slow", job=JOB, findings=(proven,), cost=Cost(excess_s=8.0, ranks=RANKS), time_ns=now_ns)
        environ = {"PACEHOUND_ACTUATORS_MODE": "auto"}
        with Ours("actuators", kafka, tmp_path / "log", environ, arguments=("--store", str(keys))) as ours:
            publish(kafka, slow)
            say = lambda: f"{ours.text()[-2000:]} {scripts.applied()}"  # noqa: E731
            realjob.until("it is moved", lambda: len(scripts.applied()[0]) > 1, WITHIN_S, 0.2, say=say)
            realjob.until("all have", lambda: {len(one) for one in scripts.applied()} == {2}, WITHIN_S, 0.2, say=say)
        moved = [one[1].split() for one in scripts.applied()]
        assert len({step for step, *_ in moved}) == 1, moved
        counts = [int(count) for *_, count in moved]
        assert sum(counts) == EACH * RANKS
        assert counts[1] < EACH, "the slow one has fewer"
        decided = [one for one in events_on(kafka, DECISIONS) if isinstance(one, Decision) and one.taken]
        assert [one.action for one in decided] == ["adjust_microbatches"]
    finally:
        run.stop()
