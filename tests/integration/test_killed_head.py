"""What a head has answered for is in its store, also when it is killed with the next breath."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.rig import realjob
from pacehound.bus.otlp import OtlpProducer
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.topology import Layout
from simulator.job import simulate
from simulator.spec import JobSpec

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@contextmanager
def head_on(store: Path, log: Path) -> Iterator[tuple[OtlpProducer, subprocess.Popen[bytes]]]:
    """A head, and a way to send to it; it is killed at the end, if it was not before."""
    (store / "head.json").unlink(missing_ok=True)
    with log.open("ab") as out:
        up = [*realjob.PACEHOUND, "up", "--listen", "127.0.0.1:0", "--store", str(store)]
        head = subprocess.Popen(up, stdout=out, stderr=out, env=realjob.environment(), cwd="/")
    try:
        realjob.until("the head", (store / "head.json").exists, 60, 0.1)
        owner = json.loads((store / "head.json").read_text())
        producer = OtlpProducer(owner["url"], {"authorization": f"Bearer {owner['token']}"})
        yield producer, head
        producer.close()
    finally:
        head.kill()
        head.wait()


def test_a_head_killed_right_after_its_answer_has_stored_what_it_answered_for(tmp_path: Path) -> None:
    store = tmp_path / "store"
    events = list(simulate(JobSpec(layout=Layout(tp=2, dp=2), iterations=12)).events())
    thirds = [events[number::3] for number in range(3)]  # each of them has calls of several streams
    introductions = [codec.encode(event) for event in events if type(event).__name__ == "Topology"]
    sent = 0
    for said in thirds:
        with head_on(store, tmp_path / "head.log") as (producer, head):
            producer.send([*introductions, *map(codec.encode, said)])
            head.kill()
        sent += sum(len(event) for event in said if isinstance(event, CallBatch))
        answers = realjob.Run(None, store, tmp_path)  # type: ignore[arg-type]
        (row,) = answers.sql("SELECT count() AS calls FROM calls")
        assert int(row["calls"]) == sent
