"""The shim on two hosts: communicators between them, of which neither knows all members, come out whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from pacehound.errors import RejectedMessage
from pacehound.model.calls import CallBatch
from pacehound.model.codes import OPS
from pacehound.model.events import Topology
from pacehound.model.rounds import Rounds
from pacehound.model.routing import Event
from pacehound.settings import Settings
from streams.pipeline import Pipeline
from tests.fakes.late_agent import told_of
from tests.native.stub_jobs import JOB, Built, Job

TP, PP, MICRO_BATCHES = 2, 2, 3


class TwoHosts(Job):
    """Ranks 0 and 1 are on host `a`, 2 and 3 on host `b`."""

    def host(self, rank: int) -> str:
        return "ab"[rank // TP]

    def environment(self, rank: int) -> dict[str, str]:
        return super().environment(rank) | {"PACEHOUND_RUN_DIR": str(self.folder / self.host(rank))}


def script(rank: int) -> list[str]:
    """A pipeline of two stages, each split in two by tensors; stages are in different hosts."""
    tp, stage = rank % TP, rank // TP
    transfer = "recv" if stage else "send"
    return [
        f"init world {TP * PP} {rank}",
        f"split t world {stage} {tp}",
        f"split p world {tp} {stage}",
        *["all_reduce t 64 7 0 0 0", f"{transfer} p 64 7 0 {1 - stage} 0"] * MICRO_BATCHES,
        "broadcast p 8 7 0 1 0",
        "all_reduce world 1 7 0 0 0",
        "syncall",
    ]


@pytest.mark.parametrize("first", ["a", "b"])
def test_calls_between_hosts_meet_in_rounds_of_world_ranks(built: Built, shared_folder: Path, first: str) -> None:
    job = TwoHosts(built, shared_folder / "job", TP * PP)
    for host in "ab":
        (job.folder / host).mkdir()
    try:
        for rank in range(TP * PP):
            job.start(rank, script(rank))
        job.wait(60)
    finally:
        job.stop()
    events = [
        event
        for host in sorted("ab", key=lambda host: host != first)
        for event in told_of(job.folder / host, JOB, host)
    ]
    partial = {event.members for event in events if isinstance(event, Topology) and event.is_partial}
    assert partial == {(0, -1), (1, -1), (-1, 2), (-1, 3)}
    pipeline = Pipeline(Settings.load({}, []))
    out: list[Event] = []
    for event in events:
        try:
            out += pipeline.on_event(event)
        except RejectedMessage as error:
            raise AssertionError(f"{event} was refused") from error
    rounds = [one for one in out if isinstance(one, Rounds)]
    met = {(one.ranks, OPS[op], seq) for one in rounds for op, seq in zip(one.op, one.seq.tolist(), strict=True)}
    pairs = {(ranks, seq) for ranks, op, seq in met if op in ("send", "recv")}
    assert pairs == {((tp, tp + TP), seq) for tp in range(TP) for seq in range(MICRO_BATCHES)}
    assert {ranks for ranks, op, _ in met if op == "broadcast"} == {(0, 2), (1, 3)}
    assert {ranks for ranks, op, _ in met if op == "all_reduce"} == {(0, 1), (2, 3), (0, 1, 2, 3)}
    for one in rounds:
        assert (one.arrival_ns > 0).all(), one
    assert sum(len(e) for e in events if isinstance(e, CallBatch)) == TP * PP * (2 * MICRO_BATCHES + 2)
    lost = {name: n for name, n in pipeline.all_counts().items() if "calls" in name or "rows" in name}
    assert lost == {}
