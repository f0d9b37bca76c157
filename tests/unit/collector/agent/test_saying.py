"""What an agent says at once, and what is lost of it where the outbox has no room."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.agent.outbox import Outbox
from collector.agent.saying import outgoing_vitals
from pacehound.model import codec
from pacehound.model.calls import CallBatch
from pacehound.model.events import HostVitals, Progress, Topology
from pacehound.model.flushes import Flush
from pacehound.model.routing import Event
from pacehound.model.shards import SHARD_KEY
from tests.fakes.agent_run import AgentRun
from tests.fakes.receiver import promises_hold


def worked(run: AgentRun, seconds: int = 3) -> None:
    """Two ranks on the world and on a group of their own each."""
    rings = [run.joined(0), run.joined(1)]
    for second in range(seconds):
        for ring in rings:
            for number in range(20):
                ring.done(20 * second + number, run.now_ns, run.now_ns)
        run.step(1_100)


def raw(run: AgentRun) -> list[Event]:
    return [event for message in run.receiver.messages for event in codec.decode(message)]


def test_calls_of_all_ranks_travel_in_one_message_per_flush(tmp_path: Path) -> None:
    run = AgentRun(tmp_path / "together")
    worked(run)
    run.end()
    run.deliver()
    said = raw(run)
    assert not [event for event in said if isinstance(event, (CallBatch, Progress, Topology))]
    flushes = [event for event in said if isinstance(event, Flush)]
    assert {flush.key for flush in flushes} == {"shard:job-1/0/0"}
    assert {rank for flush in flushes for rank in flush.columns.get("rank", ())} == {0, 1}
    assert len(run.receiver.rows()) == 120
    assert promises_hold(run.receiver.events)


def test_what_hardware_is_like_makes_room_before_calls_do_and_costs_none_of_them() -> None:
    vitals = HostVitals(job="job-1", attempt=0, time_ns=5, host="node-1")
    message = outgoing_vitals(vitals, shard=3)
    assert (message.kind, message.calls, message.reported) == ("diagnostics", 0, 0)
    (said,) = codec.decode(message.payload)
    assert isinstance(said, Flush)
    assert (said.vitals, said.key, said.promised_ns) == ((vitals,), "shard:job-1/0/3", {})
    assert said.quiet_ns is None, "a host that may be quiet goes on to be"


def test_both_forms_say_the_same(tmp_path: Path) -> None:
    said = []
    for form in ("together", "apart"):
        run = AgentRun(tmp_path / form, f"agent.messages={form}")
        worked(run)
        run.end()
        run.deliver()
        said.append(run)
    together, apart = said
    assert [str(row) for row in together.receiver.rows()] == [str(row) for row in apart.receiver.rows()]
    assert together.receiver.of(Progress) == apart.receiver.of(Progress)
    assert not [event for event in raw(apart) if isinstance(event, Flush)]


def test_an_agent_goes_on_in_the_form_in_which_its_run_began(tmp_path: Path) -> None:
    run = AgentRun(tmp_path / "run", "agent.messages=apart")
    worked(run, 1)
    run.settings = AgentRun(tmp_path / "other").settings
    run.kill()
    run.end()
    run.deliver()
    assert not [event for event in raw(run) if isinstance(event, Flush)]


@pytest.mark.parametrize("form", ["together", "apart"])
def test_what_is_dropped_is_counted_on_its_communicator_and_no_promise_covers_it(tmp_path: Path, form: str) -> None:
    run = AgentRun(tmp_path / form, "agent.max_backlog_bytes=120000", f"agent.messages={form}")
    run.receiver.is_away = True
    worked(run, 60)
    run.end()
    run.deliver()
    arrived = len(run.receiver.rows())
    assert 0 < arrived < 60 * 40
    assert run.receiver.of(Progress)[-1].dropped_total == 60 * 40 - arrived == run.outbox.counts.dropped_calls
    first = next(event for event in run.receiver.events if isinstance(event, (CallBatch, Progress)))
    assert isinstance(first, CallBatch)  # no promise is older than the calls that are left


def test_a_message_of_a_shard_that_cannot_be_read_is_dropped_all_the_same(tmp_path: Path) -> None:
    from collector.agent.outbox import Outgoing

    outbox = Outbox(tmp_path / "outbox.sqlite", 1_000)
    damaged = Outgoing(kind="calls", stream=f"{SHARD_KEY}j/0/0", calls=7, payload=b"\xff" * 900)
    outbox.save([damaged], b"", 0)
    assert {name: lost.calls for name, lost in outbox.make_room(900).items()} == {damaged.stream: 7}
    outbox.close()
