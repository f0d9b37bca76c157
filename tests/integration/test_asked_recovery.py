"""Plain Python processes ask a real head, or Kafka, which plan to go on with; whoever is killed, they never differ."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.rig import realjob
from bench.rig.broker import Broker
from pacehound.bus.signing import signer_of
from pacehound.runtime.head.client import live_owner
from pacehound.settings import KafkaSettings

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(find_spec("scipy") is None, reason="there is no scipy"),
]
SCRIPT = Path(__file__).with_name("asking_script.py")
RANKS = 4
SURVIVORS = range(RANKS - 1)
ASK_S = 6.0
"""Three times the default: what is killed when is tested here, and not how fast this machine is."""
WITHIN_S = 300
KILLS = 12
ITSELF, RECOMMENDED = 0, -1


def on_kafka(kafka: KafkaSettings) -> list[str]:
    return ["--set", f"kafka.servers={kafka.servers}", "--set", f"kafka.prefix={kafka.prefix}"]


class Job:
    """`pacehound run` of the script, beside a head in a mode, or the actuators on Kafka."""

    def __init__(self, folder: Path, mode: str, kafka: KafkaSettings | None = None) -> None:
        self.folder, self.store, self.mode, self.kafka = folder, folder / "store", mode, kafka
        self.log = (folder / "log").open("ab")
        self.number = -1
        self.head = self.start_head() if kafka is None else self.start_actuators(kafka)
        words = [sys.executable, str(SCRIPT), str(folder), str(RANKS), str(ASK_S)]
        self.process = self.start("run", "--job", "asking", *self.endpoint(), "--", *words)
        self.until(lambda: all((folder / f"{rank}.pid").exists() for rank in SURVIVORS), "the ranks begin")
        environ = Path(f"/proc/{(folder / '0.pid').read_text()}/environ").read_bytes().split(b"\0")
        self.run_dir = Path(
            next(one for one in environ if one.startswith(b"PACEHOUND_RUN_DIR=")).partition(b"=")[2].decode()
        )
        self.until(lambda: (self.run_dir / "trainer/agent.sock").exists(), "the agent listens")

    def start(self, command: str, *words: str) -> subprocess.Popen[bytes]:
        words = (sys.executable, "-m", "pacehound", command, "--store", str(self.store), *words)
        return subprocess.Popen(words, stdout=self.log, stderr=self.log)

    def start_head(self) -> subprocess.Popen[bytes]:
        head = self.start("up", "--set", f"actuators.mode={self.mode}")
        self.until(lambda: live_owner(self.store) is not None, "the head listens", head)
        return head

    def start_actuators(self, kafka: KafkaSettings) -> subprocess.Popen[bytes]:
        process = self.start("actuators", "--set", f"actuators.mode={self.mode}", *on_kafka(kafka))
        self.until(lambda: "orders are signed with" in self.said(), "the actuators begin", process)
        return process

    def endpoint(self) -> list[str]:
        """Where the agent sends to: the head of the store, else Kafka."""
        if self.kafka is None:
            return []
        keys = f"actuators.keys={signer_of(self.store).key}"
        return ["--endpoint", f"kafka://{self.kafka.servers}", "--set", keys, *on_kafka(self.kafka)]

    def until(self, done: Callable[[], bool], what: str, process: subprocess.Popen[bytes] | None = None) -> None:
        realjob.until(what, done, WITHIN_S, 0.02, self.said, process)

    def said(self) -> str:
        return (self.folder / "log").read_text()[-3000:]

    def agent(self) -> int:
        """Its process; 0 while there is none."""
        return int((self.run_dir / "agent.lock").read_text() or 0)

    def has_another_agent(self, than: int) -> bool:
        """The launcher has begun one in its place."""
        return self.agent() not in (0, than)

    def ask(self) -> None:
        self.number += 1
        (self.folder / f"ask.{self.number}").touch()

    def answers(self) -> list[int]:
        """What each survivor goes on with."""
        paths = [self.folder / f"{rank}.{self.number}" for rank in SURVIVORS]
        self.until(lambda: all(path.exists() for path in paths), "they decide")
        return [int(path.read_text()) for path in paths]

    def close(self) -> None:
        for rank in SURVIVORS:
            os.kill(int((self.folder / f"{rank}.pid").read_text()), signal.SIGKILL)
        for process in (self.process, self.head):
            process.terminate()
            process.wait(WITHIN_S)


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    made = Job(tmp_path, getattr(request, "param", "auto"))
    yield made
    made.close()


@pytest.mark.usefixtures("made_store")
def test_what_a_head_orders_all_survivors_use(job: Job) -> None:
    """A head may be slow once, when others have the processors: then nobody uses it, and they ask again."""
    for _ in range(5):
        job.ask()
        (answer,) = set(job.answers())
        if answer != ITSELF:
            break
    assert answer > 0, job.said()


@pytest.mark.kafka
def test_what_the_actuators_on_kafka_order_all_survivors_use(broker: Broker, tmp_path: Path) -> None:
    kafka = KafkaSettings(servers=broker.servers, prefix=f"{tmp_path.name}.")
    with closing(Job(tmp_path, "auto", kafka)) as job:
        test_what_a_head_orders_all_survivors_use(job)


@pytest.mark.prove
@pytest.mark.parametrize("job", ["observe"], indirect=True)
def test_in_observe_it_is_recommended_to_all(job: Job) -> None:
    for _ in range(5):
        job.ask()
        if ITSELF not in (answers := job.answers()):
            break
    assert set(answers) == {RECOMMENDED}, job.said()


@pytest.mark.prove
@pytest.mark.parametrize("victim", ["head", "agent"])
def test_whoever_is_killed_at_whatever_moment_survivors_never_differ(job: Job, victim: str) -> None:
    """A head is begun again here, an agent by its launcher."""
    came_of_it: Counter[str] = Counter()
    chance = random.Random(7)
    for _ in range(KILLS):
        agent = job.agent()
        job.ask()
        time.sleep(chance.uniform(0.0, ASK_S))
        if victim == "head":
            job.head.kill()
            job.head.wait()
        else:
            os.kill(agent, signal.SIGKILL)
        (answer,) = set(job.answers())
        came_of_it["ordered" if answer > 0 else "itself"] += 1
        if victim == "head":
            job.head = job.start_head()
        else:
            job.until(partial(job.has_another_agent, agent), "another agent")
    print("\n", victim, dict(came_of_it))
