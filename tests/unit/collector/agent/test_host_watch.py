"""What an agent sees besides calls: when it looks, and in which order what it saw goes out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from collector.agent.flush_times import LOOK_AHEAD_NS
from collector.agent.host_watch import CLOSELY_EVERY_NS, VITALS_EVERY_NS, HostWatch
from collector.agent.outbox import Lost, Outbox, Outgoing
from collector.host.evidence.stall import Stall
from collector.host.rank_process import RankProcess
from pacehound.model import codec
from pacehound.model.events import HostEvidence, HostSample, HostVitals, Progress
from pacehound.model.flushes import Flush, Heartbeat
from tests.fakes.agent_run import MS, UNIX_NS, AgentRun

ResultT = TypeVar("ResultT")


class ManualTasks(Generic[ResultT]):
    """Runs its tasks when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], ResultT]] = []
        self._results: list[ResultT] = []

    def is_idle(self) -> bool:
        return not self.waiting

    def run(self, task: Callable[[], ResultT]) -> None:
        self.waiting.append(task)

    def finish(self) -> None:
        self._results += [task() for task in self.waiting]
        self.waiting.clear()

    def found(self, result: ResultT) -> None:
        self._results.append(result)
        self.waiting.clear()

    def results(self) -> list[ResultT]:
        found, self._results = self._results, []
        return found

    def close(self, wait_s: float = 0.0) -> None:
        self.waiting.clear()


def vitals(attempt: int, ranks: Sequence[RankProcess], now_unix_ns: int) -> HostVitals:
    return HostVitals(job="job-1", attempt=attempt, time_ns=now_unix_ns, host="node-1", oom_kills=len(ranks))


def evidence(stall: Stall, processes: Sequence[RankProcess], now_unix_ns: int) -> HostEvidence:
    return HostEvidence(job="job-1", attempt=stall.attempt, time_ns=now_unix_ns, host="node-1", reason=stall.reason)


class WatchedRun(AgentRun):
    def start(self) -> None:
        super().start()
        self.vitals: ManualTasks[HostVitals] = ManualTasks()
        self.evidence: ManualTasks[HostEvidence] = ManualTasks()
        self.agent._host_watch = HostWatch(
            vitals,
            evidence,
            vitals_tasks=self.vitals,
            evidence_tasks=self.evidence,
            suspect_after_s=self.settings.hang.suspect_after_s,
            clock_ns=lambda: UNIX_NS + self.now_ns,
        )


def test_vitals_are_read_every_five_seconds_and_never_twice_at_once(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path)
    run.flush()
    assert run.vitals.waiting == []  # no rank yet
    run.joined(0)
    run.joined(1)
    for _ in range(100):
        run.step(100)
    assert len(run.vitals.waiting) == 1  # it has not come back
    looked = []
    for _ in range(3 * VITALS_EVERY_NS // (100 * MS)):
        run.step(100)
        if run.vitals.waiting:
            looked.append(run.now_ns)
            run.vitals.finish()
    run.flush()
    said = run.receiver.of(HostVitals)
    assert [vitals.time_ns for vitals in said] == [UNIX_NS + at for at in looked]
    # The first one took long, so the second was due at once.
    assert [later - earlier for earlier, later in itertools.pairwise(looked)][1:] == [VITALS_EVERY_NS] * 2
    assert {vitals.oom_kills for vitals in said} == {2}


def test_hardware_is_looked_at_as_often_while_little_is_told(tmp_path: Path) -> None:
    """Of even, short iterations hosts tell each four seconds; their hardware is not looked at less."""
    run = WatchedRun(tmp_path)
    ring = run.joined(0)
    looked_s, n_told = [], []
    for second in range(60):
        for at in range(10):
            ring.marker(10 * second + at, run.now_ns - 10 * MS)
        run.step(1_000)
        n_told.append(len(run.receiver.of(Progress)))
        if run.vitals.waiting:
            looked_s.append(second)
            run.vitals.finish()
    assert n_told[-1] - n_told[-21] == 5, "in twenty seconds"
    assert {later - earlier for earlier, later in itertools.pairwise(looked_s)} == {5}
    assert len(run.receiver.of(HostVitals)) >= len(looked_s) - 1


def test_ranks_that_come_later_are_looked_at_at_once(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path)
    run.joined(0)
    run.flush()
    run.vitals.finish()
    run.joined(1)
    run.flush()
    assert len(run.vitals.waiting) == 1, "the second rank waits for five seconds"
    run.vitals.finish()
    run.flush()
    assert run.vitals.waiting == [], "the same ranks are looked at again at once"
    run.flush()
    assert [vitals.oom_kills for vitals in run.receiver.of(HostVitals)] == [1, 2]


def heartbeats(run: WatchedRun) -> list[Heartbeat]:
    """Of each message with promises, what it says of processes."""
    told = [event for message in run.receiver.messages for event in codec.decode(message)]
    return [event.heartbeat for event in told if isinstance(event, Flush) and event.heartbeat is not None]


def looked_at(run: WatchedRun) -> None:
    """Rank 0 has been looked at, what was seen was said, and how its process is as well."""
    run.joined(0)
    run.flush()
    run.vitals.finish()
    run.flush()
    run.flush()


def look_again(run: WatchedRun, flush_ms: int = 1_000) -> None:
    """What is seen in the next look is said."""
    while not run.vitals.waiting:
        run.step(1_000)
    run.vitals.finish()
    run.step(flush_ms)


DIGESTS = "agent.digests_from_ranks=2"


@pytest.mark.parametrize(
    ("settings", "is_beside"), [((DIGESTS,), True), ((), False), ((DIGESTS, "agent.messages=apart"), False)]
)
def test_hosts_that_tell_of_iterations_say_what_hardware_is_like_in_the_same_message(
    tmp_path: Path, settings: tuple[str, ...], is_beside: bool
) -> None:
    run = WatchedRun(tmp_path, *settings)
    run.joined(1)
    looked_at(run)
    look_again(run, 4_000)  # iterations of a large job are not known yet
    told = [event for message in run.receiver.messages for event in codec.decode(message)]
    beside = [event for event in told if isinstance(event, Flush) and event.vitals]
    assert [len(event.vitals) for event in beside] == [1, 1] * is_beside
    assert sum(isinstance(event, HostVitals) for event in told) == 2 * (not is_beside)
    if is_beside:
        assert {event.key for event in told if isinstance(event, Flush)} == {beside[0].key}, "one message on Kafka"
        assert heartbeats(run)[-1].behind_ns == beside[-1].time_ns


@pytest.mark.parametrize(("lasts_s", "are_together"), [(2, True), (7, False), (12, False)])
def test_what_hardware_is_like_is_not_told_with_a_long_iteration(
    tmp_path: Path, lasts_s: int, *, are_together: bool
) -> None:
    """Whoever is slow is named when thousands of hosts have told of an iteration, all at once; heartbeats can wait."""
    run = WatchedRun(tmp_path, DIGESTS)
    ring = run.joined(0)
    looked_ns, told = [], []
    for step in range(6 + 50 // lasts_s):
        ring.done(step, run.now_ns - 20 * MS, run.now_ns - 10 * MS)
        ring.marker(step, run.now_ns - 10 * MS)
        for _ in range(4 * lasts_s):
            n_before = len(run.receiver.messages)
            run.step(250)
            now = [event for message in list(run.receiver.messages)[n_before:] for event in codec.decode(message)]
            told.append([flush for flush in now if isinstance(flush, Flush)] if step > 4 else [])
            if run.vitals.waiting:
                looked_ns.append(run.now_ns)
                run.vitals.finish()
    of_iterations = [flushes for flushes in told if any(flush.markers for flush in flushes)]
    assert len(of_iterations) >= 50 // lasts_s
    assert any(flush.vitals for flushes in of_iterations for flush in flushes) == are_together
    assert max(later - earlier for earlier, later in itertools.pairwise(looked_ns)) <= 2 * VITALS_EVERY_NS
    with_vitals = [flushes for flushes in told if any(flush.vitals for flush in flushes)]
    assert len(with_vitals) >= 50 // 10
    for flushes in with_vitals if not are_together else []:
        (seen_ns,) = (vitals.time_ns for flush in flushes for vitals in flush.vitals)
        (beat,) = (flush.heartbeat for flush in flushes if flush.heartbeat is not None)
        assert beat.behind_ns >= seen_ns
        assert beat.time_ns - seen_ns <= LOOK_AHEAD_NS


def test_promises_speak_behind_what_was_seen_before_them(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path)
    looked_at(run)
    last = run.receiver.of(HostSample)[-1]
    assert heartbeats(run)[-1].behind_ns == last.time_ns
    look_again(run)
    assert heartbeats(run)[-1].behind_ns == run.receiver.of(HostVitals)[-1].time_ns > last.time_ns
    assert run.receiver.of(HostSample)[-1] == last


def test_while_somebody_looks_processes_are_said_in_full_and_no_promise_speaks_for_them(tmp_path: Path) -> None:
    """What he has seen is of a time that could have been promised by then."""
    run = WatchedRun(tmp_path)
    looked_at(run)
    begun_ns = UNIX_NS + run.now_ns
    stall = Stall(attempt=0, reason="stands", ranks=(0,), in_call=frozenset())
    run.evidence.waiting.append(lambda: evidence(stall, [], begun_ns))
    n_samples, n_beats = len(run.receiver.of(HostSample)), len(heartbeats(run))
    look_again(run)
    assert len(run.receiver.of(HostSample)) > n_samples
    assert len(heartbeats(run)) == n_beats
    assert max(beat.time_ns for beat in heartbeats(run)) < begun_ns
    run.evidence.finish()
    run.step(1_000)
    (seen,) = run.receiver.of(HostEvidence)
    assert seen.time_ns == begun_ns <= run.receiver.of(HostVitals)[-1].time_ns
    assert heartbeats(run)[-1].behind_ns == run.receiver.of(HostSample)[-1].time_ns, "behind what is no newer"


def test_promises_do_not_wait_for_a_word_that_was_refused(tmp_path: Path) -> None:
    """Behind it a sample is said, as long as words are refused: a host's time goes on as before."""
    run = WatchedRun(tmp_path)
    looked_at(run)
    run.receiver.rejects = HostVitals
    for _ in range(2):
        n_samples = len(run.receiver.of(HostSample))
        look_again(run)  # it is refused
        run.flush()
        assert heartbeats(run)[-1].behind_ns == run.receiver.of(HostSample)[-1].time_ns
        assert len(run.receiver.of(HostSample)) > n_samples
    assert len(run.receiver.of(HostVitals)) == 1


def test_a_call_that_stays_open_brings_evidence_without_holding_the_agent_up(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path, "hang.suspect_after_s=10")
    ring = run.joined(0)
    ring.launch(0, run.now_ns)
    for _ in range(20):
        run.step(500)
    assert run.evidence.waiting == []
    for _ in range(4):
        run.step(500)
    assert len(run.evidence.waiting) == 1
    said = len(run.receiver.of(Progress))
    for _ in range(10):
        run.step(500)
    assert len(run.receiver.of(Progress)) == said + 5  # it goes on while somebody looks
    run.evidence.finish()
    run.flush()
    (evidence,) = run.receiver.of(HostEvidence)
    assert evidence.reason == "rank 0 has been in all_reduce 0 on communicator 000102030405 for 10 s"


def test_nothing_is_looked_at_after_the_end(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path)
    run.joined(0)
    run.flush()
    run.vitals.finish()
    run.end()
    run.deliver()
    assert len(run.receiver.of(HostVitals)) == 1
    last = run.receiver.events[-1]
    assert isinstance(last, HostSample)
    assert last.closed
    assert run.vitals.waiting == []


def test_what_cannot_be_said_does_not_take_the_calls_with_it(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path)
    ring = run.joined(0)
    run.flush()
    run.vitals.waiting = [lambda: HostVitals(job="\udcff", attempt=0, time_ns=1, host="h")]
    run.vitals.finish()
    ring.done(0, run.now_ns, run.now_ns)
    run.flush()
    assert len(run.receiver.rows()) == 1
    assert run.receiver.of(HostVitals) == []


def test_when_room_is_needed_what_explains_goes_before_what_it_explains(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "o.sqlite", 100)
    kinds = ("calls", "diagnostics", "host", "diagnostics", "calls")
    outbox.save([Outgoing(kind=kind, stream="c", calls=1, payload=bytes(20)) for kind in kinds], b"", 0)  # type: ignore[arg-type]
    assert outbox.make_room(40) == {}
    assert (len(outbox), outbox.held_bytes) == (3, 60)
    assert outbox.make_room(60) == {"c": Lost(calls=1)}


def test_vitals_tell_what_the_agent_and_the_shim_take(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path)
    run.ring(0).group([0])
    for rank, calls, took_ns in ((1, 4, 100), (2, 1, 80)):
        run.ring(rank).measured(calls, took_ns)
    for _ in range(12):
        run.cpu_ns += 150 * MS
        run.step(1_000)
        run.vitals.finish()
    first, *_, last = [vitals.agent for vitals in run.receiver.of(HostVitals)]
    assert first is not None
    assert last is not None
    assert (first.cpu_cores, last.cpu_cores) == (0.0, 0.15)
    assert last.resident_bytes > 10 << 20
    assert (last.flush_s, last.dropped_calls) == (1.0, 0)
    assert last.shim_ns_per_call == 36


def test_by_order_it_looks_each_second_and_once_at_what_ranks_do_and_then_as_before(tmp_path: Path) -> None:
    run = WatchedRun(tmp_path)
    run.joined(0)
    run.flush()
    run.vitals.finish()
    watch = run.agent._host_watch
    assert watch is not None
    begun_ns = run.now_ns
    watch.look_closely(0, [0], "a slowdown", until_ns=run.now_ns + 4 * CLOSELY_EVERY_NS)
    looked, stalls = [], 0
    while run.now_ns < begun_ns + 3 * VITALS_EVERY_NS:
        run.step(100)
        if run.vitals.waiting:
            looked.append(run.now_ns - begun_ns)
            run.vitals.finish()
        stalls += len(run.evidence.waiting)
        run.evidence.finish()
    run.flush()
    gaps = [later - earlier for earlier, later in itertools.pairwise(looked)]
    assert gaps[:3] == [CLOSELY_EVERY_NS] * 3
    assert set(gaps[4:]) == {VITALS_EVERY_NS}
    assert stalls == 1
    assert [told.reason for told in run.receiver.of(HostEvidence)] == ["a slowdown"]
