"""A host that is lost and comes back, or a new one that offers itself, is told beside the loss, once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pacehound.model.events import Finding, HostSample, Incident, Instant, ProcessState, Tick, Topology
from pacehound.model.evidence import Evidence
from pacehound.model.evidence.leaving import JobShape, Joined, Left
from pacehound.model.evidence.machines import HostSilent
from pacehound.model.identity import event_id
from pacehound.model.routing import host_stream
from pacehound.settings import Settings
from streams.job.operator import StageTwoEvent
from streams.job.returns import Returns
from streams.job.stage_two import StageTwo
from streams.snapshots.schema import state_codec

S_NS = 1_000_000_000
HOSTS = {"a": (0, 1), "b": (2, 3), "c": (4, 5), "d": (6, 7)}
SHAPE = JobShape(dp=4, pp=2, tp=1, stage_stride=4, micro_batches=8, gradient_bytes=10**9, step_time_s=1.5)
FEWER = JobShape(dp=3, pp=2, tp=1, stage_stride=3, micro_batches=8, gradient_bytes=10**9, step_time_s=1.9)


def world(returns: Returns, name: str, hosts: dict[str, tuple[int, ...]], at_s: int, attempt: int = 0) -> None:
    ranks = tuple(rank for here in hosts.values() for rank in here)
    for host, here in hosts.items():
        returns.on_event(
            Topology(
                job="j", attempt=attempt, time_ns=at_s * S_NS, host=host, communicator=name, name="0", is_world=True,
                members=ranks, host_ranks=here, world_size=len(ranks),
            )
        )  # fmt: skip


def lost(*evidence: Evidence, culprits: tuple[int, ...] = (6, 7), version: int = 0, state: str = "open") -> Incident:
    finding = Finding(
        id="f", job="j", attempt=0, kind="hang", verdict="culprit", cause="H1", culprits=culprits, version=version,
        onset=Instant(step=9, time_ns=10 * S_NS), evidence=(*evidence, SHAPE),
    )  # fmt: skip
    return Incident(
        id=event_id("incident", "i"), version=version, job="j", attempt=0, time_ns=20 * S_NS, opened_ns=15 * S_NS,
        state="closed" if state == "closed" else "open", closed_ns=19 * S_NS if state == "closed" else None,
        findings=(finding,),
    )  # fmt: skip


def sample(host: str, at_s: int, *ranks: int, attempt: int = 0, pid: int = 1, closed: bool = False) -> HostSample:
    processes = tuple(ProcessState(rank=rank, pid=pid + rank, state="running", since_ns=0) for rank in ranks)
    return HostSample(
        job="j", attempt=attempt, time_ns=at_s * S_NS, host=host, processes=processes, closed=closed,
        closed_why="job ended" if closed else "",
    )  # fmt: skip


def news(returns: Returns, at_s: int = 40, layout: JobShape | None = FEWER) -> list[StageTwoEvent]:
    return returns.news(at_s * S_NS, lambda _attempt: layout)


def joined_of(said: list[StageTwoEvent]) -> Joined:
    finding, incident = said
    assert isinstance(finding, Finding)
    assert isinstance(incident, Incident)
    assert incident.findings == (finding,)
    return next(piece for piece in finding.evidence if isinstance(piece, Joined))


@pytest.fixture
def fewer() -> Returns:
    """A job whose host d has fallen silent, and that goes on with the others."""
    returns = Returns("j")
    world(returns, "w", HOSTS, 0)
    returns.on_event(Tick(job="j", attempt=0, time_ns=14 * S_NS, stream=host_stream("j", "d")))
    world(returns, "w2", {"a": (0, 1), "b": (2, 3), "c": (4, 5)}, 30)
    returns.told([lost(HostSilent(hosts=("d",)))])
    return returns


def test_a_lost_host_that_is_heard_again_is_told_with_how_many_train(fewer: Returns) -> None:
    assert news(fewer) == []
    fewer.on_event(sample("d", 40, 6, 7))
    told = joined_of(news(fewer))
    assert told == Joined(back=("d",), n_ranks=2, n_now=6, n_before=8, at_ns=40 * S_NS, dp=3, pp=2)
    assert told.words == "d is heard again: 2 ranks more could train beside the 6 of 8 that do"


def test_it_is_told_once_however_often_it_comes_and_goes(fewer: Returns) -> None:
    fewer.on_event(sample("d", 40, 6, 7))
    assert news(fewer)
    fewer.on_event(Tick(job="j", attempt=0, time_ns=50 * S_NS, stream=host_stream("j", "d")))
    fewer.on_event(sample("d", 60, 6, 7))
    assert news(fewer) == []


def test_what_others_say_of_the_loss_later_keeps_it_and_goes_on_in_versions(fewer: Returns) -> None:
    fewer.on_event(sample("d", 40))
    finding, incident = news(fewer)
    assert isinstance(finding, Finding)
    assert isinstance(incident, Incident)
    assert (finding.version, incident.version) == (1, 1)
    later = lost(HostSilent(hosts=("d",)), version=1)
    (told,) = fewer.told([later])
    assert isinstance(told, Incident)
    assert (told.version, told.findings[0].version) == (2, 2)
    assert any(isinstance(piece, Joined) for piece in told.findings[0].evidence)
    assert news(fewer) == []


def test_a_new_host_without_ranks_offers_as_many_as_the_others_have(fewer: Returns) -> None:
    fewer.on_event(sample("e", 40, attempt=1))
    told = joined_of(news(fewer, layout=None))
    assert (told.back, told.new, told.n_ranks, told.dp) == ((), ("e",), 2, 0)


def test_a_second_one_is_told_together_with_the_first(fewer: Returns) -> None:
    fewer.on_event(sample("e", 40))
    assert joined_of(news(fewer)).new == ("e",)
    fewer.on_event(sample("d", 41, 6))
    told = joined_of(news(fewer))
    assert (told.back, told.new, told.n_ranks) == (("d",), ("e",), 4)


def test_who_has_gone_again_before_the_job_goes_on_is_not_told() -> None:
    returns = Returns("j")
    world(returns, "w", HOSTS, 0)
    returns.told([lost(HostSilent(hosts=("d",)))])
    returns.on_event(sample("e", 25))
    assert news(returns) == []  # the job stands still: what it does next is decided already
    returns.on_event(sample("e", 26, closed=True))
    world(returns, "w2", {"a": (0, 1), "b": (2, 3), "c": (4, 5)}, 30)
    assert news(returns) == []


def test_a_job_that_has_all_its_ranks_needs_nobody(fewer: Returns) -> None:
    world(fewer, "w3", HOSTS, 35)
    fewer.on_event(sample("e", 40))
    assert news(fewer) == []


def test_the_next_attempt_is_the_same_job() -> None:
    returns = Returns("j")
    world(returns, "w", HOSTS, 0)
    returns.told([lost(HostSilent(hosts=("d",)), state="closed")])
    world(returns, "w", {"a": (0, 1), "b": (2, 3), "c": (4, 5)}, 30, attempt=1)
    returns.on_event(sample("d", 40, attempt=2))
    _, incident = news(returns)
    assert isinstance(incident, Incident)
    assert (incident.state, incident.version, incident.time_ns) == ("closed", 1, 40 * S_NS)


def test_a_killed_rank_is_back_when_another_process_is_that_rank() -> None:
    returns = Returns("j")
    world(returns, "w", HOSTS, 0)
    world(returns, "w2", {"a": (0, 1), "b": (2, 3), "c": (4, 5)}, 11)
    returns.told([lost(Left(rank=6, pid=7, signal=9), culprits=(6,))])
    returns.on_event(sample("d", 30, 6, 7))  # pid 7 is rank 6 as it was
    assert news(returns) == []
    returns.on_event(sample("d", 40, 6, pid=100))
    assert joined_of(news(returns)).n_ranks == 1


def test_a_loss_without_a_layout_is_none_of_ours() -> None:
    returns = Returns("j")
    world(returns, "w", HOSTS, 0)
    one = lost(HostSilent(hosts=("d",)))
    bare = replace(one.findings[0], evidence=(HostSilent(hosts=("d",)),))
    returns.told([replace(one, findings=(bare,))])
    world(returns, "w2", {"a": (0, 1)}, 30)
    returns.on_event(sample("d", 40))
    assert news(returns) == []


def test_a_restored_one_goes_on_where_it_was(fewer: Returns) -> None:
    codec = state_codec(Settings())
    stage = StageTwo("j", Settings())
    stage._returns = fewer
    restored = codec.decode(codec.encode(stage))._returns
    for one in (fewer, restored):
        one.on_event(sample("d", 40, 6, 7))
    assert news(restored) == news(fewer) != []


def test_an_agent_without_ranks_holds_up_no_time_of_a_job() -> None:
    """Its host is no stream that the job waits for, also where the job is known."""
    stage = StageTwo("j", Settings())
    ranks = (0, 1)
    stage.on_event(
        Topology(
            job="j", attempt=0, time_ns=S_NS, host="a", communicator="w", name="0", is_world=True, members=ranks,
            host_ranks=ranks, world_size=2,
        )
    )  # fmt: skip
    stage.on_event(sample("a", 1, 0, 1))
    stage.on_event(sample("spare", 2))
    assert stage.attempts[0].hosts == ("a",)
    stage.on_event(sample("spare", 3, closed=True))
    assert stage.attempts[0].hosts == ("a",)
