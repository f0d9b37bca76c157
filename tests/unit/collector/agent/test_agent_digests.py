"""Iterations instead of calls: what an agent tells of a large job, and that it tells each of them once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.agent.flush_times import FlushTimes
from collector.calls.digests import FIRST_STEP, MAX_WAITING, DigestState, IterationDigests, Mark
from collector.calls.rings import CALL, Records
from pacehound.model import codec
from pacehound.model.calls import DTYPE_CODE, CallBatch
from pacehound.model.digests import is_kept, is_of_digests
from pacehound.model.events import HostSample, Progress
from pacehound.model.flushes import Flush
from pacehound.settings import StreamSettings
from tests.fakes.agent_run import MS, UNIX_NS, AgentRun
from tests.fakes.ring_file import RingFile

FROM = "agent.digests_from_ranks=2"
STEP_MS = 100
FLOAT32 = DTYPE_CODE["float32"]


def digests(run: AgentRun) -> list[tuple[int, int, int, int, int]]:
    """(rank, step, bytes, start and end in ms) of each, by step and rank."""
    rows = [
        row for batch in run.receiver.of(CallBatch) if is_of_digests(batch.source) for row in batch.rows.to_pylist()
    ]
    return sorted(
        (
            (row["rank"], row["seq"], row["count"], *((row[name] - UNIX_NS) // MS for name in ("start_ns", "end_ns")))
            for row in rows
        ),
        key=lambda one: (one[1], one[0]),
    )


def told_calls(run: AgentRun) -> list[tuple[int, int]]:
    return calls_of(batch for batch in judged(run) if not is_of_digests(batch.source))


def kept_calls(run: AgentRun) -> list[tuple[int, int]]:
    return calls_of(batch for batch in run.receiver.of(CallBatch) if is_kept(batch.source))


def judged(run: AgentRun) -> list[CallBatch]:
    return [batch for batch in run.receiver.of(CallBatch) if not is_kept(batch.source)]


def calls_of(batches: Iterable[CallBatch]) -> list[tuple[int, int]]:
    return sorted((row["rank"], row["seq"]) for batch in batches for row in batch.rows.to_pylist())


def iteration(ring: RingFile, step: int) -> None:
    """Two calls of 10 and 20 ms with a pause between them, and the optimizer step."""
    begin_ms = 1_000 + STEP_MS * step
    ring.done(2 * step, (begin_ms + 20) * MS, (begin_ms + 30) * MS)
    ring.done(2 * step + 1, (begin_ms + 60) * MS, (begin_ms + 80) * MS)
    ring.marker(step, (begin_ms + 90) * MS)


@pytest.fixture
def run(tmp_path: Path) -> AgentRun:
    return AgentRun(tmp_path, FROM)


def test_calls_are_told_first_and_iterations_from_then_on(run: AgentRun) -> None:
    rings = [run.joined(rank) for rank in (0, 1)]
    for step in range(6):
        for ring in rings:
            iteration(ring, step)
    run.flush()
    assert told_calls(run) == [(rank, seq) for rank in (0, 1) for seq in range(2 * FIRST_STEP + 2)]
    # Each of 256 float32, twice; 30 ms in all, which end with the last call.
    ends_ms = {step: 1_000 + STEP_MS * step + 80 for step in range(6)}
    assert digests(run) == [
        (rank, step, 2_048, ends_ms[step] - 30, ends_ms[step]) for step in (3, 4, 5) for rank in (0, 1)
    ]


@pytest.mark.parametrize("settings", [("agent.digests_from_ranks=3",), (FROM, "agent.messages=apart"), ()])
def test_small_jobs_and_workers_of_before_are_told_of_calls(tmp_path: Path, settings: tuple[str, ...]) -> None:
    run = AgentRun(tmp_path, *settings)
    ring = run.joined(0)
    for step in range(6):
        iteration(ring, step)
    run.flush()
    assert (len(told_calls(run)), digests(run)) == (12, [])


def test_an_iteration_is_over_when_its_last_collective_is(run: AgentRun) -> None:
    ring = run.joined(0)
    for step in range(3):
        iteration(ring, step)
    ring.done(6, 1_320 * MS, 1_330 * MS)
    ring.launch(7, 1_380 * MS)
    ring.marker(3, 1_390 * MS)
    run.flush()
    assert digests(run) == []
    ring.complete(7, 1_400 * MS)
    ring.done(8, 1_420 * MS, 1_430 * MS)
    ring.marker(4, 1_490 * MS)
    run.flush()
    assert digests(run) == [(0, 3, 2_048, 1_370, 1_400), (0, 4, 1_024, 1_420, 1_430)]


def test_a_receive_counts_where_it_ends_and_only_from_where_its_iteration_begins(run: AgentRun) -> None:
    ring = run.joined(0)
    for step in range(3):
        iteration(ring, step)
    receive = {"op": 11, "direction": 2, "peer": 1}
    ring.launch(0, 1_285 * MS, **receive)  # posted before the third step is marked, at 1,290
    ring.complete(0, 1_340 * MS, **receive)
    ring.marker(3, 1_390 * MS)
    run.flush()
    assert digests(run) == [(0, 3, 1_024, 1_290, 1_340)]


def test_what_is_left_is_told_when_the_job_ends(run: AgentRun) -> None:
    ring = run.joined(0)
    for step in range(4):
        iteration(ring, step)
    ring.done(8, 1_420 * MS, 1_430 * MS)
    run.flush()
    assert [step for _, step, *_ in digests(run)] == [3]
    run.end()
    run.deliver()
    assert [step for _, step, *_ in digests(run)] == [3, 4]
    assert len(told_calls(run)) == 6


@pytest.mark.parametrize("kills", [range(1, 40, 3), range(2, 40, 5)])
def test_an_agent_that_is_killed_tells_each_iteration_once(tmp_path: Path, kills: range) -> None:
    told = []
    for folder, killed in (("undisturbed", range(0)), ("killed", kills)):
        run = AgentRun(tmp_path / folder, FROM)
        rings = [run.joined(rank) for rank in (0, 1)]
        for step in range(12):
            for ring in rings:
                iteration(ring, step)
            for part in range(3):
                run.step(400)
                if 3 * step + part in killed:
                    run.kill()
        run.flush()
        run.end()
        run.deliver()
        told.append((digests(run), told_calls(run)))
    assert told[0] == told[1]
    assert len(told[0][0]) == 2 * (12 - FIRST_STEP - 1)


BEHIND = [(rank, seq) for rank in (0, 1) for seq in range(2 * FIRST_STEP + 2, 16)]
"""The calls of eight iterations that digests stand for."""


def eight_iterations(run: AgentRun) -> list[RingFile]:
    rings = [run.joined(rank) for rank in (0, 1)]
    for step in range(8):
        for ring in rings:
            iteration(ring, step)
    run.flush()
    return rings


def test_calls_behind_digests_stay_until_they_are_asked_for_and_digests_go_on(run: AgentRun) -> None:
    eight_iterations(run)
    assert kept_calls(run) == []
    before = (digests(run), told_calls(run))
    run.agent.assembler.ask_for_kept(run.now_ns + 60_000 * MS, run.now_ns)
    run.flush()
    run.flush()
    assert kept_calls(run) == BEHIND
    assert (digests(run), told_calls(run)) == before
    assert {batch.source for batch in run.receiver.of(CallBatch)} == {"c10d", "c10d digests", "c10d kept"}


def test_iterations_are_told_as_soon_as_they_are_over_and_little_is_said_in_between(run: AgentRun) -> None:
    rings = eight_iterations(run)
    n_said = len(run.receiver.of(Progress))
    for _ in range(100):  # five seconds in which no iteration ends
        run.step()
    assert len(run.receiver.of(Progress)) - n_said == 2
    now_ms = run.now_ns // MS
    for ring in rings:
        ring.done(16, (now_ms - 200) * MS, (now_ms - 100) * MS)
        ring.marker(8, now_ms * MS)
    for _ in range(20):
        run.step()
        if digests(run)[-1][1] == 8:
            break
    assert [step for _, step, *_ in digests(run)][-2:] == [8, 8]
    assert run.now_ns // MS - now_ms <= 1_000 + 150
    assert run.receiver.of(Progress)[-1].time_ns - UNIX_NS >= now_ms * MS, "its promise covers what has ended"


def said_of_the_time(run: AgentRun) -> tuple[int, int]:
    """How many promises and how many heartbeats there were."""
    flushes = [event for message in run.receiver.messages for event in codec.decode(message)]
    said = [one.heartbeat for one in flushes if isinstance(one, Flush) and one.heartbeat is not None]
    beats = [beat for beat in said if beat.communicators]  # others speak of processes, beside promises
    assert all(len(beat.communicators) == 1 for beat in beats)
    times_ns = [beat.time_ns for beat in beats]
    assert times_ns == sorted(times_ns)
    return len(run.receiver.of(Progress)), len(beats)


def test_while_iterations_end_as_usual_nothing_but_the_time_is_said_of_ranks(run: AgentRun) -> None:
    rings = [run.joined(rank) for rank in (0, 1)]

    def ten_seconds(step: int) -> tuple[int, int]:
        before = said_of_the_time(run)
        for _ in range(200):
            run.step()
        now_ms = run.now_ns // MS
        for ring in rings:
            ring.done(step, (now_ms - 200) * MS, (now_ms - 100) * MS)
            ring.marker(step, now_ms * MS)
        after = said_of_the_time(run)
        return after[0] - before[0], after[1] - before[1]

    said = [ten_seconds(step) for step in range(9)]
    assert said[-1] == (0, 2)  # with the iteration before, and once more in the five seconds behind it
    assert said[0][1] == said[1][1] == 0, "nobody knows yet what is usual"
    n_promises, n_beats = said_of_the_time(run)
    for _ in range(600):  # half a minute in which none ends
        run.step()
    after = said_of_the_time(run)
    assert after[1] - n_beats <= 3, "from 15 s on it is said how far each rank is"
    assert after[0] - n_promises >= 6
    assert ten_seconds(9)[0] >= 4, "it is over, and that is not told yet"
    assert ten_seconds(10) == (1, 2), "that it goes on is told once"
    assert ten_seconds(11) == (0, 2)
    run.joined(2)  # so is what happens
    before = said_of_the_time(run)
    run.step(2_500)
    assert said_of_the_time(run) == (before[0] + 1, before[1])
    run.step(2_500)
    run.proc.remove(100)
    before = said_of_the_time(run)
    run.step(250)
    assert said_of_the_time(run)[1] == before[1]


def slowly(run: AgentRun, rings: Sequence[RingFile], steps: Iterable[int]) -> None:
    """Iterations of ten seconds."""
    for step in steps:
        for _ in range(200):
            run.step()
        for ring in rings:
            ring.done(step, run.now_ns - 200 * MS, run.now_ns - 100 * MS)
            ring.marker(step, run.now_ns)


def test_a_restart_that_has_joined_nothing_yet_is_said_beside_iterations_of_the_attempt_before(run: AgentRun) -> None:
    """No promise speaks for its processes: they are said in full, each time."""
    rings = [run.joined(rank) for rank in (0, 1)]
    slowly(run, rings, range(10))
    run.ring(5, attempt=1)
    n_beats = said_of_the_time(run)[1]
    slowly(run, rings, range(10, 12))
    said = [sample for sample in run.receiver.of(HostSample) if sample.attempt == 1]
    assert len(said) >= 3
    assert {sample.quiet_ns for sample in said} == {0}
    assert said_of_the_time(run)[1] > n_beats


def test_an_iteration_is_told_with_its_marks_and_the_time_in_one(run: AgentRun) -> None:
    slowly(run, [run.joined(rank) for rank in (0, 1)], range(10))
    flushes = [event for message in run.receiver.messages for event in codec.decode(message)]
    last = [one for one in flushes if isinstance(one, Flush) and one.parts][-1]
    assert last.columns["seq"].tolist() == [8, 8]
    assert [mark.steps for mark in last.markers] == [(8, 8)]
    assert last.heartbeat is not None
    assert last.heartbeat.time_ns >= last.markers[0].time_ns


def test_what_is_dropped_leaves_no_heartbeat_behind_it(tmp_path: Path) -> None:
    """The next one would promise that all has been sent; a kill does not bring it back."""
    run = AgentRun(tmp_path, FROM)
    rings = [run.joined(rank) for rank in (0, 1)]
    slowly(run, rings, range(10))
    run.receiver.is_away = True
    slowly(run, rings, range(10, 14))
    waiting = [event for message in run.outbox.take(1 << 30)[1] for event in codec.decode(message)]
    run.outbox.release()
    assert sum(1 for one in waiting if isinstance(one, Flush) and one.parts and one.heartbeat) >= 3
    run.outbox.make_room(run.outbox.max_bytes - run.outbox.held_bytes + 1)  # heartbeats that later ones supersede
    dropped = run.outbox.make_room(run.outbox.max_bytes - run.outbox.held_bytes + 1)
    assert {lost.calls for lost in dropped.values()} == {2}
    run.outbox.save([], run.outbox.state or b"", 0)
    run.kill()
    left = [event for message in run.outbox.take(1 << 30)[1] for event in codec.decode(message)]
    flushes = [one for one in left if isinstance(one, Flush)]
    told = [one.columns["seq"].tolist() for one in flushes if one.parts]
    assert told == [[10, 10], [11, 11], [12, 12]]
    assert all(one.heartbeat is None for one in flushes)
    assert any(one.markers for one in flushes)


def test_what_had_to_make_room_is_said_in_full_again(tmp_path: Path) -> None:
    run = AgentRun(tmp_path, FROM, "agent.max_backlog_bytes=75000")
    rings = [run.joined(rank) for rank in (0, 1)]
    slowly(run, rings, range(8))
    run.receiver.is_away = True
    slowly(run, rings, range(8, 24))
    assert run.outbox.counts.gone > 0
    run.receiver.is_away = False
    before = said_of_the_time(run)[0]
    for _ in range(3):
        run.step(3_000)
    assert said_of_the_time(run)[0] > before


def test_a_job_that_begins_anew_is_told_as_soon_as_an_iteration_is_over() -> None:
    times = FlushTimes(StreamSettings(), guard_ns=100 * MS, unix_ns=0)
    for n_over in (1, 2, 3):
        times.note_iterations(n_over, 10_000 * n_over * MS)
        times.flushed((10_000 * n_over + 1_100) * MS, 1.0)
    assert times.is_usual(32_000 * MS)
    times.note_iterations(0, 60_000 * MS)
    assert not times.is_usual(60_000 * MS)
    times.flushed(60_000 * MS, 1.0)
    times.note_iterations(1, 61_000 * MS)
    assert [times.is_due(now_ms * MS, tells_iterations=True) for now_ms in (61_500, 62_100)] == [False, True]


def test_a_large_job_says_each_four_seconds_how_far_ranks_are_while_its_first_iterations_are_told_call_by_call(
    tmp_path: Path,
) -> None:
    """Each promise says that it holds until the next one, so that nobody takes the host for a silent one."""
    run = AgentRun(tmp_path, FROM)
    for rank in (0, 1):
        run.joined(rank)
    run.step(3_000)
    before = len(run.receiver.of(Progress))
    for _ in range(40):
        run.step(500)
    assert len(run.receiver.of(Progress)) == before + 5
    told = [event for message in run.receiver.messages for event in codec.decode(message)]
    promises = [event for event in told if isinstance(event, Flush) and event.promises][-5:]
    assert [one.heartbeat.quiet_ns for one in promises if one.heartbeat is not None] == [1_500 * MS] * 5


def test_of_one_job_in_so_many_they_are_told_unasked_and_what_is_judged_is_the_same(tmp_path: Path) -> None:
    told = []
    for one_in in (0, 1):
        run = AgentRun(tmp_path / str(one_in), FROM, f"agent.calls_of_one_job_in={one_in}")
        eight_iterations(run)
        told.append([(batch.source, batch.ordinal, str(batch.rows.to_pylist())) for batch in judged(run)])
        assert kept_calls(run) == (BEHIND if one_in else [])
    assert told[0] == told[1]


def test_a_receiver_that_is_away_costs_calls_behind_digests_and_no_others(tmp_path: Path) -> None:
    run = AgentRun(tmp_path, FROM, "agent.calls_of_one_job_in=1", "agent.max_backlog_bytes=145000")
    run.receiver.is_away = True
    rings = [run.joined(rank) for rank in (0, 1)]
    for step in range(40):
        for ring in rings:
            iteration(ring, step)
        run.step(1_100)
    run.end()
    run.deliver()
    assert len(digests(run)) == 2 * (40 - FIRST_STEP - 1)
    assert 0 < len(kept_calls(run)) < 2 * 2 * (40 - FIRST_STEP - 1)
    assert run.outbox.counts.dropped_calls == 0
    assert all(batch.dropped == 0 for batch in run.receiver.of(CallBatch))


ATTEMPTS = np.zeros(3, np.int64)


def calls(spans: Sequence[tuple[int, int, int]]) -> Records:
    """Of rank 0: communicator, start and end of each."""
    rows = np.zeros(len(spans), CALL)
    rows["seq"] = range(len(spans))
    rows["count"], rows["dtype"] = 1, FLOAT32
    for name, place in (("launch_ns", 1), ("start_ns", 1), ("end_ns", 2)):
        rows[name] = [span[place] for span in spans]
    return rows


def test_more_calls_than_an_agent_keeps_are_told_as_they_are() -> None:
    kept = IterationDigests(DigestState())
    rows = calls([(0, 10 + n, 11 + n) for n in range(MAX_WAITING + 1)])
    told = kept.take(rows, np.zeros(len(rows), np.int64), ATTEMPTS, [Mark(0, 0, FIRST_STEP, 5)], {})
    assert (len(told.calls), len(told.digests)) == (MAX_WAITING + 1, 0)
    assert kept.state().rows == b""


SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(11, 5_000), st.integers(1, 900)), min_size=1, max_size=30)


@given(SPANS)
def test_digests_of_an_iteration_do_not_overlap_and_cover_what_its_calls_did(drawn: list[tuple[int, int, int]]) -> None:
    spans = [(communicator, start, start + took) for communicator, start, took in drawn]
    numbers = np.array([communicator for communicator, _, _ in spans], np.int64)
    marks = [Mark(0, 0, FIRST_STEP, 10), Mark(0, 0, FIRST_STEP + 1, 6_000)]
    told = IterationDigests(DigestState()).take(calls(spans), numbers, ATTEMPTS, marks, {})
    assert len(told.calls) == 0
    assert sorted(told.of_digests.tolist()) == sorted({communicator for communicator, _, _ in spans})
    assert set(told.digests["seq"].tolist()) == {FIRST_STEP + 1}
    covered = len({moment for _, start, end in spans for moment in range(start, end)})
    digests = sorted(
        zip(told.digests["start_ns"].tolist(), told.digests["end_ns"].tolist(), told.of_digests.tolist(), strict=True)
    )
    assert all(before[1] <= after[0] for before, after in pairwise(digests))
    assert covered - len(digests) <= sum(end - start for start, end, _ in digests) <= covered + len(digests)
    for start, end, communicator in digests:
        mine = [span for span in spans if span[0] == communicator]
        assert start < end <= max(end for _, _, end in mine)
        assert end - start <= max(sum(end - start for _, start, end in mine), 1)
    assert told.digests["count"].sum() == 4 * len(spans)
