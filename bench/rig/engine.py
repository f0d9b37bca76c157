"""The engine of a test: a broker, workers of the streams as processes, and what they have concluded."""

from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from bench.rig.flushes import messages_of
from pacehound.bus import Message
from pacehound.bus.kafka import KafkaConsumer, KafkaProducer
from pacehound.bus.kafka_state import kafka_state
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.errors import BusFull, Unavailable
from pacehound.model import codec
from pacehound.model.events import DeadLetter, Finding, Incident
from pacehound.model.routing import Event
from pacehound.model.topics import DEAD_LETTERS, FINDINGS, INCIDENTS, ITERATIONS
from pacehound.settings import KafkaSettings

RESULTS = (ITERATIONS, FINDINGS, INCIDENTS, DEAD_LETTERS)


class Engine:
    """One prefix of topics on a broker, and the processes that work on them."""

    def __init__(self, settings: KafkaSettings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.overrides = tuple(
            f"kafka.{name}={value}" for name, value in dataclasses.asdict(settings).items() if name != "replication"
        )
        self.workers: list[subprocess.Popen[bytes]] = []
        self._started = 0
        folder.mkdir(parents=True, exist_ok=True)
        ensure_topics(self.settings)

    def start_worker(self, *extra: str) -> subprocess.Popen[bytes]:
        """A worker of the streams; `extra` are settings of its own."""
        self._started += 1
        worker = self.started("streams", self.folder / f"worker{self._started}.log", *extra)
        self.workers.append(worker)
        return worker

    def started(
        self,
        command: str,
        log: Path,
        *extra: str,
        store: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """`pacehound COMMAND` as a process on this engine's topics, with settings of its own, perhaps with a store."""
        words = [sys.executable, "-P", "-m", "pacehound", command, *(("--store", str(store)) if store else ())]
        for override in (*self.overrides, *extra):
            words += ["--set", override]
        with log.open("ab") as out:
            return subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=env)

    def stop(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait()

    def lag(self, group: str) -> int | None:
        """Messages of all topics that a group has not confirmed; nothing before it has members."""
        try:
            found = [one for one in kafka_state(self.settings).groups if one.group == group]
        except Unavailable:
            return None
        if not found or any(one.problem or not one.members for one in found):
            return None
        return sum(one.lag for one in found)

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("worker*.log")))

    def publish(self, events: Iterable[Event], pause: Callable[[], None] = lambda: None) -> None:
        """Put events on their topics, in order; what a host says at once of one key is one message, as an agent's."""
        producer = KafkaProducer(self.settings, "simulator")
        for _, messages in messages_of(events):
            for topic, key, value in messages:
                while True:
                    try:
                        producer.publish(topic, key, value)
                        break
                    except BusFull:
                        producer.flush(60)
            pause()
        producer.flush(120)
        producer.close()


class Results:
    """Reads what the workers have concluded."""

    def __init__(self, settings: KafkaSettings, group: str = "test-reader") -> None:
        self._consumer = KafkaConsumer(settings, group, RESULTS)
        self.messages: list[Message] = []
        self.events: list[Event] = []

    def read(self, timeout_s: float = 0.2) -> int:
        messages = self._consumer.poll(500, timeout_s)
        self.messages += messages
        for message in messages:
            self.events += codec.decode(message.value)
        return len(messages)

    def incidents(self) -> dict[tuple[str, int], Incident]:
        """By id and version; the same one again must be the same."""
        found: dict[tuple[str, int], Incident] = {}
        for event in self.events:
            if isinstance(event, Incident):
                known = found.setdefault((event.id, event.version), event)
                assert known == event
        return found

    def findings(self) -> list[Finding]:
        return [event for event in self.events if isinstance(event, Finding)]

    def dead_letters(self) -> list[DeadLetter]:
        return [event for event in self.events if isinstance(event, DeadLetter)]

    def close(self) -> None:
        self._consumer.close()
