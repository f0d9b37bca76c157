"""Two live jobs of one name: it is said, and what is said of the first one stays as it was."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pacehound.errors import InvalidEvent
from pacehound.model.events import Finding, HostSample, ProcessState
from pacehound.model.routing import Event
from pacehound.model.topology import Layout
from pacehound.runtime.feed import due_ns
from pacehound.settings import Settings
from simulator.faults import ExitRank, SlowCompute
from simulator.job import JobSpec, simulate
from streams.hang.shared_name import SharedName
from streams.hang.thresholds import SIDE_BY_SIDE_NS
from streams.pipeline import Pipeline
from streams.watching.moment import Moment
from tests.fakes.evidence_words import words_of

LAYOUT = Layout(tp=2, dp=2)
S = 1_000_000_000


def recorded(*faults: object) -> list[Event]:
    return list(simulate(JobSpec(layout=LAYOUT, iterations=300, ranks_per_host=2, faults=faults)).events())  # type: ignore[arg-type]


def on_other_hosts(events: list[Event]) -> Iterator[Event]:
    for event in events:
        event = replace(event, host="other-" + event.host) if hasattr(event, "host") else event  # type: ignore[type-var]
        yield with_other_processes(event)


def with_other_processes(event: Event) -> Event:
    if not isinstance(event, HostSample):
        return event
    return replace(event, processes=tuple(replace(one, pid=one.pid + 50_000) for one in event.processes))


def findings_of(events: Iterator[Event] | list[Event]) -> tuple[list[Finding], int]:
    pipeline, told, refused = Pipeline(Settings()), [], 0
    for event in events:
        try:
            told += [one for one in pipeline.on_event(event) if isinstance(one, Finding)]
        except InvalidEvent:
            refused += 1
    return told, refused


SLOW = SlowCompute(ranks=(3,), factor=1.8, from_step=80)


def test_of_two_jobs_on_other_hosts_the_second_is_told_of_and_changes_nothing_about_the_first() -> None:
    alone, _ = findings_of(recorded(SLOW))
    second = list(on_other_hosts(recorded(ExitRank(rank=1, step=120, exit_code=1))))
    told, refused = findings_of(heapq.merge(recorded(SLOW), second, key=due_ns))
    shared = [finding for finding in told if finding.kind == "blind" and "own" in "".join(finding.unseen)]
    assert shared
    assert shared[0].candidates == (0, 1, 2, 3)
    assert "of host0 and process" in words_of(shared[0])[0]
    assert refused > 0
    named = {finding.culprits for finding in alone if finding.culprits}
    assert named == {(3,)}
    assert {finding.culprits for finding in told if finding.culprits} == named


def test_two_jobs_on_the_same_hosts_are_told_of() -> None:
    first = recorded()
    told, _ = findings_of(heapq.merge(first, map(with_other_processes, first), key=due_ns))
    assert any("rank 0 is process" in sentence for finding in told for sentence in words_of(finding))


def sample(time_s: float, host: str, pid: int, state: str = "running") -> HostSample:
    process = ProcessState(rank=0, pid=pid, state=state, since_ns=0)  # type: ignore[arg-type]
    return HostSample(job="j", attempt=0, time_ns=round(time_s * S), host=host, processes=(process,))


@pytest.mark.parametrize(
    "said",
    [
        [sample(t, "a", 1 if t < 30 else 2) for t in range(60)],
        [sample(t, "a" if t < 30 else "b", 7) for t in range(60)],
        [sample(t if t < 30 else t - 5, "a" if t < 30 else "b", 7) for t in range(60)],  # its clock is 5 s behind
        [sample(t, "a", 1) for t in range(30)]
        + [sample(30, "a", 1, "exited")]
        + [sample(t, "b", 2) for t in range(25, 60)],
    ],
    ids=["a restart", "a move", "a move to an earlier clock", "an exit"],
)
def test_a_process_that_takes_over_from_another_is_no_second_job(said: list[HostSample]) -> None:
    watch = SharedName("j", 0)
    for one in sorted(said, key=lambda one: one.time_ns):
        passed_on = watch.of_the_first(one)
        assert watch.on_tick(Moment(now_ns=one.time_ns)) == []
    assert passed_on is said[-1]


def test_processes_whose_hosts_say_that_nothing_has_changed_are_there_still() -> None:
    watch = SharedName("j", 0)
    watch.of_the_first(sample(0, "a", 1))
    assert watch.of_the_first(sample(1, "b", 2)).processes == ()
    told = []
    for t in range(2, 60):
        for host in ("a", "b"):
            watch.is_unchanged(host, t * S)
        told += watch.on_tick(Moment(now_ns=(t + 1) * S, step=9))
    assert [finding.candidates for finding in told] == [(0,)]
    assert watch.of_the_first(sample(60, "b", 2)).processes == ()


def test_it_is_over_when_one_of_them_has_gone() -> None:
    watch, told = SharedName("j", 0), []
    for t in range(60):
        watch.of_the_first(sample(t, "a", 1))
        if 5 <= t < 30:
            watch.of_the_first(sample(t + 0.5, "b", 2))
        told += watch.on_tick(Moment(now_ns=(t + 1) * S, step=9))
    assert [finding.relief is None for finding in told] == [True, False]
    assert told[0].detected is not None
    assert told[0].detected.time_ns <= 5 * S + SIDE_BY_SIDE_NS + 2 * S


def test_ranks_of_several_containers_may_have_one_number() -> None:
    watch = SharedName("j", 0)
    states = tuple(ProcessState(rank=rank, pid=1, state="running", since_ns=0) for rank in range(3))
    for second in range(2 * SIDE_BY_SIDE_NS // S):
        sample = HostSample(job="j", attempt=0, time_ns=second * S, host="h", processes=states)
        assert watch.of_the_first(sample) == sample
        assert watch.on_tick(Moment(now_ns=second * S, step=second)) == []


def test_processes_that_have_taken_each_other_s_ranks_are_one_job() -> None:
    """Workers of a pool, in a second job of theirs."""
    watch = SharedName("j", 0)

    def heard(second: int, turn: int) -> HostSample:
        states = [
            ProcessState(rank=(rank + turn) % 3, pid=100 + rank, state="running", since_ns=0) for rank in range(3)
        ]
        return HostSample(job="j", attempt=0, time_ns=second * S, host="h", processes=tuple(states))

    lasts_s = 2 * SIDE_BY_SIDE_NS // S
    for second in range(2 * lasts_s):
        sample = heard(second, turn=second // lasts_s)
        assert watch.of_the_first(sample) == sample
        assert watch.on_tick(Moment(now_ns=second * S, step=second)) == []
