"""Workers of two versions, one after the other and side by side, while an incident is open."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.rig.broker import Broker
from bench.rig.engine import Engine, Results
from bench.rig.realjob import until
from pacehound.model.events import Incident, Progress
from pacehound.model.topology import Layout
from simulator.faults import SlowCompute
from simulator.job import simulate
from simulator.source import DEVICE_TIMES
from simulator.spec import JobSpec
from streams.snapshots.schema import SCHEMA_VERSION

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

SPEC = JobSpec(
    layout=Layout(tp=2, dp=2),
    iterations=240,
    source=DEVICE_TIMES,
    faults=(SlowCompute(ranks=(3,), factor=2.0, from_step=60, to_step=180),),
)
OF_ANOTHER_VERSION = """
import sys
import pacehound
from streams.snapshots import schema
pacehound.__version__ = "99.0.0"
schema.SCHEMA_VERSION = int(sys.argv.pop(1))
from pacehound.cli import pacehound as command
command()
"""


class Upgraded(Engine):
    """Starts workers of another version, too."""

    def start_another(self, schema: int) -> subprocess.Popen[bytes]:
        log = self.folder / f"worker-of-{schema}-{len(self.workers)}.log"
        words = [sys.executable, "-P", "-c", OF_ANOTHER_VERSION, str(schema), "streams"]
        for override in self.overrides:
            words += ["--set", override]
        with log.open("ab") as out:
            self.workers.append(subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL))
        return self.workers[-1]


@pytest.fixture
def engine(broker: Broker, tmp_path: Path) -> Iterator[Upgraded]:
    made = Upgraded(broker.settings(f"{tmp_path.name}."), tmp_path)
    yield made
    made.stop()


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(SCHEMA_VERSION, id="the same schema", marks=[pytest.mark.prove]),
        pytest.param(SCHEMA_VERSION + 1, id="another schema"),
    ],
)
def test_an_incident_that_is_open_during_an_upgrade_is_closed_after_it(engine: Upgraded, schema: int) -> None:
    events = list(simulate(SPEC).events())
    at = [number for number, event in enumerate(events) if isinstance(event, Progress)]
    third = at[len(at) // 2]
    results = Results(engine.settings)

    def states() -> list[tuple[str, str]]:
        results.read()
        return [(event.id, event.state) for event in results.events if isinstance(event, Incident)]

    old = engine.start_worker()
    engine.publish(events[:third])
    until("the incident", lambda: any(state == "open" for _, state in states()), 120, 0.2)
    new = engine.start_another(schema)
    old.terminate()
    assert old.wait(60) == 0
    engine.publish(events[third : third + 40])
    engine.start_worker()  # and one of the old ones comes back beside it
    engine.publish(events[third + 40 :])
    until("the end of it", lambda: any(state == "closed" for _, state in states()), 180, 0.2)
    assert len({name for name, _ in states()}) == 1
    results.close()
    assert results.dead_letters() == []
    assert new.poll() is None, engine.log()
