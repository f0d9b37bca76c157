"""A job of more than 1,024 ranks, told call by call, on a real broker: its hosts speak at home, in spite of a kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.rig.broker import Broker
from bench.rig.engine import Engine, Results
from bench.rig.flushes import together
from bench.rig.from_log import from_log
from bench.rig.realjob import until
from pacehound.bus.kafka_reader import read_to_end
from pacehound.model import topics
from pacehound.model.routing import Event
from pacehound.model.shards import HOME_KEY, RELAYED_KEY
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import SlowCompute
from simulator.job import simulate
from simulator.source import DEVICE_TIMES
from simulator.spec import JobSpec

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
]

LAYOUT = Layout(tp=8, dp=17, pp=8)
SLOW_RANK = 700


@pytest.fixture
def engine(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = Engine(broker.settings(f"{request.node.name[:40]}."), tmp_path / "engine")
    yield made
    made.stop()


def said_at_once() -> list[Event]:
    """What the 136 hosts of 1,088 ranks say, one of which becomes slow."""
    slow = SlowCompute(ranks=(SLOW_RANK,), factor=2.5, from_step=36)
    spec = JobSpec(layout=LAYOUT, iterations=60, tp_calls=1, ranks_per_host=8, source=DEVICE_TIMES, faults=(slow,))
    return list(together(simulate(spec).events()))


def test_what_homes_relay_is_concluded_from_once_although_a_worker_is_killed(engine: Engine) -> None:
    """What is said follows from the log; that it is what is said without homes is in tests/jobs/test_homes.py."""
    events = said_at_once()
    engine.start_worker()
    engine.start_worker()
    n_published = 0

    def kill_one() -> None:
        nonlocal n_published
        n_published += 1
        if n_published == len(events) // 2:
            engine.workers[0].kill()
            engine.start_worker()

    engine.publish(events, kill_one)
    results = Results(engine.settings)

    def is_over() -> bool:
        results.read()
        return any(one.state == "closed" for one in results.incidents().values())

    try:
        until("the incident", is_over, 150.0, 0.0)
    except AssertionError:
        raise AssertionError(f"{len(results.incidents())} incidents: {engine.log()[-4000:]}") from None
    assert not results.dead_letters()
    results.close()
    log = from_log(engine.settings, Settings())
    assert log.differences == []
    assert log.incidents == results.incidents()
    assert {finding.culprits for one in log.incidents.values() for finding in one.findings} == {(SLOW_RANK,)}
    calls, rounds = (
        {message.key for message in read_to_end(engine.settings, topic)} for topic in (topics.CALLS, topics.ROUNDS)
    )
    assert all(key.startswith(HOME_KEY) for key in calls), "each host says all of it at home"
    assert any(key.startswith(RELAYED_KEY) for key in rounds)
