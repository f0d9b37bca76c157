"""From the version before to this one while an incident is open: its own code, with agents and workers of both."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bench.rig.broker import Broker
from bench.rig.engine import Engine, Results
from bench.rig.realjob import REPOSITORY, until
from pacehound.bus import Message
from pacehound.bus.recording import RecordingWriter
from pacehound.model import codec
from pacehound.model.events import Incident, IterationSample
from pacehound.model.routing import Event, route
from pacehound.model.topology import Layout
from pacehound.settings import KafkaSettings
from simulator.faults import SlowCompute
from simulator.job import simulate
from simulator.source import DEVICE_TIMES
from simulator.spec import JobSpec

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.prove]

BEFORE = "e6ad0041b6766c944a72f39875f8b1689a1fe6cf"
"""The last commit whose agents know one message per communicator alone (docs/adr/0027-one-message-per-host.md); its
workers keep their state with schema 6."""

ITERATIONS = 240
SPEC = JobSpec(
    layout=Layout(tp=2, dp=4),
    iterations=ITERATIONS,
    source=DEVICE_TIMES,
    ranks_per_host=2,
    faults=(SlowCompute(ranks=(3,), factor=2.0, from_step=60, to_step=180),),
)
SLICES = 40

AN_AGENT = """
import sys
from pathlib import Path
from bench.rig.engine import Engine
from pacehound.bus.recording import Recording
from pacehound.model import codec
from pacehound.settings import Settings
print(codec.__file__, flush=True)
engine = Engine(Settings.load({}, sys.argv[2:]).kafka, Path(sys.argv[1]))
for line in sys.stdin:
    engine.publish([event for message in Recording(Path(line.strip())) for event in codec.decode(message.value)])
    print("sent", flush=True)
"""


class FromBefore(Engine):
    """Starts workers and an agent of the version before, too."""

    def __init__(self, settings: KafkaSettings, folder: Path, code: Path) -> None:
        super().__init__(settings, folder)
        self._env = {**os.environ, "PYTHONPATH": str(code)}
        self._sent = 0
        self._agent = subprocess.Popen(
            [sys.executable, "-P", "-c", AN_AGENT, str(self.folder / "agent"), *self.overrides],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._env,
            text=True,
        )
        assert self._agent.stdout is not None
        assert self._agent.stdout.readline().startswith(str(code)), "its code is not of the version before"

    def start_worker_of_before(self) -> subprocess.Popen[bytes]:
        log = self.folder / f"worker-of-before-{len(self.workers)}.log"
        self.workers.append(self.started("streams", log, env=self._env))
        return self.workers[-1]

    def publish_as_before(self, events: Sequence[Event]) -> None:
        """By the agent of before, which says them in its own words."""
        if not events:
            return
        self._sent += 1
        path = self.folder / f"said-{self._sent}"
        writer = RecordingWriter(path)
        for offset, event in enumerate(events):
            topic, key = route(event)
            writer.write(Message(topic=topic.name, key=key, partition=0, offset=offset, value=codec.encode(event)))
        writer.close()
        assert self._agent.stdin is not None
        assert self._agent.stdout is not None
        print(path, file=self._agent.stdin, flush=True)
        assert self._agent.stdout.readline() == "sent\n", self.log()

    def stop(self) -> None:
        self._agent.kill()
        self._agent.communicate()
        super().stop()


@pytest.fixture
def engine(broker: Broker, tmp_path: Path) -> Iterator[FromBefore]:
    code = tmp_path / "before"
    code.mkdir()
    archive = subprocess.run(["git", "archive", BEFORE], cwd=REPOSITORY, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history does not go back to {BEFORE}: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(code)], input=archive.stdout, check=True)
    made = FromBefore(broker.settings(f"{tmp_path.name}."), tmp_path / "engine", code)
    yield made
    made.stop()


def test_workers_and_agents_of_both_versions_lose_nothing_and_say_nothing_twice(engine: FromBefore) -> None:
    events = list(simulate(SPEC).events())
    hosts = sorted({host for event in events if (host := getattr(event, "host", ""))})
    assert len(hosts) == 4
    cut = [len(events) * part // SLICES for part in range(SLICES + 1)]
    results = Results(engine.settings)

    def say(parts: range, of_before: Sequence[str]) -> None:
        for part in parts:
            said = events[cut[part] : cut[part + 1]]
            engine.publish_as_before([event for event in said if getattr(event, "host", "") in of_before])
            engine.publish([event for event in said if getattr(event, "host", "") not in of_before])

    def states() -> list[tuple[str, str]]:
        results.read()
        return [(event.id, event.state) for event in results.events if isinstance(event, Incident)]

    old = engine.start_worker_of_before()
    say(range(20), of_before=hosts)
    until("the incident", lambda: any(state == "open" for _, state in states()), 120, 0.2, engine.log)
    new = engine.start_worker()
    say(range(20, 23), of_before=hosts)
    old.terminate()
    assert old.wait(60) == 0, engine.log()
    say(range(23, 26), of_before=hosts[:2])
    engine.start_worker_of_before()  # one of the old ones comes back beside the new one
    say(range(26, 30), of_before=hosts[:1])
    say(range(30, SLICES), of_before=())
    until("the end of it", lambda: any(state == "closed" for _, state in states()), 180, 0.2, engine.log)
    assert new.poll() is None, engine.log()
    results.close()
    assert results.dead_letters() == []
    incidents = results.incidents()
    assert len({name for name, _ in incidents}) == 1
    last = incidents[max(incidents, key=lambda one: one[1])]
    print(f"{len(events)} messages, versions of the incident: {sorted(version for _, version in incidents)}")
    assert {rank for finding in last.findings for rank in finding.culprits} == {3}
    steps = {event.step for event in results.events if isinstance(event, IterationSample)}
    assert steps == set(range(min(steps), ITERATIONS))
    assert min(steps) <= 1
