"""Operations of training steps on their way from a rank's ring to the head."""

from __future__ import annotations

import struct

from collector.calls import rings
from pacehound.model.events import HostSample
from pacehound.model.operations import OPTYPES, Operations
from tests.fakes.agent_run import MS, UNIX_NS, AgentRun
from tests.fakes.ring_file import RingFile


def operation(ring: RingFile, step: int, optype: str, start_ns: int, end_ns: int, *, seq: int = 0) -> None:
    code = OPTYPES.index(optype) if optype in OPTYPES else 99
    ring.raw(rings.OPERATION, struct.pack("<QQq6i", start_ns, end_ns, step, code, 1, 3, 2, 4, seq), handle=bytes(16))


def rows(run: AgentRun) -> list[dict[str, int]]:
    return [row for event in run.receiver.of(Operations) for row in event.rows.to_pylist()]


def test_operations_are_sent_once_with_unix_times_and_before_time_goes_on(run: AgentRun) -> None:
    """A head that hears the host's sample knows everything that the host has done before."""
    ring = run.ring(5)
    ring.group([4, 5])
    operation(ring, 16, "forward-compute", 100 * MS, 110 * MS)
    run.flush()
    run.kill()
    operation(ring, 16, "optimizer", 110 * MS, 111 * MS)
    run.flush()
    assert [OPTYPES[row["optype"]] for row in rows(run)] == ["forward-compute", "optimizer"]
    assert rows(run)[0] == {
        "rank": 5,
        "step": 16,
        "optype": 0,
        "stage": 1,
        "chunk": 3,
        "micro_batch": 2,
        "pipeline": 4,
        "seq": 0,
        "start_ns": UNIX_NS + 100 * MS,
        "end_ns": UNIX_NS + 110 * MS,
    }
    events = run.receiver.events
    first = next(at for at, event in enumerate(events) if isinstance(event, Operations))
    assert any(isinstance(event, HostSample) for event in events[first:])


def test_a_sample_is_said_behind_operations_for_they_have_times_of_their_own(run: AgentRun) -> None:
    """Promises that speak of processes wait for the host's last word, and that is none of them."""
    ring = run.joined(0)
    run.flush()
    run.flush()
    assert len(run.receiver.of(HostSample)) == 1, "nothing has changed"
    operation(ring, 16, "optimizer", 110 * MS, 111 * MS)
    run.flush()
    kinds = [type(event) for event in run.receiver.events if isinstance(event, (Operations, HostSample))]
    assert kinds == [HostSample, Operations, HostSample]


def test_operations_that_cannot_be_true_are_left_out(run: AgentRun) -> None:
    ring = run.ring(5)
    operation(ring, 16, "no such type", 100 * MS, 110 * MS)
    operation(ring, 16, "forward-compute", 110 * MS, 100 * MS)
    operation(ring, -1, "forward-compute", 100 * MS, 110 * MS)
    operation(ring, 16, "backward-compute", 100 * MS, 110 * MS)
    run.flush()
    assert [OPTYPES[row["optype"]] for row in rows(run)] == ["backward-compute"]
