"""`pacehound run --endpoint kafka://…`: what a real job's agent puts on a real broker, whatever dies meanwhile."""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from bench.rig import realjob
from bench.rig.broker import Broker
from pacehound.bus import Message
from pacehound.bus.kafka_reader import read_to_end
from pacehound.errors import Unavailable
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.events import HostSample, Markers, Progress, Topology
from pacehound.model.flushes import Flush
from pacehound.model.routing import Event, route
from pacehound.model.topics import CALLS, HOSTS, partition_of
from pacehound.settings import KafkaSettings

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
]

SCRIPT = realjob.STEADY
RANKS = 2
PAUSE_S = 0.02


@pytest.fixture
def start_job() -> Iterator[Callable[[Path, Broker], Job]]:
    """Starts jobs, and ends those that a failed test has left."""
    started: list[Job] = []

    def start(folder: Path, broker: Broker) -> Job:
        started.append(Job(folder, broker))
        return started[-1]

    yield start
    for job in started:
        job.run.stop()


class Job:
    """A job that is being watched, and what its agent says on Kafka."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder = folder
        self.settings = KafkaSettings(servers=broker.servers, prefix=f"{folder.name}.")
        self.run = realjob.start(
            folder,
            realjob.forked(PAUSE_S, folder, ranks=RANKS, script=SCRIPT),
            *("--endpoint", f"kafka://{broker.servers}", "--job", "steady"),
            settings=[f"kafka.prefix={self.settings.prefix}", "agent.flush_s=0.3"],
        )

    def times_s(self) -> list[float]:
        """When each step ended, by the job's own log."""
        return realjob.steady_step_ends_s(self.folder)

    def reach(self, step: int) -> None:
        realjob.until(f"step {step}", lambda: self.steps >= step, 120, 0.05)

    @property
    def steps(self) -> int:
        """How many there were."""
        return len(self.times_s())

    def has_sent(self) -> bool:
        """Whether something of this job stands on the broker."""
        try:
            return any(True for _ in read_to_end(self.settings, CALLS))
        except Unavailable:
            return False  # there is no topic yet

    def end(self) -> str:
        (self.folder / "stop").touch()
        assert self.run.wait(60) == 0, self.run.text()
        return self.run.text()

    def rows(self, batches: list[CallBatch]) -> Counter[tuple[str, int, int]]:
        return Counter(
            (batch.communicator, rank, seq)
            for batch in batches
            for rank, seq in zip(batch.integers("rank").tolist(), batch.integers("seq").tolist(), strict=True)
        )

    def expected(self, announced: list[Topology]) -> Counter[tuple[str, int, int]]:
        """An all_reduce per step on the world, and an all_reduce and a barrier on the second group."""
        (world,) = {topology.communicator for topology in announced if topology.is_world}
        (second,) = {topology.communicator for topology in announced if not topology.is_world}
        per_rank = {world: self.steps, second: 2 * self.steps}
        return Counter((c, rank, seq) for c, n in per_rank.items() for rank in range(RANKS) for seq in range(n))


def decoded(messages: Iterable[Message]) -> list[Event]:
    """The events of messages, which are joined anew each time that they are sent; each where it belongs."""
    events = []
    for message in messages:
        for event in codec.decode(message.value):
            _, key = route(event)
            partitions = {CALLS.name: CALLS, HOSTS.name: HOSTS}[message.topic].partitions
            assert (message.key, message.partition) == (key, partition_of(key.encode(), partitions))
            events += event.events() if isinstance(event, Flush) else [event]
    return events


def once(events: list[Event]) -> list[Event]:
    """Each stretch of a stream once: what was sent again is the same, byte for byte."""
    return list({(route(event), codec.encode(event)): event for event in events}.values())


def of(events: list[Event], kind: type) -> list:
    return [event for event in events if isinstance(event, kind)]


def check_calls(job: Job, messages: list[Message], *, may_repeat: bool) -> None:
    """Every call once; batches in the order of their numbers; promises that hold; a last word for each stream."""
    events = once(decoded(messages)) if may_repeat else decoded(messages)
    batches = of(events, CallBatch)
    assert job.rows(batches) == job.expected(of(events, Topology))
    assert not any(batch.dropped for batch in batches)
    for place in set(map(route, events)):
        stream = [event for event in events if route(event) == place]
        assert isinstance(stream[0], Topology)
        by_source = defaultdict(list)
        promised_ns = 0
        for event in stream:
            if isinstance(event, CallBatch):
                by_source[event.source].append(event.ordinal)
                assert (event.integers("end_ns") > promised_ns).all()
            elif isinstance(event, Progress):
                promised_ns = max(promised_ns, event.time_ns)
        assert all(ordinals == list(range(len(ordinals))) for ordinals in by_source.values())
        assert of(stream, Progress)[-1].closed
    steps = Counter(step for markers in of(events, Markers) for step in markers.steps)
    assert steps == Counter(dict.fromkeys(range(job.steps), RANKS))


@pytest.mark.prove
def test_a_job_s_events_stand_on_their_topics_and_partitions_in_order(
    tmp_path: Path, broker: Broker, start_job: Callable[[Path, Broker], Job]
) -> None:
    job = start_job(tmp_path, broker)
    job.reach(100)
    said = job.end()
    assert f" on this host, sent to kafka://{broker.servers}" in said
    assert f"{job.settings.prefix}incidents" in said
    check_calls(job, list(read_to_end(job.settings, CALLS)), may_repeat=False)
    samples = of(decoded(read_to_end(job.settings, HOSTS)), HostSample)
    assert samples[-1].closed
    assert [(p.rank, p.state) for p in samples[-1].processes] == [(0, "exited"), (1, "exited")]


@pytest.mark.prove  # in the suite, tests/integration/test_agent_processes.py kills one
def test_an_agent_killed_in_the_middle_sends_the_same_again(
    tmp_path: Path, broker: Broker, start_job: Callable[[Path, Broker], Job]
) -> None:
    job = start_job(tmp_path, broker)
    for step in (40, 150):
        job.reach(step)
        (agent,) = realjob.until("an agent", lambda: realjob.agents(job.run), 60, 0.05)
        os.kill(agent, signal.SIGKILL)
    realjob.until("another agent", lambda: set(realjob.agents(job.run)) - {agent}, 60, 0.1)
    job.end()
    check_calls(job, list(read_to_end(job.settings, CALLS)), may_repeat=True)


@pytest.mark.prove  # in the suite, tests/integration/test_fault_run.py kills it beside a job
def test_a_broker_killed_for_ten_seconds_costs_the_job_nothing_and_loses_nothing(
    tmp_path: Path, start_job: Callable[[Path, Broker], Job]
) -> None:
    broker = Broker(tmp_path / "kafka")
    broker.start()
    try:
        job = start_job(tmp_path, broker)
        realjob.until("something on the broker", job.has_sent, 120, 0.5)
        job.reach(20)
        broker.kill()
        before_s = job.times_s()[-1]

        def ten_seconds_passed() -> bool:
            return job.times_s()[-1] - before_s >= 10

        realjob.until("ten seconds of training without a broker", ten_seconds_passed, 60, 0.2)
        broker.start()
        job.reach(job.steps + 100)
        job.end()
        check_calls(job, list(read_to_end(job.settings, CALLS)), may_repeat=True)
    finally:
        broker.stop()
