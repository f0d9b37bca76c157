"""Damaged input by the hundred thousand at real processes: a head over HTTP, a worker of the streams over Kafka.

`tests/contract/test_hostile_input.py` gives every door a million in one process; here are the processes around them.
"""

from __future__ import annotations

import gzip
import itertools
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from engine_world import Ours, events_on, is_all_committed

from bench.rig import realjob
from bench.rig.broker import Broker
from bench.rig.engine import Results
from pacehound.bus.kafka import KafkaProducer
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.bus.otlp import OtlpProducer
from pacehound.errors import RejectedMessage, Unavailable
from pacehound.model import codec, topics
from pacehound.model.calls import CallBatch
from pacehound.model.events import Incident
from pacehound.model.routing import route
from pacehound.runtime.feed import due_ns
from pacehound.runtime.head.client import live_owner
from pacehound.runtime.scrape import metrics_of
from pacehound.settings import KafkaSettings, Settings
from streams.kafka.worker import INPUTS
from streams.pipeline import Pipeline
from tests.hostile.doors import SLOW, Messages, simulated_job

pytestmark = [pytest.mark.integration, pytest.mark.prove, pytest.mark.timeout(3600)]

REQUESTS, MESSAGES = 10_000, 100_000
MOST_GROWTH = 1.3
"""Of the memory that a process has after a tenth of the inputs."""


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def _expected() -> dict[tuple[str, int], Incident]:
    """What a pipeline of its own says of the good job."""
    pipeline = Pipeline(Settings())
    said = [out for event in simulated_job("a good job", SLOW) for out in pipeline.on_event(event)]
    return {(out.id, out.version): out for out in said if isinstance(out, Incident)}


class GoodJobs(threading.Thread):
    """One job after the other, of which rank 5 becomes slow, as agents send them: each event at its own time.

    Attributes
    ----------
    rows
        By job, how many calls.
    turned_away
        Requests that had to be sent again.

    """

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.rows: Counter[str] = Counter()
        self.turned_away = 0
        self._producer = OtlpProducer(url, {"Authorization": "Bearer s3cret"}, timeout_s=30.0)
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Let the job that goes on come to its end."""
        self._stopping.set()
        self.join(120)
        assert not self.is_alive(), "the last good job did not end"

    def run(self) -> None:
        for number in itertools.count():
            begin_ns = (int(time.time()) + 1) * 1_000_000_000
            events = simulated_job(f"good {number}", SLOW, start_unix_ns=begin_ns)
            for event in events:
                if isinstance(event, CallBatch):
                    self.rows[event.job] += len(event)
            while events:
                now_ns = time.time_ns()
                n_due = sum(1 for _ in itertools.takewhile(lambda event: due_ns(event) <= now_ns, events))  # noqa: B023
                self._send([codec.encode(event) for event in events[:n_due]])
                del events[:n_due]
                time.sleep(0.05)
            if self._stopping.is_set():
                return

    def _send(self, messages: list[bytes]) -> None:
        while messages:
            try:
                assert self._producer.send(messages).rejected == 0
                return
            except Unavailable:  # full, or slow to answer: it is sent again, as by any agent
                self.turned_away += 1
                time.sleep(0.1)


def _bodies(rng: random.Random) -> Iterator[tuple[bytes, dict[str, str]]]:
    """Damaged requests: the message, its compression, or its header."""
    door = Messages()
    while True:
        body = door.damaged(rng)
        match rng.randrange(12):
            case 0:
                yield gzip.compress(body, 1), {"Content-Encoding": "gzip"}
            case 1:
                packed = gzip.compress(body, 1)
                yield packed[: rng.randrange(len(packed))], {"Content-Encoding": "gzip"}
            case 2:
                yield body, {"Content-Encoding": rng.choice(["gzip", "br", "identity", "\x7f"])}
            case 3:
                yield body, {"Content-Type": rng.choice(["application/json", "", "x" * 4_000])}
            case 4:
                yield body, {"Authorization": rng.choice(["", "Bearer", "Bearer \xff", "Basic s3cret"])}
            case _:
                yield body, {}


def test_a_head_takes_what_is_good_among_what_is_damaged(tmp_path: Path) -> None:
    store = tmp_path / "store"
    up = [*realjob.PACEHOUND, "up", "--listen", "127.0.0.1:0", "--store", str(store)]
    with (tmp_path / "log").open("wb") as log:
        head = subprocess.Popen(up, stdout=log, stderr=log, env=realjob.environment({"PACEHOUND_TOKEN": "s3cret"}))
    try:
        owner, _ = realjob.until("the head", lambda: live_owner(store), 60, 0.2)
        good = GoodJobs(owner.url)
        good.start()
        answers, grown = _besieged(owner.url, head.pid)
        good.stop()
        print(f"{REQUESTS} requests: {dict(answers)}; memory {grown:.2f} times what it was after the first tenth")
        assert answers.keys() <= {0, 200, 400, 401, 413, 415, 503}
        assert grown < MOST_GROWTH
        run = realjob.Run(head, store, tmp_path / "log")
        stored = {row["job"]: row["n"] for row in run.sql("SELECT job, count() AS n FROM calls GROUP BY job")}
        assert {job: stored.get(job) for job in good.rows} == good.rows
        told = {job: run.incidents(job) for job in good.rows}
        print(f"{len(told)} good jobs, {sum(good.rows.values())} calls; {good.turned_away} requests came again")
        for incidents in told.values():
            assert {rank for one in incidents for found in one["findings"] for rank in found["culprits"]} == {5}, told
        counted = metrics_of(httpx.get(f"{owner.url}/metrics", headers={"Authorization": "Bearer s3cret"}).text)
        rejected = {one.labels["error"]: int(one.value) for one in counted if "records_rejected" in one.name}
        print(f"rejected records: {rejected}")
        letters = {row["error"] for row in run.sql("SELECT DISTINCT error FROM dead_letters")}
        assert letters == rejected.keys()
        assert all(rejected.values())
    finally:
        head.terminate()
        assert head.wait(60) == 0, (tmp_path / "log").read_text()[-3000:]


def _besieged(url: str, pid: int) -> tuple[Counter[int], float]:
    """How requests were answered, and how much larger the head has become."""
    rng, settled = random.Random(5), 0
    answers: Counter[int] = Counter()
    headers = {"Content-Type": "application/x-protobuf", "Authorization": "Bearer s3cret"}
    bodies, at_once = _bodies(rng), REQUESTS // 200
    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(16) as threads:

        def status(request: tuple[bytes, dict[str, str]]) -> int:
            changed = {name: value.encode("latin-1") for name, value in (headers | request[1]).items()}
            try:
                return client.post(f"{url}/v1/logs", content=request[0], headers=changed).status_code
            except httpx.TransportError:  # a header that is none: it is answered, and the connection is closed
                return 0

        for number in range(REQUESTS // at_once):
            answers.update(threads.map(status, [next(bodies) for _ in range(at_once)]))
            if number == REQUESTS // at_once // 10:
                settled = _resident_bytes(pid)
    return answers, _resident_bytes(pid) / settled


@pytest.mark.kafka
def test_a_worker_of_the_streams_concludes_the_same_among_what_is_damaged(broker: Broker, tmp_path: Path) -> None:
    kafka = KafkaSettings(servers=broker.servers, prefix="hostile.")
    ensure_topics(kafka)
    rng, door = random.Random(6), Messages()
    good = simulated_job("a good job", SLOW)
    results, producer = Results(kafka), KafkaProducer(kafka, "foreigner")
    with Ours("streams", kafka, tmp_path / "log") as ours:
        assert ours.process is not None
        settled = 0
        for number in range(MESSAGES):
            damaged = door.damaged(rng)
            producer.publish(*_place(damaged, rng), damaged)
            at, share = divmod(number, MESSAGES // len(good))
            if share == 0 and at < len(good):
                place, name = route(good[at])
                producer.publish(place, name, codec.encode(good[at]))
            if number % 1_000 == 999:
                producer.flush(60)
            if number == MESSAGES // 10:
                realjob.until("the first tenth", lambda: is_all_committed(kafka, "streams", INPUTS), 600, 0.5)
                settled = _resident_bytes(ours.process.pid)
        producer.close()
        realjob.until("all is read", lambda: is_all_committed(kafka, "streams", INPUTS), 1_800, 1.0)
        assert ours.process.poll() is None, ours.text()[-4000:]
        grown = _resident_bytes(ours.process.pid) / settled
        letters, counted = len(events_on(kafka, topics.DEAD_LETTERS)), ours.metric("pacehound_dead_letters_total")
        print(f"{MESSAGES} messages: {letters} dead letters; memory {grown:.2f} times what it was after a tenth")
        assert ours.metric("pacehound_pipeline_failures_total") == 0, ours.text()[-4000:]
        assert letters == counted > 0
        assert grown < MOST_GROWTH
        assert ours.stop() == 0
    realjob.until("the last result", lambda: results.read() == 0, 60, 0.0)
    found = {place: incident for place, incident in results.incidents().items() if incident.job == "a good job"}
    results.close()
    assert found == _expected()


def _place(message: bytes, rng: random.Random) -> tuple[topics.Topic, str]:
    """Where a message belongs, if it says so; else anywhere."""
    try:
        return route(codec.decode(message)[0])
    except (RejectedMessage, IndexError):
        return rng.choice(INPUTS), rng.choice(["a good job", "victim-000000", ""])
