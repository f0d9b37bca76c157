"""A broker that wants TLS and a password: every client of ours brings both, and says what is wrong where one is.

And the broker of the compose file, by its own settings: whose login lets whom do what. They are two doors of one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trustme
import yaml
from click.testing import CliRunner
from confluent_kafka import Producer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bench.rig.broker import Broker, free_ports
from bench.rig.engine import Engine
from bench.rig.realjob import until
from pacehound import cli
from pacehound.bus.kafka import client_config
from pacehound.bus.kafka_commands import KafkaCommands, KafkaControl
from pacehound.bus.kafka_reader import read_to_end
from pacehound.bus.kafka_rights import WRITTEN_BY_AGENTS, grant_agents
from pacehound.bus.kafka_sender import KafkaSender
from pacehound.bus.kafka_topics import ensure_topics
from pacehound.bus.signing import Signer
from pacehound.errors import InvalidInput, Unavailable
from pacehound.model import codec, topics
from pacehound.model.events import Finding
from pacehound.model.orders import ANY_ATTEMPT, Locate, new_order
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
    """A door behind TLS and SASL, and what its clients are given."""

    port: int
    folder: Path

    def settings(self, password: str = PASSWORD, ca: str = "ca.pem", prefix: str = "locked.") -> KafkaSettings:
        name = self.folder / f"client-{password[:5]}-{ca}.properties"
        name.write_text(
            "# for librdkafka\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=hound\n"
            f"sasl.password={password}\nssl.ca.location={self.folder / ca}\n"
        )
        return KafkaSettings(servers=f"127.0.0.1:{self.port}", prefix=prefix, client_file=str(name))


COMPOSE = yaml.safe_load((Path(__file__).parents[2] / "docker-compose.yml").read_text(encoding="utf-8"))
SECRETS = {"KAFKA_PASSWORD": "of-ours", "KAFKA_AGENT_PASSWORD": "of-agents"}


def of_compose(name: str) -> str:
    """A setting of the compose file's broker, with its passwords."""
    text = str(COMPOSE["services"]["kafka"]["environment"][name])
    return re.sub(r"\$\{([A-Z_]+)[^}]*\}", lambda found: SECRETS[found[1]], text)


@dataclass(frozen=True)
class Granted:
    """A door with the logins and the rights of the compose file."""

    port: int
    folder: Path

    def settings(self, user: str, password: str) -> KafkaSettings:
        name = self.folder / f"{user}-{password}.properties"
        name.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username={user}\nsasl.password={password}\n"
        )
        return KafkaSettings(servers=f"127.0.0.1:{self.port}", prefix="granted.", client_file=str(name))


def of_a_certificate(folder: Path) -> str:
    """A new one in `server.pem`; in `ca.pem` who has signed it, in `other.pem` who has not. Its door's settings."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(folder / "other.pem"))
    issued = authority.issue_cert("127.0.0.1")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())  # Java reads no other form
    (folder / "server.pem").write_bytes(pkcs8 + b"".join(part.bytes() for part in issued.cert_chain_pems))
    return f"""
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  user_hound="{PASSWORD}";
listener.name.sasl_ssl.ssl.keystore.type=PEM
listener.name.sasl_ssl.ssl.keystore.location={folder / "server.pem"}
"""


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Locked, Granted]]:
    folder = tmp_path_factory.mktemp("locked")
    assert of_compose("KAFKA_SASL_ENABLED_MECHANISMS") == "PLAIN"
    locked, granted = (door(port, folder) for door, port in zip((Locked, Granted), free_ports(2), strict=True))
    # Rights are looked at behind the compose file's door. Behind the other one everything is allowed, and the broker
    # looks after itself behind a third, on which nobody has a name.
    properties = f"""
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={of_compose("KAFKA_LISTENER_NAME_OUTSIDE_PLAIN_SASL_JAAS_CONFIG")}
authorizer.class.name={of_compose("KAFKA_AUTHORIZER_CLASS_NAME")}
super.users={of_compose("KAFKA_SUPER_USERS")};User:ANONYMOUS;User:hound
"""
    broker = Broker(
        folder / "kafka",
        doors={"SASL_SSL": (locked.port, of_a_certificate(folder)), "SASL_PLAINTEXT": (granted.port, properties)},
    )
    broker.start()
    yield locked, granted
    broker.stop()


@pytest.fixture(scope="module")
def locked(doors: tuple[Locked, Granted]) -> Locked:
    return doors[0]


@pytest.fixture(scope="module")
def granted(doors: tuple[Locked, Granted]) -> Granted:
    world = doors[1]
    ours = world.settings("pacehound", SECRETS["KAFKA_PASSWORD"])
    command = [str(word) for word in COMPOSE["services"]["topics"]["command"]]
    overrides = {"kafka.servers": ours.servers, "kafka.prefix": ours.prefix, "kafka.client_file": ours.client_file}
    options = [word for key, value in overrides.items() for word in ("--set", f"{key}={value}")]
    made = CliRunner().invoke(cli.pacehound, [*command, *options])
    assert made.exit_code == 0, made.output
    # A broker hears a moment later of what its controller has granted.
    agent = world.settings("agent", SECRETS["KAFKA_AGENT_PASSWORD"])
    until("the grants", lambda: not any(refusal(agent, topic.name) for topic in WRITTEN_BY_AGENTS), 30, 0.1)
    return world


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


def refusal(settings: KafkaSettings, topic: str) -> str:
    """Why a message is not taken; empty if it is."""
    said: list[str] = []
    producer = Producer({**client_config(settings), "message.timeout.ms": 10_000, "log_level": 0})
    producer.produce(
        settings.prefix + topic, b"x", b"k", 0, on_delivery=lambda error, _: said.append(error.name() if error else "")
    )
    producer.flush(20)
    return said[0]


@pytest.mark.parametrize("topic", sorted(topics.TOPICS))
def test_an_agent_writes_the_topics_of_agents_and_no_other(granted: Granted, topic: str) -> None:
    agent = granted.settings("agent", SECRETS["KAFKA_AGENT_PASSWORD"])
    assert refusal(agent, topic) == (
        "" if topic in {"calls", "hosts", "ops", "results"} else "TOPIC_AUTHORIZATION_FAILED"
    )
    assert refusal(granted.settings("pacehound", SECRETS["KAFKA_PASSWORD"]), topic) == ""


def test_an_agent_sends_as_agents_do_reads_commands_alone_and_does_not_grant(granted: Granted) -> None:
    agent = granted.settings("agent", SECRETS["KAFKA_AGENT_PASSWORD"])
    sender = KafkaSender(agent, "agent", acknowledged_within_s=20.0)
    sender.send([codec.encode(event) for event in simulate(JobSpec(layout=Layout(tp=2), iterations=3)).events()])
    sender.close()
    list(read_to_end(agent, topics.COMMANDS))
    control = KafkaControl(granted.settings("pacehound", SECRETS["KAFKA_PASSWORD"]), "sim")
    order = new_order(
        Locate(),
        job="sim",
        attempt=ANY_ATTEMPT,
        issuer="a test",
        number=1,
        now_ns=time.time_ns(),
        lives_ns=20_000_000_000,
        why="a test",
    )
    commands = KafkaCommands(agent, "sim")
    assert commands.poll(0).commands == ()
    command = Signer.drawn().signed(order)
    control.command(command)
    until("the command", lambda: command in commands.poll(0).commands, 20, 0.1)
    commands.close()
    control.close()
    for topic in (topics.CALLS, topics.RESULTS):
        with pytest.raises(Unavailable, match=r"[Aa]uthorization failed"):
            list(read_to_end(agent, topic))
    with pytest.raises(Unavailable, match=r"[Aa]uthorization failed"):
        ensure_topics(replace(agent, prefix="mine."), timeout_s=5.0)
    with pytest.raises(Unavailable, match="Kafka at"):
        grant_agents(agent, "agent", timeout_s=5.0)


def test_who_has_no_login_is_refused(granted: Granted) -> None:
    for user, password in (("agent", "wrong"), ("nobody", "of-agents")):
        with pytest.raises(Unavailable, match=r"[Aa]uthentication"):
            ensure_topics(granted.settings(user, password), timeout_s=2.0)


def test_brokers_that_look_at_no_rights_say_so(broker: Broker) -> None:
    with pytest.raises(InvalidInput, match="look at no rights"):
        grant_agents(broker.settings("rights."), "agent", timeout_s=10.0)
