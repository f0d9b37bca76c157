"""A job whose messages lie in files, sent at its own pace and followed: through a broker, the streams and the store.

Broker, two workers, writer, whoever sends the messages, each at its time, and this process share the machine. The job
has a clock of its own, so that messages which were made once can be sent again.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.rig import large_job_load
from bench.rig.broker import Broker
from bench.rig.engine import Engine
from bench.rig.realjob import until
from bench.small import cpu_s
from pacehound.bus.kafka import KafkaConsumer, KafkaProducer
from pacehound.errors import BusFull
from pacehound.model import codec
from pacehound.model.events import Finding, IterationSample
from pacehound.model.topics import FINDINGS, ITERATIONS
from pacehound.settings import KafkaSettings
from simulator.spec import JobSpec

STARTED_S = 60.0
"""A worker has joined its group by then."""

BEGINS_AFTER_S = 30.0
"""The writer has started by then."""

WORKERS = 2
GROUPS = ("streams", "writer")
LOOK_S = 5.0
BEHIND_S = 120.0
"""How long after its end what was said of the job is waited for."""


def watched(spec: JobSpec, paths: Sequence[Path], folder: Path) -> list[dict[str, Any]]:
    """One row per figure of a job; `paths` are files of its messages (`large_job_load.read`)."""
    broker = Broker(folder / "kafka")
    broker.start()
    try:
        return _watched(spec, paths, broker, folder)
    finally:
        broker.stop()


def _watched(spec: JobSpec, paths: Sequence[Path], broker: Broker, folder: Path) -> list[dict[str, Any]]:
    settings = broker.settings(f"{spec.job}.")
    engine = Engine(settings, folder / "engine")
    workers = []
    for _ in range(WORKERS):
        # One after the other, as a fleet's are: of two that join at once it is luck which partitions each is given.
        workers.append(engine.start_worker())
        until("the group's partitions", lambda: engine.lag(GROUPS[0]) is not None, STARTED_S, LOOK_S / 10)
    writer = engine.started("writer", folder / "writer.log", store=folder / "store")
    begins_s = time.time() + BEGINS_AFTER_S
    sender = multiprocessing.get_context("spawn").Process(target=_send, args=(paths, settings, begins_s), daemon=True)
    sender.start()
    assert broker.process is not None
    assert sender.pid is not None
    pids = {f"worker {number + 1}": worker.pid for number, worker in enumerate(workers)}
    pids |= {"writer": writer.pid, "broker": broker.process.pid, "sending": sender.pid}
    heard = _Heard(settings, ahead_s=spec.start_unix_ns / 1e9 - begins_s)
    heard.start()
    try:
        time.sleep(max(0.0, begins_s - time.time()))
        seen = _follow(engine, pids, sender)
    finally:
        heard.stop()
        for process in (writer, *workers):
            process.terminate()
        for process in (writer, *workers):
            process.wait(60)
        engine.stop()
    return _rows(spec, seen, heard)


def _send(paths: Sequence[Path], settings: KafkaSettings, begins_s: float) -> None:
    """Each message at its time."""
    producer = KafkaProducer(settings, "agents")
    for due_ns, topic, key, value in large_job_load.read(paths):
        while (wait_s := begins_s + due_ns / 1e9 - time.time()) > 0:
            time.sleep(wait_s)
        while True:
            try:
                producer.publish(topic, key, value)
                break
            except BusFull:
                time.sleep(LOOK_S / 100)
    producer.flush(60)
    producer.close()


class _Heard:
    """When iterations and findings could be read on Kafka, by a job's clock that is so much ahead of this machine's."""

    def __init__(self, settings: KafkaSettings, ahead_s: float) -> None:
        self._ahead_s = ahead_s
        self.late_s: list[float] = []
        self.findings: list[tuple[Finding, float]] = []
        self._consumer = KafkaConsumer(settings, "bench", (ITERATIONS, FINDINGS))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.poll(500, 0.1):
                now_s = time.time() + self._ahead_s
                for event in codec.decode(message.value):
                    if isinstance(event, IterationSample):
                        self.late_s.append(now_s - event.time_ns / 1e9)
                    elif isinstance(event, Finding):
                        decided = event.relief or event.detected
                        self.findings.append((event, now_s - (decided.time_ns if decided else 0) / 1e9))


@dataclass
class _Seen:
    """What the processes took while the job ran, and how far behind the groups were."""

    lasted_s: float = 0.0
    cores: dict[str, float] = field(default_factory=dict)
    resident_mb: dict[str, float] = field(default_factory=dict)
    lags: dict[str, list[int]] = field(default_factory=dict)
    caught_up_s: float = 0.0


def _follow(engine: Engine, pids: dict[str, int], sender: Any) -> _Seen:
    seen, begun_s = _Seen(), time.monotonic()
    used_s = {name: cpu_s(pid) for name, pid in pids.items()}
    while sender.is_alive():
        time.sleep(LOOK_S)
        _look(engine, pids, seen)
        if sender.is_alive():
            seen.lasted_s = time.monotonic() - begun_s
            seen.cores = {name: (cpu_s(pid) - used_s[name]) / seen.lasted_s for name, pid in pids.items()}
    ended_s = time.monotonic()
    while time.monotonic() < ended_s + BEHIND_S:
        if all(engine.lag(group) == 0 for group in GROUPS):
            break
        time.sleep(LOOK_S / 10)
    seen.caught_up_s = time.monotonic() - ended_s
    return seen


def _look(engine: Engine, pids: dict[str, int], seen: _Seen) -> None:
    for group in GROUPS:
        if (lag := engine.lag(group)) is not None:
            seen.lags.setdefault(group, []).append(lag)
    for name, pid in pids.items():
        status = Path(f"/proc/{pid}/status")
        if status.exists():
            resident_kb = next((line.split()[1] for line in status.read_text().splitlines() if "VmRSS" in line), "0")
            seen.resident_mb[name] = max(seen.resident_mb.get(name, 0.0), int(resident_kb) / 1024)


def _rows(spec: JobSpec, seen: _Seen, heard: _Heard) -> list[dict[str, Any]]:
    world = spec.layout.world_size
    case = f"{world:,} ranks, {len(heard.late_s)} iterations in {seen.lasted_s:.0f} s"
    rows: list[dict[str, Any]] = []

    def add(figure: str, value: float, unit: str) -> None:
        rows.append({"case": case, "figure": figure, "value": float(value), "unit": unit})

    for name, cores in seen.cores.items():
        add(name, cores, "cores")
        add(f"{name}, resident", seen.resident_mb[name], "MB")
    for group, lags in seen.lags.items():
        for figure, q in (("median", 0.5), ("p99", 0.99), ("most", 1.0)):
            add(f"messages that {group} is behind, {figure}", np.quantile(lags, q), "messages")
    add("all read after the last message", seen.caught_up_s, "s")
    # A job's beginning is told call by call, and its communicators are announced by each of their hosts.
    for part, of_part_s in (("", heard.late_s), (" in the second half", heard.late_s[len(heard.late_s) // 2 :])):
        for figure, q in (("median", 0.5), ("p99", 0.99), ("most", 1.0)):
            add(f"from an iteration's end to its sample{part}, {figure}", np.quantile(of_part_s, q), "s")
    for finding, late_s in heard.findings:
        which = "over" if finding.relief else f"version {finding.version}"
        add(f"{finding.kind}, {finding.verdict} {list(finding.culprits)}, {which}: after what decides", late_s, "s")
    return rows
