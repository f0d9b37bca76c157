"""Both stages on a real broker: the same answers as in one process, with workers that come, go and die."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.rig.broker import Broker
from bench.rig.engine import Engine, Results
from bench.rig.realjob import until
from pacehound.model.events import Incident
from pacehound.model.routing import Event
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import SlowCompute
from simulator.job import simulate
from simulator.source import DEVICE_TIMES
from simulator.spec import JobSpec
from streams.pipeline import Pipeline

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
]

Versions = dict[tuple[str, int], Incident]


@pytest.fixture
def engine(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = Engine(broker.settings(f"{request.node.name}."), tmp_path / "engine")
    yield made
    made.stop()


def job(name: str, seed: int, *, ranks: tuple[int, ...], iterations: int = 60) -> list[Event]:
    """64 ranks in which some become slow."""
    fault = SlowCompute(ranks=ranks, factor=2.5, from_step=36)
    spec = JobSpec(
        layout=Layout(tp=2, dp=8, pp=4),
        iterations=iterations,
        micro_batches=4,
        tp_calls=1,
        ranks_per_host=8,
        source=DEVICE_TIMES,
        faults=(fault,),
        seed=seed,
        job=name,
    )
    return list(simulate(spec).events())


def embedded(events: list[Event]) -> Versions:
    """What one process concludes from the same input."""
    pipeline, found = Pipeline(Settings()), {}
    for event in events:
        found |= {(out.id, out.version): out for out in pipeline.on_event(event) if isinstance(out, Incident)}
    return found


def interleaved(jobs: list[list[Event]], rng: random.Random) -> list[Event]:
    """Several jobs at once; each keeps its order."""
    left, out = [iter(events) for events in jobs], []
    while left:
        one = rng.choice(left)
        for _ in range(rng.randrange(1, 40)):
            event = next(one, None)
            if event is None:
                left.remove(one)
                break
            out.append(event)
    return out


def expect(engine: Engine, expected: Versions, within_s: float = 150.0) -> Results:
    results = Results(engine.settings)

    def is_there() -> bool:
        results.read()
        return results.incidents().keys() >= expected.keys()

    try:
        until("the incidents", is_there, within_s, 0.0)
    except AssertionError:
        raise AssertionError(f"{len(results.incidents())} of {len(expected)}: {engine.log()[-4000:]}") from None
    assert results.incidents() == expected
    assert not results.dead_letters()
    results.close()
    return results


def test_a_worker_concludes_what_one_process_concludes(engine: Engine) -> None:
    events = job("one", 3, ranks=(9,))
    engine.start_worker()
    engine.publish(events)
    expected = embedded(events)
    assert any(finding.culprits == (9,) for incident in expected.values() for finding in incident.findings)
    expect(engine, expected)


@pytest.mark.prove  # in the suite, test_fault_run.py kills one
def test_workers_that_are_killed_or_stopped_lose_nothing_and_say_nothing_twice(engine: Engine) -> None:
    rng = random.Random(7)
    jobs = [job(f"job {number}", number, ranks=(number,)) for number in range(3)]
    expected: Versions = {}
    for events in jobs:
        expected |= embedded(events)
    engine.start_worker()
    engine.start_worker()
    count, kills = 0, [700, 2500, 4200]

    def now_and_then() -> None:
        nonlocal count
        count += 1
        if count in kills:
            victim = rng.choice([worker for worker in engine.workers if worker.poll() is None])
            if count == kills[1]:
                victim.send_signal(signal.SIGSTOP)  # it wakes up when others have its partitions
                engine.start_worker()
            else:
                victim.kill()
                engine.start_worker()
        if count == kills[2]:
            for worker in engine.workers:
                if worker.poll() is None:
                    worker.send_signal(signal.SIGCONT)

    engine.publish(interleaved(jobs, rng), now_and_then)
    expect(engine, expected)
