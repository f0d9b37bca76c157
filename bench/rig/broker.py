"""A real Kafka broker of one's own, on a free loopback port, from the jars that `make kafka` has fetched."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pacehound.settings import KafkaSettings

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".kafka" / "jars"
CLUSTER_ID = "cGFjZWhvdW5kLXRlc3RzLQ"


def why_not() -> str:
    """Why no broker can be run here; empty if one can."""
    if shutil.which("java") is None:
        return "there is no Java: install a JRE of version 17 or newer"
    if not any(JARS.glob("kafka_2.13-*.jar")):
        return "the broker's jars are missing: run `make kafka` (needs Maven)"
    return ""


def free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Broker:
    """A broker and its controller in one process; the folder survives a kill and a restart.

    Parameters
    ----------
    folder
        Where everything is kept. One that a broker had before gives the same broker, on its port.
    heap_mb
        Of its Java.
    doors
        Further listeners, by protocol (`SASL_SSL`): a free port, and the properties that it needs.

    """

    def __init__(
        self, folder: Path, heap_mb: int = 512, doors: Mapping[str, tuple[int, str]] = MappingProxyType({})
    ) -> None:
        self.folder = folder
        self.heap_mb = heap_mb
        self.process: subprocess.Popen[bytes] | None = None
        properties = folder / "server.properties"
        if not properties.exists():
            self._make(properties, doors)
        listener = re.search(r"^listeners=PLAINTEXT://127\.0\.0\.1:(\d+)", properties.read_text(), re.MULTILINE)
        assert listener is not None
        self.port = int(listener[1])
        self.servers = f"127.0.0.1:{self.port}"

    def _make(self, properties: Path, doors: Mapping[str, tuple[int, str]]) -> None:
        port, controller = free_ports(2)
        ports = {"PLAINTEXT": port} | {protocol: port for protocol, (port, _) in doors.items()}
        listeners = ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items())
        further = "\n".join(text for _, text in doors.values())
        self.folder.mkdir(parents=True, exist_ok=True)
        # Of what is not asked for it does nothing: it would write a word to its own log twice a second.
        text = f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,{",".join(f"{protocol}:{protocol}" for protocol in ports)}
log.dirs={self.folder / "data"}
metadata.max.idle.interval.ms=0
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.check.interval.ms=60000
{further}
"""
        (self.folder / "log4j2.properties").write_text(
            "rootLogger.level=WARN\nrootLogger.appenderRef.stdout.ref=out\n"
            "appender.out.type=Console\nappender.out.name=out\n"
            "appender.out.layout.type=PatternLayout\nappender.out.layout.pattern=%d %p %c: %m%n\n",
            encoding="utf-8",
        )
        properties.write_text(text, encoding="utf-8")
        self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)).wait()

    def start(self, within_s: float = 120.0) -> None:
        """Until it answers."""
        self.process = self._java("kafka.Kafka", str(self.folder / "server.properties"))
        (self.folder / "pid").write_text(str(self.process.pid))
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s:
            if self.process.poll() is not None:
                raise RuntimeError(f"the broker has ended: {self.log()[-2000:]}")
            if self._answers():
                return
            time.sleep(0.1)
        self.kill()
        raise RuntimeError(f"the broker does not answer within {within_s} s: {self.log()[-2000:]}")

    @property
    def pid(self) -> int:
        """Of the process that was started last in this folder, by whomever."""
        return int((self.folder / "pid").read_text())

    def settings(self, prefix: str) -> KafkaSettings:
        """For clients, with topics of their own."""
        return KafkaSettings(servers=self.servers, prefix=prefix)

    def kill(self) -> None:
        """As a power failure would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """In order; by force if that takes long."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def log(self) -> str:
        return (self.folder / "broker.log").read_text(encoding="utf-8", errors="replace")

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "broker.log").open("ab") as log:
            return subprocess.Popen(
                [
                    "java",
                    f"-Xmx{self.heap_mb}m",
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
                    "-cp",
                    f"{JARS}/*",
                    *arguments,
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            )

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        quiet = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        try:
            return bool(quiet.list_topics(timeout=1).brokers)
        except KafkaException:
            return False
