"""Commands on a real broker: a job whose agent sends to Kafka is paused, and a stranger's orders are refused."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actuators.answers import Answers
from actuators.control.controlled_job import ControlledJob
from bench.rig import realjob
from bench.rig.broker import Broker
from pacehound.bus import kafka_commands
from pacehound.bus.kafka_commands import KafkaCommands, KafkaControl
from pacehound.bus.signing import Keys, Signer, signer_of
from pacehound.instrument import hold, shim
from pacehound.model.events import Command, CommandResult
from pacehound.model.orders import ANY_ATTEMPT, Answer, Locate, new_order
from pacehound.settings import KafkaSettings

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
    pytest.mark.skipif(shim.reason_not_made() is not None, reason="no C compiler"),
]
JOB = "steady"
RANKS = 2
WITHIN_S = 120


@pytest.fixture
def settings(broker: Broker, tmp_path: Path) -> Iterator[KafkaSettings]:
    """Where a job runs whose agent trusts the key of the folder `keys`."""
    hold.build()
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    settings = KafkaSettings(servers=broker.servers, prefix=f"{tmp_path.name}.")
    run = realjob.start(
        tmp_path,
        realjob.forked(0.02, tmp_path, ranks=RANKS, script=realjob.STEADY),
        *("--endpoint", f"kafka://{broker.servers}", "--job", JOB),
        settings=[f"kafka.prefix={settings.prefix}", "agent.flush_s=0.3", f"actuators.keys={signer_of(keys).key}"],
    )
    yield settings
    run.stop()


def located(signer: Signer, number: int) -> Command:
    """An order to locate the ranks, as it is given now."""
    order = new_order(
        Locate(),
        job=JOB,
        attempt=ANY_ATTEMPT,
        issuer="a test",
        number=number,
        now_ns=time.time_ns(),
        lives_ns=10_000_000_000,
        why="a test",
    )
    return signer.signed(order)


def answers(control: KafkaControl, signer: Signer) -> list[CommandResult]:
    """What the agent says of an order to locate the ranks."""
    deadline_s = time.monotonic() + WITHIN_S
    for number in range(1, WITHIN_S):
        control.command(located(signer, number))
        until_s = time.monotonic() + 3
        while time.monotonic() < min(until_s, deadline_s):
            found, _ = control.results(JOB, 0)
            # Before its ranks have said anything an agent has nobody whom an order could be for.
            if decided := [one for one in found if one.refused != "foreign"]:
                return decided
            time.sleep(0.05)
    raise AssertionError("no agent has answered")


def test_a_job_on_kafka_is_paused_by_who_has_the_key_and_by_nobody_else(
    settings: KafkaSettings, tmp_path: Path
) -> None:
    control = KafkaControl(settings, JOB)
    try:
        assert answers(control, signer_of(tmp_path / "keys"))[0].refused == ""
        assert {one.refused for one in answers(control, Signer.drawn())} >= {"forged"}
        said = Answer(decision="d" * 32, approves=True, by="ann")
        ControlledJob(control, signer_of(tmp_path / "keys"), JOB, "a test").order(said, time.time_ns())
        heard = Answers(control, JOB, Keys([signer_of(tmp_path / "keys").key]).have_signed)
        realjob.until("the answer", lambda: said in heard.new(time.time_ns()), 10)
    finally:
        control.close()
    where = ["--set", f"kafka.servers={settings.servers}", "--set", f"kafka.prefix={settings.prefix}"]
    command = [
        sys.executable,
        "-m",
        "pacehound",
        "pause",
        "--job",
        JOB,
        "--for",
        "2",
        "--store",
        str(tmp_path / "keys"),
    ]
    done = subprocess.run([*command, *where], capture_output=True, text=True, timeout=WITHIN_S)
    assert done.returncode == 0, done.stderr
    assert f"{RANKS} ranks are held" in done.stdout
    assert "the time that was asked for is over" in done.stdout


def test_a_command_that_is_given_the_moment_after_an_agent_begins_to_listen_is_heard(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing lies in the topic; an agent that left it to its client where the end is missed one in five."""
    monkeypatch.setattr(kafka_commands, "LONGEST_LIFE_NS", 0)  # what was given to the agents before it is too old
    settings = KafkaSettings(servers=broker.servers, prefix=f"{tmp_path.name}.")
    signer = Signer.drawn()
    with contextlib.closing(KafkaControl(settings, JOB)) as control:
        for number in range(20):
            given = located(signer, number)
            with contextlib.closing(KafkaCommands(settings, JOB)) as agent:
                agent.poll(0)
                control.command(given)
                realjob.until(f"command {number}", lambda: given in agent.poll(0).commands, 10, 0.01)  # noqa: B023
