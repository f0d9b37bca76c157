"""Processes of ours beside a real broker: starts them, asks them, stops them by their id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bench.rig.broker import free_ports
from pacehound.bus import Message
from pacehound.bus.kafka import KafkaProducer
from pacehound.bus.kafka_reader import read_to_end, starts_and_ends
from pacehound.model import codec
from pacehound.model.routing import Event, route
from pacehound.model.topics import Topic
from pacehound.runtime.scrape import metrics_of
from pacehound.settings import KafkaSettings

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Ours:
    """`pacehound NAME` as a process, with its metrics on a free port."""

    name: str
    kafka: KafkaSettings
    log: Path
    environ: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    port: int = 0

    def start(self) -> Ours:
        (self.port,) = free_ports(1)
        ours = {
            "PACEHOUND_KAFKA_SERVERS": self.kafka.servers,
            "PACEHOUND_KAFKA_PREFIX": self.kafka.prefix,
            "PACEHOUND_TELEMETRY_LISTEN": f"127.0.0.1:{self.port}",
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PACEHOUND_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pacehound", self.name, *self.arguments],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=kept | ours | self.environ | {"PYTHONPATH": str(ROOT)},
            )
        return self

    def __enter__(self) -> Ours:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill(self) -> None:
        """As a power failure would."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """In order; its exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def get(self, path: str) -> tuple[int, str]:
        """Status and text; 0 while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        status, text = self.get("/metrics")
        return sum(sample.value for sample in metrics_of(text) if sample.name == name) if status == 200 else 0.0

    def text(self) -> str:
        return self.log.read_text(errors="replace")


def publish(kafka: KafkaSettings, *events: Event) -> None:
    """Until it is acknowledged."""
    producer = KafkaProducer(kafka, "test")
    for event in events:
        topic, key = route(event)
        producer.publish(topic, key, codec.encode(event))
    producer.flush(30)
    producer.close()


def messages_on(kafka: KafkaSettings, topic: Topic) -> list[Message]:
    return list(read_to_end(kafka, topic))


def events_on(kafka: KafkaSettings, topic: Topic) -> list[Event]:
    return [event for message in messages_on(kafka, topic) for event in codec.decode(message.value)]


def is_all_committed(kafka: KafkaSettings, group: str, of: Iterable[Topic]) -> bool:
    """Nothing is left to be read, on any partition."""
    places = [place for topic in of for place in starts_and_ends(kafka, group, topic).values()]
    return all(committed == end or (committed is None and end == 0) for committed, end in places)
