"""A broker that wants TLS and a password: every client of ours brings both, and says what is wrong where one is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bench.rig.broker import Broker, free_ports
from bench.rig.engine import Engine
from bench.rig.realjob import until
from pacehound.bus.kafka_reader import read_to_end
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.errors import Unavailable
from pacehound.model import codec, topics
from pacehound.model.events import Finding
from pacehound.model.topology import Layout
from pacehound.settings import KafkaSettings
from simulator.faults import SlowCompute
from simulator.job import simulate
from simulator.source import DEVICE_TIMES
from simulator.spec import JobSpec

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

PASSWORD = "right=horse battery"


@dataclass(frozen=True)
class Locked:
    """A broker behind TLS and SASL, and what its clients are given."""

    broker: Broker
    port: int
    folder: Path

    def settings(self, password: str = PASSWORD, ca: str = "ca.pem", prefix: str = "locked.") -> KafkaSettings:
        name = self.folder / f"client-{password[:5]}-{ca}.properties"
        name.write_text(
            "# for librdkafka\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=hound\n"
            f"sasl.password={password}\nssl.ca.location={self.folder / ca}\n"
        )
        return KafkaSettings(servers=f"127.0.0.1:{self.port}", prefix=prefix, client_file=str(name))


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    folder = tmp_path_factory.mktemp("locked")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(folder / "other.pem"))
    issued = authority.issue_cert("127.0.0.1")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # Java reads no other form
    (folder / "server.pem").write_bytes(pkcs8 + b"".join(part.bytes() for part in issued.cert_chain_pems))
    (port,) = free_ports(1)
    properties = f"""
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  user_hound="{PASSWORD}";
listener.name.sasl_ssl.ssl.keystore.type=PEM
listener.name.sasl_ssl.ssl.keystore.location={folder / "server.pem"}
"""
    broker = Broker(folder / "kafka", doors={"SASL_SSL": (port, properties)})
    broker.start()
    yield Locked(broker, port, folder)
    broker.stop()


def test_a_worker_behind_tls_and_a_password_finds_the_slow_rank(locked: Locked, tmp_path: Path) -> None:
    """Producer, consumer and topics go through librdkafka, the worker's group through aiokafka: all are let in."""
    engine = Engine(locked.settings(), tmp_path)
    spec = JobSpec(
        layout=Layout(tp=2, dp=2, pp=2),
        iterations=60,
        source=DEVICE_TIMES,
        faults=(SlowCompute(ranks=(3,), factor=2.5, from_step=36),),
    )
    engine.start_worker()

    def found() -> bool:
        events = [e for m in read_to_end(engine.settings, topics.FINDINGS) for e in codec.decode(m.value)]
        return any(isinstance(event, Finding) and event.culprits == (3,) for event in events)

    try:
        engine.publish(simulate(spec).events())
        until("the finding", found, 120, 0.5)
    finally:
        engine.stop()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"password": "wrong"}, "authentication"), ({"ca": "other.pem"}, "certificate")],
)
def test_what_is_wrong_with_a_login_is_said(locked: Locked, wrong: dict[str, str], words: str) -> None:
    with pytest.raises(Unavailable, match=f"(?i){words}"):
        ensure_topics(replace(locked.settings(**wrong), prefix="refused."), timeout_s=2.0)
