"""Ranks whose calls are not seen are told once, and again when that has changed."""

from __future__ import annotations

from pacehound.model.events import SWITCHED_OFF, Finding, HostSample, Incident, Instant, ProcessState, Watermark
from pacehound.settings import Settings
from streams.hang.unseen_libraries import UnseenCalls
from streams.job.operator import JobOperator
from streams.watching.moment import Moment
from tests.fakes.events import topology
from tests.fakes.evidence_words import words_of


def sample(time_ns: int, **unseen: tuple[str, ...]) -> HostSample:
    return HostSample(
        job="j",
        attempt=0,
        time_ns=time_ns,
        host="node-1",
        processes=tuple(
            ProcessState(rank=int(rank[1:]), pid=1, state="running", since_ns=0, unseen=names)
            for rank, names in unseen.items()
        ),
    )


def test_a_blind_finding_from_its_onset_to_its_relief() -> None:
    watch = UnseenCalls("j", 0)
    watch.hear(sample(10, r0=(), r1=()), None)
    assert watch.on_tick(Moment(now_ns=20)) == []
    watch.hear(sample(100, r0=("nccl",), r1=()), None)
    (found,) = watch.on_tick(Moment(now_ns=120, step=4))
    assert (found.kind, found.verdict, found.candidates, found.culprits, found.onset.time_ns) == (
        "blind",
        "unknown",
        (0,),
        (),
        100,
    )
    assert "nccl is at work in processes of node-1" in words_of(found)[0]
    assert found.unseen
    watch.hear(sample(130, r0=("nccl",), r1=()), None)
    assert watch.on_tick(Moment(now_ns=140, step=4)) == []
    watch.hear(sample(150, r0=("nccl",), r1=("nccl",)), None)
    (wider,) = watch.on_tick(Moment(now_ns=160, step=4))
    assert (wider.id, wider.version, wider.candidates, wider.relief) == (found.id, found.version + 1, (0, 1), None)
    watch.hear(sample(170, r0=(), r1=()), None)
    (over,) = watch.on_tick(Moment(now_ns=180, step=5))
    assert (over.id, over.version) == (found.id, found.version + 2)
    assert over.relief == Instant(step=5, time_ns=180)
    assert watch.on_tick(Moment(now_ns=190, step=5)) == []


def test_ranks_that_have_switched_themselves_off_are_told_of() -> None:
    watch = UnseenCalls("j", 0)
    watch.hear(sample(100, r0=(SWITCHED_OFF,), r1=()), None)
    (found,) = watch.on_tick(Moment(now_ns=120, step=4))
    assert (found.kind, found.verdict, found.candidates) == ("blind", "unknown", (0,))
    assert words_of(found)[0] == (
        "Pacehound has switched itself off in processes of node-1: their calls are not seen any more"
    )
    assert found.unseen == ("calls of ranks whose hooks are off on node-1: the end of its run says why",)


def test_the_job_says_what_its_hosts_agents_say() -> None:
    job = JobOperator("j", 0, Settings())
    events = job.on_stage_one(topology("w", host="node-1"))
    for second in range(1, 20):
        unseen = ("nccl",) if second > 9 else ()
        events += job.on_stage_one(Watermark(job="j", attempt=0, stream="w", time_ns=second * 10**9))
        events += job.on_host(sample(second * 10**9, r0=unseen, r1=unseen))
    found = [event for event in events if isinstance(event, Finding)]
    assert [(finding.kind, finding.candidates) for finding in found] == [("blind", (0, 1))]
    assert any(isinstance(event, Incident) for event in events)
