"""The first rank that leaves in disorder: whose fault it is that it does."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest

from pacehound.model.events import (
    Finding,
    HostSample,
    OpenCall,
    PairProgress,
    ProcessState,
    Progress,
    RankProgress,
)
from pacehound.model.job_end import JOB_ENDED, JOB_FAILED, JOB_INTERRUPTED
from pacehound.settings import HangSettings
from streams.hang.exits import ExitWatch
from streams.hang.hang_watch import HangWatch
from streams.hang.observations import RootCause
from streams.hang.thresholds import REPORT_AFTER_NS, SETTLE_NS
from streams.watching.moment import Moment
from tests.fakes.events import topology
from tests.fakes.evidence_words import words_of

SECOND_NS = 1_000_000_000
WORLD = (0, 1, 2, 3)


def sample(time_ns: int, **left: int) -> HostSample:
    """All ranks of a host; `rank2=1` left with that exit code, `rank2=-9` by that signal."""
    processes = []
    for rank in WORLD:
        status = left.get(f"rank{rank}")
        processes.append(
            ProcessState(
                rank=rank,
                pid=100 + rank,
                state="running" if status is None else "exited",
                since_ns=0 if status is None else time_ns,
                exit_code=status if status is not None and status >= 0 else None,
                signal=-status if status is not None and status < 0 else None,
            )
        )
    return HostSample(job="j", attempt=0, time_ns=time_ns, host="h", processes=tuple(processes))


class HeldUp(HangWatch):
    """A hang watch that has seen a standstill, or none."""

    def __init__(self, found: RootCause | None) -> None:
        super().__init__("j", 0, HangSettings())
        self._found = found

    def standstill(self) -> RootCause | None:
        return self._found


def verdict(held_up: RootCause | None, **left: int) -> Finding:
    """What is said when these ranks leave together at second 10."""
    watch = ExitWatch("j", 0, HeldUp(held_up))
    watch.hear(sample(10 * SECOND_NS, **left), 5)
    (finding,) = watch.on_tick(Moment(now_ns=10 * SECOND_NS + SETTLE_NS, step=5))
    return finding


def test_who_leaves_with_an_error_is_suspected_where_nothing_held_the_job_up() -> None:
    finding = verdict(None, rank1=1)
    assert (finding.verdict, finding.cause, finding.culprits) == ("suspected", None, (1,))


def test_of_ranks_whose_calls_time_out_the_first_to_leave_is_not_guilty() -> None:
    held_up = RootCause(verdict="culprit", cause="H2", culprits=(2,))
    finding = verdict(held_up, rank1=1)
    assert (finding.verdict, finding.cause, finding.culprits) == ("culprit", "H2", (2,))


def test_who_was_waited_for_and_then_fails_is_the_culprit() -> None:
    held_up = RootCause(verdict="suspected", cause="H1", culprits=(2,))
    finding = verdict(held_up, rank2=1)
    assert (finding.verdict, finding.cause, finding.culprits) == ("culprit", "H1", (2,))


def test_where_it_is_not_known_who_held_the_job_up_nobody_is_named() -> None:
    held_up = RootCause(verdict="unknown", cause="H3", candidates=WORLD)
    finding = verdict(held_up, rank1=1)
    assert (finding.verdict, finding.culprits, finding.candidates) == ("unknown", (), WORLD)


def test_a_signal_that_strikes_one_process_needs_no_other_explanation() -> None:
    held_up = RootCause(verdict="suspected", cause="H1", culprits=(2,))
    finding = verdict(held_up, rank1=-signal.SIGKILL)
    assert (finding.verdict, finding.culprits) == ("culprit", (1,))


KILLED = -signal.SIGKILL


def test_a_job_that_is_killed_whole_is_told_with_what_is_known_and_names_nobody() -> None:
    finding = verdict(None, rank0=KILLED, rank1=KILLED, rank2=KILLED, rank3=KILLED)
    assert (finding.kind, finding.verdict, finding.culprits, finding.candidates) == ("exit", "unknown", (), WORLD)
    assert words_of(finding)[:2] == (
        "all 4 ranks were killed within 2 s: from outside",
        "rank 0 (pid 100) was killed by SIGKILL, first",
    )
    assert "who sent the signal" in finding.unseen[0]


def test_a_job_of_which_all_ranks_crash_was_not_killed_from_outside() -> None:
    """All ranks of torch 2.15 do with TORCH_DISTRIBUTED_DEBUG=DETAIL and gloo."""
    finding = verdict(None, **{f"rank{rank}": -signal.SIGSEGV for rank in WORLD})
    assert (finding.verdict, finding.culprits, finding.candidates) == ("unknown", (), WORLD)
    assert words_of(finding)[0] == "all 4 ranks crashed within 2 s, by SIGSEGV: by what all of them do"
    assert "PYTHONFAULTHANDLER" in finding.unseen[0]


def test_what_held_a_job_up_that_was_killed_whole_is_told_and_makes_no_culprit_of_the_killed() -> None:
    held_up = RootCause(verdict="suspected", cause="H1", culprits=(2,))
    finding = verdict(held_up, rank0=KILLED, rank1=KILLED, rank2=KILLED, rank3=KILLED)
    assert (finding.verdict, finding.cause, finding.culprits) == ("suspected", "H1", (2,))


@pytest.mark.parametrize(("asked_s", "verdict"), [(-30.0, "unknown"), (0.5, "culprit")])
def test_who_is_killed_after_the_launcher_asked_the_others_to_end_is_not_to_blame(asked_s: float, verdict: str) -> None:
    """Some seconds after a SIGTERM it kills who is left. Who is killed before the others are asked has begun it."""
    watch = ExitWatch("j", 0, HeldUp(None))
    ended = sample(40 * SECOND_NS, rank0=-signal.SIGTERM, rank1=-signal.SIGTERM, rank2=KILLED, rank3=KILLED)
    asked_ns = int((40.0 + asked_s) * SECOND_NS)
    processes = [replace(p, since_ns=asked_ns) if p.rank < 2 else p for p in ended.processes]
    watch.hear(replace(ended, processes=tuple(processes)), 5)
    (finding,) = watch.on_tick(Moment(now_ns=40 * SECOND_NS + SETTLE_NS, step=5))
    assert isinstance(finding, Finding)
    assert finding.verdict == verdict
    if verdict == "unknown":
        assert words_of(finding)[0].startswith("rank 0 was the first to end, 30.0 s before, by SIGTERM")


@pytest.mark.parametrize(
    ("before_s", "candidates", "verdict"),
    [(0.0, (0, 1, 2), "unknown"), (0.3, (2,), "suspected"), (30.0, (0, 1), "unknown"), (-1.0, (0, 1), "unknown")],
    ids=["at the same time", "just before", "long before", "after it"],
)
def test_who_left_nobody_knows_how_is_not_passed_over_where_others_fail_behind_it(
    before_s: float, candidates: tuple[int, ...], verdict: str
) -> None:
    """A killed rank that was reaped before anybody looked: ranks that fail for it are not the first to have left."""
    watch = ExitWatch("j", 0, HeldUp(None))
    failed = sample(40 * SECOND_NS, rank0=1, rank1=1)
    since_ns = int((40.0 - before_s) * SECOND_NS)
    processes = [replace(p, state="exited", since_ns=since_ns) if p.rank == 2 else p for p in failed.processes]
    watch.hear(replace(failed, processes=tuple(processes)), 5)
    (finding,) = watch.on_tick(Moment(now_ns=40 * SECOND_NS + SETTLE_NS, step=5))
    assert isinstance(finding, Finding)
    assert (finding.verdict, finding.culprits or finding.candidates) == (verdict, candidates)
    words = " ".join((*words_of(finding), *finding.unseen))
    assert ("rank 2 (pid 102) was" in words and "how rank 2 ended" in words) == (2 in candidates)
    if verdict == "suspected":
        assert words_of(finding) == ("rank 2 (pid 102) was the first to leave: it left without a word, nobody saw how",)


RESET = "RuntimeError: [pair.cc:545] Read error [10.0.0.2]:5342: Connection reset by peer"
REMOTE = "DistBackendError: NCCL error in: NCCLUtils.cpp:77, remote process exited or there w"


@pytest.mark.parametrize(
    ("why", "ended_s", "verdict"),
    [
        (JOB_FAILED, 40.1, "suspected"),
        (JOB_FAILED, 39.0, None),
        (JOB_ENDED, 40.1, None),
        (JOB_INTERRUPTED, 40.1, None),
    ],
    ids=["it was first", "it came later", "a job that did well", "somebody asked for the end"],
)
def test_who_left_first_nobody_knows_how_is_suspected_where_the_others_were_ended_for_it(
    why: str, ended_s: float, verdict: str | None
) -> None:
    """`mp.spawn` waits for a killed rank within a millisecond, ends the others, and fails."""
    watch = ExitWatch("j", 0, HeldUp(None))
    ended = sample(int(ended_s * SECOND_NS), rank0=-signal.SIGTERM, rank1=-signal.SIGTERM, rank3=-signal.SIGTERM)
    processes = [replace(p, state="exited", since_ns=40 * SECOND_NS) if p.rank == 2 else p for p in ended.processes]
    watch.hear(replace(ended, processes=tuple(processes), closed=True, closed_why=why), 5)
    found = watch.on_end(Moment(now_ns=41 * SECOND_NS, step=5))
    assert [(one.verdict, one.culprits) for one in found] == ([] if verdict is None else [(verdict, (2,))])
    if found:
        assert "left without a word, nobody saw how" in words_of(found[0])[0]


def test_of_ranks_that_were_all_gone_before_anybody_looked_nobody_was_first() -> None:
    watch = ExitWatch("j", 0, HeldUp(None))
    gone = sample(40 * SECOND_NS)
    processes = tuple(replace(p, state="exited", since_ns=40 * SECOND_NS) for p in gone.processes)
    watch.hear(replace(gone, processes=processes, closed=True, closed_why=JOB_FAILED), 5)
    assert watch.on_end(Moment(now_ns=41 * SECOND_NS, step=5)) == []


def beside_a_host(
    silent_since_s: float | None, *, details: dict[int, str], held_up: RootCause | None = None, **left: int
) -> list[Any]:
    """What is said, one after the other, of ranks of host h that leave at second 10; ranks 2 and 3 are on another."""
    watch = ExitWatch("j", 0, HeldUp(held_up))
    before = sample(9 * SECOND_NS)
    watch.hear(replace(before, host="other", processes=before.processes[2:]), 5)
    at = sample(10 * SECOND_NS, **left)
    processes = tuple(replace(p, detail=details.get(p.rank, "")) for p in at.processes if p.rank < 2)
    watch.hear(replace(at, processes=processes), 5)
    silent = {} if silent_since_s is None else {"other": int(silent_since_s * SECOND_NS)}
    moments = [
        Moment(
            now_ns=10 * SECOND_NS + after_ns, step=5, ranks_of={"h": (0, 1), "other": (2, 3)}, silent_since_ns=silent
        )
        for after_ns in (SETTLE_NS, SECOND_NS + REPORT_AFTER_NS, 2 * SECOND_NS + REPORT_AFTER_NS)
    ]
    return [said for moment in moments for said in watch.on_tick(moment)]


@pytest.mark.parametrize(
    "detail",
    [
        RESET,
        REMOTE,
        "RuntimeError: [pair.cc:561] Connection closed by peer [127.0.0.1]:2187. This is typically",
        "DistNetworkError: sendBytes failed on SocketImpl(fd=3, addr=[a]:1, remote=[b]:2): Broken pi",
    ],
)
def test_who_fails_because_a_peer_has_gone_is_not_suspected(detail: str) -> None:
    (found,) = beside_a_host(None, details={0: detail}, rank0=1)
    assert (found.verdict, found.culprits, found.candidates) == ("unknown", (), (0,))


def test_who_loses_a_connection_of_its_own_is_suspected() -> None:
    """To its data, its storage, or whoever reads what it prints."""
    for detail in (
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ):
        (found,) = beside_a_host(None, details={0: detail}, rank0=1)
        assert (found.verdict, found.culprits) == ("suspected", (0,))


def test_of_two_that_leave_together_the_one_that_has_not_lost_the_other_is_suspected() -> None:
    (found,) = beside_a_host(None, details={0: RESET, 1: "ValueError: no data"}, rank0=1, rank1=1)
    assert (found.verdict, found.culprits) == ("suspected", (1,))


@pytest.mark.parametrize("details", [{0: RESET, 1: RESET}, {0: RESET}, {}], ids=["both say so", "one does", "none"])
def test_ranks_that_go_with_their_agent_are_suspected_of_what_the_others_fail_for(details: dict[int, str]) -> None:
    """A pod that is evicted: its peers find their connections closed, and nobody tells of the pod's own ranks."""
    first, then = beside_a_host(9.5, details=details, rank0=1, rank1=1)
    assert (first.verdict, first.culprits) in (("unknown", ()), ("suspected", (1,)))
    assert (then.verdict, then.culprits, then.id) == ("suspected", (2, 3), first.id)
    assert words_of(then)[0].startswith("nothing has been heard from other")
    assert any("exit code 1" in words for words in words_of(then))


def test_who_stood_for_a_host_that_was_gone_stands_beside_nobody_else() -> None:
    """The others were seen to stand before the first of them failed, and whom they waited for could not be told."""
    held_up = RootCause(verdict="unknown", cause="H1", candidates=(1, 2, 3))
    first, then = beside_a_host(9.5, details={1: RESET}, held_up=held_up, rank1=1)
    assert (first.verdict, first.cause, first.candidates) == ("unknown", "H1", (1, 2, 3))
    assert (then.verdict, then.cause, then.culprits, then.candidates) == ("suspected", None, (2, 3), ())


@pytest.mark.parametrize(
    ("silent_since_s", "detail"),
    [(9.5, "ValueError: no data"), (-60.0, RESET)],
    ids=["who fails has a reason of its own", "the agent had gone long before"],
)
def test_a_host_that_is_silent_for_another_reason_is_not(silent_since_s: float, detail: str) -> None:
    (found,) = beside_a_host(silent_since_s, details={0: detail}, rank0=1)
    assert found.culprits in ((), (0,))


@pytest.mark.parametrize(
    ("ended_s", "host", "candidates"),
    [(9.9, "other", (2, 3)), (10.1, "other", (2, 3)), (10.5, "other", (0,)), (10.1, "h", (0,)), (9.9, "h", (2, 3))],
    ids=["before", "by a clock that is ahead", "after", "after, by its own launcher", "before, on the same host"],
)
def test_who_was_asked_to_end_before_others_lost_it_is_told_first(
    ended_s: float, host: str, candidates: tuple[int, ...]
) -> None:
    """Two ranks of a node that is taken away end by SIGTERM, and a peer finds its connections closed."""
    watch = ExitWatch("j", 0, HeldUp(None))
    at = sample(10 * SECOND_NS, rank0=1, rank2=-signal.SIGTERM, rank3=-signal.SIGTERM)
    failed = replace(at.processes[0], detail=RESET)
    ended = [replace(p, since_ns=int(ended_s * SECOND_NS)) for p in at.processes[2:]]
    of_hosts = {"h": [failed, at.processes[1]], "other": []}
    of_hosts[host] += ended
    for name, processes in of_hosts.items():
        watch.hear(replace(at, host=name, processes=tuple(processes)), 5)
    (found,) = watch.on_tick(Moment(now_ns=10 * SECOND_NS + SETTLE_NS, step=5))
    assert (found.verdict, found.culprits, found.candidates) == ("unknown", (), candidates)
    told = "rank 2 was ended by SIGTERM, and those who failed had lost their connections to a rank"
    assert (words_of(found)[0] == told) == (candidates == (2, 3))


@pytest.mark.parametrize(("detail", "is_told"), [(RESET, True), ("ValueError: no data", False)])
@pytest.mark.parametrize("are_both", [False, True])
def test_a_host_that_is_interrupted_is_told_where_others_that_were_not_fail_for_it(
    detail: str, is_told: bool, are_both: bool
) -> None:
    """A pod is taken away, and its command says that it was asked to end; a job is cancelled on all hosts at once."""
    watch = ExitWatch("j", 0, HeldUp(None))
    at = sample(10 * SECOND_NS, rank0=1, rank2=-signal.SIGTERM, rank3=1)
    failed = (replace(at.processes[0], detail=detail), at.processes[1])
    caught = replace(at.processes[3], detail="KeyboardInterrupt: ")
    others = tuple(replace(p, since_ns=p.since_ns - SECOND_NS // 10) for p in (at.processes[2], caught))
    ended = replace(at, closed=True, closed_why=JOB_INTERRUPTED)
    watch.hear(replace(ended, host="other", processes=others), 5)
    watch.hear(replace(at, host="h", processes=failed), 5)
    now_ns = 10 * SECOND_NS + SETTLE_NS
    assert watch.on_tick(Moment(now_ns=now_ns, step=5)) == [], "it has not said its last word"
    if are_both:
        watch.hear(replace(ended, host="h", processes=failed, time_ns=now_ns), 5)
    found = watch.on_end(Moment(now_ns=now_ns, step=5))
    assert [(one.verdict, one.candidates) for one in found] == (
        [("unknown", (2, 3))] if is_told and not are_both else []
    )


def fail_one_by_one(
    said: dict[int, tuple[str, int]], runs_on: tuple[int, ...] = (), apart_ns: int = 3 * SECOND_NS // 10
) -> Finding:
    """What is said of ranks that fail one after the other: their last words, and how each has ended; others run on."""
    watch = ExitWatch("j", 0, HeldUp(None))
    at = sample(10 * SECOND_NS, **{f"rank{rank}": status for rank, (_, status) in said.items()})
    processes = tuple(
        replace(p, detail=said[p.rank][0], since_ns=p.since_ns + p.rank * apart_ns) if p.rank in said else p
        for p in at.processes
    )
    others = tuple(ProcessState(rank=rank, pid=100 + rank, state="running", since_ns=0) for rank in runs_on)
    watch.hear(replace(at, processes=(*processes, *others)), 5)
    (finding,) = watch.on_tick(Moment(now_ns=13 * SECOND_NS, step=5))
    return finding


def test_of_ranks_that_fail_with_the_same_error_the_first_is_only_the_first() -> None:
    """The launcher ends the last ones when they have said it."""
    found = fail_one_by_one(
        {rank: (f"ValueError: rank {rank}: loss is nan", 1 if rank < 2 else -signal.SIGTERM) for rank in WORLD}
    )
    assert (found.verdict, found.culprits, found.candidates) == ("unknown", (), WORLD)
    assert words_of(found)[0] == "ranks 0, 1, 2, 3: left with the same error: ValueError: rank 0: loss is nan"


def test_where_all_others_have_lost_them_those_of_one_error_are_suspected_together() -> None:
    memory = "RuntimeError: CUDA out of memory"
    found = fail_one_by_one({1: (memory, 1), 2: (RESET, 1), 3: (RESET, 1)})
    assert (found.verdict, found.culprits) == ("suspected", (1,))
    more = fail_one_by_one({0: (RESET, 1), 1: (memory, 1), 2: (memory, 1), 3: (RESET, 1)}, runs_on=(4,))
    assert (more.verdict, more.culprits) == ("suspected", (1, 2))
    halves = {0: (RESET, 1), 1: (memory, 1), 2: (RESET, 1), 3: (memory, 1)}
    assert fail_one_by_one(halves).candidates == (1, 3), "as many as the others: it may be what all do"


def test_ranks_with_errors_of_their_own_that_differ_are_not_told_to_have_the_same() -> None:
    errors = {0: ("ValueError: a", 1), 1: ("OSError: b", 1), 2: ("ValueError: a", 1)}
    found = fail_one_by_one(errors, runs_on=(3,), apart_ns=0)
    assert found.candidates == (0, 1, 2)
    assert not any("the same error" in words for words in words_of(found))


def test_who_waited_in_a_barrier_for_one_that_has_gone_is_no_suspect() -> None:
    waited = "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors while waiting"
    found = fail_one_by_one({1: (waited, 1), 2: ("OSError: b", 1)}, runs_on=(0, 3))
    assert (found.verdict, found.culprits) == ("suspected", (2,))


def test_who_was_ended_before_it_could_fail_may_have_had_the_same_error() -> None:
    found = fail_one_by_one({0: ("ValueError: a", 1), 1: ("ValueError: a", 1), 2: ("", -signal.SIGTERM)})
    assert (found.verdict, found.candidates) == ("unknown", (0, 1))


def test_the_last_rank_that_is_heard_of_and_killed_is_not_the_one_to_blame() -> None:
    """The launcher ends it when the others are gone."""
    hang = HeldUp(None)
    hang.host_reports.host_of.update({0: "h", 1: "other"})
    hang.host_reports.silent = frozenset({"other"})
    watch = ExitWatch("j", 0, hang)
    at = sample(40 * SECOND_NS, rank0=KILLED)
    watch.hear(replace(at, processes=at.processes[:1]), 5)
    (found,) = watch.on_tick(Moment(now_ns=40 * SECOND_NS + SETTLE_NS, step=5))
    assert (found.verdict, found.culprits) == ("unknown", ())
    assert words_of(found)[0].startswith("the only rank that was still heard of was killed")


class Job:
    """A hang watch over four ranks on one communicator."""

    def __init__(self) -> None:
        self.watch = HangWatch("j", 0, HangSettings(suspect_after_s=30.0))
        self.watch.hear(topology("c", WORLD), None)

    def progress(
        self, second: int, launched_ns: dict[int, int], completed: int = 6, gave_up: tuple[int, ...] = ()
    ) -> None:
        """Ranks wait in call 7 since a time, of some it has failed; the others have completed `completed`."""
        ranks = tuple(
            RankProgress(
                rank=rank,
                last_launched=7 if rank in launched_ns or rank in gave_up else completed,
                last_completed=7 if rank in gave_up else completed,
                open=(OpenCall(seq=7, op="all_reduce", count=8, dtype="float32", launch_ns=launched_ns[rank]),)
                if rank in launched_ns
                else (),
            )
            for rank in WORLD
        )
        self.watch.hear(
            Progress(job="j", attempt=0, time_ns=second * SECOND_NS, host="h", communicator="c", ranks=ranks), 5
        )

    def tick(self, second: int) -> None:
        assert not self.watch.on_tick(Moment(now_ns=second * SECOND_NS, step=5, step_time_s=0.05, n_iterations=10))


@pytest.fixture
def stuck() -> Job:
    """Rank 2 has not come for four seconds: far too short to be called a hang."""
    job = Job()
    job.progress(1, {})
    job.tick(1)
    for second in (2, 3, 4, 5):
        job.progress(second, {0: SECOND_NS, 1: SECOND_NS, 3: SECOND_NS})
        job.tick(second)
    return job


def test_who_held_the_job_up_is_known_before_it_is_a_hang(stuck: Job) -> None:
    found = stuck.watch.standstill()
    assert found is not None
    assert (found.cause, found.culprits) == ("H1", (2,))


def test_what_is_known_of_a_standstill_outlasts_the_ranks_that_leave(stuck: Job) -> None:
    """Their calls are given up with them: what is left then would accuse whoever leaves last."""
    stuck.watch.hear(sample(5 * SECOND_NS, rank0=1), 5)
    for second in (6, 7):
        stuck.progress(second, {1: SECOND_NS})
        stuck.tick(second)
    found = stuck.watch.standstill()
    assert found is not None
    assert found.culprits == (2,)


def test_whose_call_has_timed_out_and_who_leaves_for_it_is_not_the_one_who_held_the_job_up(stuck: Job) -> None:
    """Between the two it is in no call and its peers still wait: it looks as if it had not entered."""
    for second in (6, 7, 8):
        stuck.progress(second, {1: SECOND_NS, 3: SECOND_NS}, gave_up=(0,))
        stuck.tick(second)
    stuck.watch.hear(sample(8 * SECOND_NS, rank0=1), 5)
    found = stuck.watch.standstill()
    assert found is not None
    assert found.culprits == (2,)


@pytest.mark.parametrize("gave_up", [(), (0,), (0, 3)])
def test_of_a_hang_in_which_calls_time_out_before_it_is_said_those_who_gave_up_are_not_suspected(
    stuck: Job, gave_up: tuple[int, ...]
) -> None:
    """gloo's timeout may be as long as a hang has to be: who gave its call up looks as if it had not entered."""
    waiting = {rank: SECOND_NS for rank in (0, 1, 3) if rank not in gave_up}
    said: list[Any] = []
    for second in range(6, 60):
        stuck.progress(second, waiting, gave_up=gave_up)
        moment = Moment(now_ns=second * SECOND_NS, step=5, step_time_s=0.05, n_iterations=10)
        said += stuck.watch.on_tick(moment)
    assert said
    assert {(one.verdict, one.cause, one.culprits, one.victims) for one in said} == {
        ("suspected", "H1", (2,), tuple(waiting))
    }


def test_a_standstill_is_over_when_its_ranks_go_on(stuck: Job) -> None:
    stuck.progress(6, {}, completed=7)
    assert stuck.watch.standstill() is None


def test_ranks_that_give_up_their_calls_all_at_once_are_heard_to_leave_a_moment_later(stuck: Job) -> None:
    """How far they are and that they have left are told in one breath, and time may be looked at in between."""
    stuck.progress(6, {}, gave_up=(0, 1, 3))
    stuck.tick(6)
    stuck.watch.hear(sample(6 * SECOND_NS, rank0=1, rank1=1, rank3=1), 5)
    found = stuck.watch.standstill()
    assert found is not None
    assert found.culprits == (2,)


def test_whose_calls_have_all_ended_and_who_stays_has_gone_on(stuck: Job) -> None:
    stuck.progress(6, {}, completed=7)
    for second in (6, 7, 8):
        stuck.tick(second)
    stuck.watch.hear(sample(8 * SECOND_NS, rank0=1, rank1=1, rank3=1), 5)
    assert stuck.watch.standstill() is None


def fails_in_a_barrier(words: str, status: int = 1) -> Finding:
    """Rank 0 fails with these words, and two more with it."""
    watch = ExitWatch("j", 0, HeldUp(None))
    said = sample(10 * SECOND_NS, rank0=status, rank2=1, rank3=status)
    watch.hear(replace(said, processes=(replace(said.processes[0], detail=words), *said.processes[1:])), 5)
    (finding,) = watch.on_tick(Moment(now_ns=10 * SECOND_NS + SETTLE_NS, step=5))
    return finding


def test_who_did_not_come_to_a_monitored_barrier_is_named_by_the_error_of_who_collects_them() -> None:
    found = fails_in_a_barrier("RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 8000 ms")
    assert (found.verdict, found.cause, found.culprits) == ("suspected", "H1", (1,))
    assert words_of(found)[0] == "rank 1: did not come to torch's monitored_barrier, by its error"
    ended = fails_in_a_barrier(
        "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 8000 ms", -signal.SIGTERM
    )
    assert ended.culprits == (1,)  # though rank 2 is the only one that left by itself
    several = fails_in_a_barrier("RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 8000 ms")
    assert several.culprits == (1, 3)


@pytest.mark.parametrize(
    ("n_parameters", "culprits"),
    [((4, 4, 6, 4), (2,)), ((4, 4, 6, 6), ()), ((4, 4, 4, 4), ())],
    ids=["one", "half of them", "nobody"],
)
def test_who_wraps_another_model_than_most_is_named_by_what_all_fail_with(
    n_parameters: tuple[int, ...], culprits: tuple[int, ...]
) -> None:
    watch = ExitWatch("j", 0, HeldUp(None))
    said = sample(10 * SECOND_NS, rank0=1, rank1=1, rank2=1, rank3=1)
    words = "RuntimeError: DDP expects same model across all ranks, but Rank {} has {} params, whil"
    processes = tuple(replace(p, detail=words.format(p.rank, n_parameters[p.rank])) for p in said.processes)
    watch.hear(replace(said, processes=processes), None)
    (found,) = watch.on_tick(Moment(now_ns=10 * SECOND_NS + SETTLE_NS, step=None))
    assert (found.verdict, found.culprits) == ("culprit" if culprits else "unknown", culprits)
    if culprits:
        assert words_of(found)[0] == "rank 2: not the 4 parameters of most others, by the errors of all"


@pytest.mark.parametrize(
    "words",
    [
        "RuntimeError: Rank 2 successfully reached monitoredBarrier, but received errors while waiting",
        "RuntimeError: [Rank 0]: Ranks 1, 17 failed to pass monitoredBarrier in 8000 ms",
        "ValueError: loss is nan",
    ],
)
def test_an_error_that_names_nobody_of_the_job_accuses_nobody(words: str) -> None:
    assert not fails_in_a_barrier(words).culprits


@pytest.mark.parametrize(("why", "is_told"), [(JOB_INTERRUPTED, False), (JOB_ENDED, True)])
def test_ranks_that_leave_with_an_error_because_somebody_asked_for_the_end_are_no_exit(why: str, is_told: bool) -> None:
    """Python's workers catch Ctrl-C and leave with exit code 1, each at its own moment."""
    watch = ExitWatch("j", 0, HangWatch("j", 0, HangSettings()))
    watch.hear(sample(10 * SECOND_NS, rank1=1), 5)
    last = replace(sample(11 * SECOND_NS, rank0=1, rank1=1, rank2=1, rank3=1), closed=True, closed_why=why)
    watch.hear(last, 5)
    assert bool(watch.on_end(Moment(now_ns=11 * SECOND_NS, step=5))) is is_told


def after_leaving(who: tuple[int, ...], detail: str = "", **left: int) -> list[Any]:
    """What is said of ranks that end, of which some had destroyed their process group by themselves."""
    watch = ExitWatch("j", 0, HangWatch("j", 0, HangSettings()))
    at = sample(10 * SECOND_NS, **left)
    processes = tuple(
        replace(p, has_left=p.rank in who, detail=detail if p.state == "exited" else "") for p in at.processes
    )
    watch.hear(replace(at, processes=processes), 5)
    return watch.on_tick(Moment(now_ns=10 * SECOND_NS + SETTLE_NS, step=5))


@pytest.mark.parametrize("status", [1, 3, -signal.SIGKILL])
def test_who_ends_when_all_ranks_have_left_their_process_group_has_left_no_job(status: int) -> None:
    """Ray ends its workers so when they have trained; and a script may end with any number."""
    assert after_leaving(WORLD, rank1=status, rank2=status) == []
    assert after_leaving((1, 2, 3), rank0=0, rank1=status) == []
    assert after_leaving((1, 2), rank1=status, rank2=status), "others still train"


def test_an_error_or_a_crash_is_told_also_when_all_had_left() -> None:
    """`finally: destroy_process_group()` is what a rank that fails does, too."""
    assert after_leaving(WORLD, detail="ValueError: no data", rank1=1)
    assert after_leaving(WORLD, rank1=-signal.SIGSEGV)


def progress(launched: dict[int, int], **changes: Any) -> Progress:
    """How many calls each rank has launched."""
    ranks = tuple(RankProgress(rank=rank, last_launched=n, last_completed=n - 1) for rank, n in launched.items())
    said = Progress(job="j", attempt=0, time_ns=9 * SECOND_NS, host="h", communicator="world", ranks=ranks)
    return replace(said, **changes)


def of_those_who_leave(launched: dict[int, int], *samples: HostSample, **changes: Any) -> Finding:
    """What is said when the first rank that fails has failed, in the last of these samples."""
    hang = HangWatch("j", 0, HangSettings())
    hang.hear(topology(members=WORLD, host_ranks=WORLD, world_size=4), None)
    hang.hear(progress(launched, **changes), 5)
    watch = ExitWatch("j", 0, hang)
    for one in samples:
        watch.hear(one, 5)
    (finding,) = watch.on_tick(Moment(now_ns=samples[-1].time_ns + SETTLE_NS, step=5))
    return finding


def left_at(**seconds: tuple[int, int]) -> HostSample:
    """All ranks; `rank2=(8, 1)` left at second 8 with exit code 1."""
    said = sample(10 * SECOND_NS, **{name: code for name, (_, code) in seconds.items()})
    processes = [
        replace(one, since_ns=seconds[f"rank{one.rank}"][0] * SECOND_NS) if one.state == "exited" else one
        for one in said.processes
    ]
    return replace(said, processes=tuple(processes))


def test_who_leaves_in_good_order_while_the_others_still_call_is_why_they_fail() -> None:
    finding = of_those_who_leave({0: 7, 1: 8, 2: 8, 3: 8}, left_at(rank0=(8, 0), rank1=(10, 1), rank3=(10, 1)))
    assert (finding.verdict, finding.cause, finding.culprits, finding.candidates) == ("culprit", "H2", (0,), ())
    assert finding.onset is not None
    assert finding.onset.time_ns == 8 * SECOND_NS
    assert list(words_of(finding)) == [
        "rank 0 (pid 100) was the first to leave: it left with exit code 0",
        "rank 0 has launched fewer calls than the other members of its communicators",
        "rank 1 (pid 101) left with exit code 1, 2.00 s later",
        "rank 3 (pid 103) left with exit code 1, 2.00 s later",
    ]


def test_who_had_calls_to_make_that_others_have_made_was_not_done_when_it_left_its_group() -> None:
    """`finally: destroy_process_group()`, under a launcher that keeps the error to itself (`mp.spawn`)."""
    left = sample(10 * SECOND_NS, rank0=1, rank1=1, rank2=1, rank3=1)
    left = replace(left, processes=tuple(replace(process, has_left=True) for process in left.processes))
    assert of_those_who_leave({0: 8, 1: 7, 2: 8, 3: 8}, left).kind == "exit"


def test_who_is_done_as_all_are_has_nothing_to_do_with_who_fails_at_its_end() -> None:
    finding = of_those_who_leave(dict.fromkeys(WORLD, 8), left_at(rank0=(8, 0), rank1=(10, 1)))
    assert (finding.verdict, finding.culprits) == ("suspected", (1,))


def test_who_goes_on_when_most_are_done_is_suspected_and_they_are_not() -> None:
    done = {f"rank{rank}": (8, 0) for rank in range(3)}
    finding = of_those_who_leave({0: 7, 1: 7, 2: 7, 3: 8}, left_at(**done, rank3=(10, 1)))
    assert (finding.verdict, finding.culprits) == ("suspected", (3,))


def test_where_calls_were_lost_nobody_has_launched_fewer() -> None:
    leaving = left_at(rank0=(8, 0), rank1=(10, 1))
    finding = of_those_who_leave({0: 7, 1: 8, 2: 8, 3: 8}, leaving, dropped_total=3)
    assert (finding.verdict, finding.culprits) == ("suspected", (1,))


@pytest.mark.parametrize(
    ("detail", "suspected"), [("RuntimeError: Connection closed by peer [127.0.0.1]:2", 0), ("ValueError: no data", 1)]
)
def test_who_leaves_a_pipeline_early_is_suspected_where_the_others_have_lost_a_peer(
    detail: str, suspected: int
) -> None:
    """Their receive may have been posted for nothing: where they fail for another reason it is no reason to ask."""
    waiting = RankProgress(
        rank=1, last_launched=8, pairs=(PairProgress(peer=0, direction="recv", last_launched=5, last_completed=4),)
    )
    done = RankProgress(
        rank=0, last_launched=8, pairs=(PairProgress(peer=1, direction="send", last_launched=4, last_completed=4),)
    )
    others = tuple(RankProgress(rank=rank, last_launched=8) for rank in (2, 3))
    leaving = left_at(rank0=(8, 0), rank1=(10, 1))
    leaving = replace(leaving, processes=tuple(replace(p, detail=detail * (p.rank == 1)) for p in leaving.processes))
    finding = of_those_who_leave({}, leaving, ranks=(done, waiting, *others))
    assert (finding.verdict, finding.culprits) == ("suspected", (suspected,))
