"""A shard joins the digests of all its communicators in one table, and concludes what each of them would alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

import pytest

from bench.rig.digesting_agents import DigestingAgents
from bench.rig.flushes import together
from pacehound.model import codec
from pacehound.model.events import HostVitals, IterationSample, Tick, Watermark
from pacehound.model.flushes import Flush
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from pacehound.model.routing import HOST_STREAM, Event
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import SlowCompute
from simulator.job import JobSpec, simulate
from streams.rounds.hearing import conclude_flush
from streams.rounds.merge import CLOSED_NS
from streams.rounds.shard import Shard
from streams.rounds.stage_one import StageOne
from streams.snapshots.schema import state_codec

SETTINGS = Settings()
LONG = {"forward_s": 1.5, "optimizer_s": 0.6}
"""Iterations of more than five seconds."""


@cache
def said(*, is_long: bool) -> tuple[Flush, ...]:
    """What four hosts say in digests and heartbeats, with pairs between them; as it comes out of its bytes."""
    spec = JobSpec(
        layout=Layout(tp=2, dp=2, pp=2),
        ranks_per_host=2,
        iterations=14 if is_long else 60,
        faults=(SlowCompute(ranks=(3,), factor=1.3, from_step=8),),
        jitter=0.03,
        **(LONG if is_long else {}),
    )
    events = list(simulate(spec).events())
    at_once = together(DigestingAgents(events).send(events), digests_from_ranks=1)
    flushes = tuple(read for one in at_once if isinstance(one, Flush) for read in codec.decode(codec.encode(one)))
    return tuple(flush for flush in flushes if isinstance(flush, Flush))


Line = tuple[str, tuple[int, ...], int, bytes]


def lines_of(results: Iterable[object]) -> list[Line]:
    """Each round of digests: whose it is, its step, and its times."""
    rounds = [one for one in results if isinstance(one, Rounds) and one.is_digest]
    rounds += [pair for one in results if isinstance(one, PairRounds) for pair in one.by_pair()]
    return sorted(
        (block.communicator, block.ranks, seq, block.arrival_ns[at].tobytes() + block.end_ns[at].tobytes())
        for block in rounds
        for at, seq in enumerate(block.seq.tolist())
    )


def seen_by(host: str, time_ns: int) -> Flush:
    """What its hardware is like, said by itself."""
    vitals = HostVitals(job="simulated", attempt=0, time_ns=time_ns, host=host, oom_kills=1)
    return Flush(job="simulated", attempt=0, host=host, shard=0, vitals=(vitals,))


def test_what_hardware_is_like_waits_for_a_job_whose_time_goes_on_and_is_told_once() -> None:
    told = [*said(is_long=False)]
    middle = len(told) // 2
    word = seen_by(told[middle].host, told[middle].time_ns)
    told.insert(middle, word)
    shard = Shard(SETTINGS)
    results = [shard.on_event(flush) for flush in told]
    where = [number for number, some in enumerate(results) for one in some if isinstance(one, HostVitals)]
    assert len(where) == 1
    assert where[0] > middle
    heard = results[where[0]]
    assert any(isinstance(one, Watermark) for one in heard), "with what it could be used for"
    kinds = [type(one) for one in heard if isinstance(one, (HostVitals, Watermark))]
    assert kinds[0] is HostVitals, "promises of this host speak behind it"
    assert shard.is_closed
    assert [type(one) for one in shard.on_event(word)] == [HostVitals], "it waits for nobody"


def of_each_alone(flushes: Sequence[Flush]) -> list[object]:
    """What communicators conclude that have their own table each."""
    stages: dict[str, StageOne] = {}

    def stage_of(communicator: str) -> StageOne:
        return stages.setdefault(communicator, StageOne(SETTINGS))

    return [one for flush in flushes for one in conclude_flush(flush, stage_of)]


def in_short(result: object) -> tuple[str, int, str]:
    """What it is, of when and of what stream."""
    return type(result).__name__, getattr(result, "time_ns", 0), getattr(result, "stream", "")


def ended(results: Iterable[object]) -> set[str]:
    return {
        one.stream
        for one in results
        if isinstance(one, Watermark) and one.time_ns == CLOSED_NS and not one.stream.startswith(HOST_STREAM)
    }


@pytest.mark.parametrize("is_long", [False, True])
def test_a_shard_concludes_what_its_communicators_do_alone(is_long: bool) -> None:
    flushes, shard = said(is_long=is_long), Shard(SETTINGS)
    results: list[object] = [one for flush in flushes for one in shard.on_event(flush)]
    alone = of_each_alone(flushes)
    assert lines_of(results) == lines_of(alone) != []
    samples = [one for one in results if isinstance(one, IterationSample)]
    assert samples == [one for one in alone if isinstance(one, IterationSample)]
    assert ended(results) == ended(alone)
    assert shard.is_closed
    assert [one for flush in flushes for one in shard.on_event(flush)] == [], "what is sent twice changes nothing"


@pytest.mark.parametrize("is_long", [False, True])
def test_a_shard_of_digests_goes_on_from_its_snapshot(is_long: bool) -> None:
    draw, states = random.Random(7), state_codec(SETTINGS)
    whole, again = Shard(SETTINGS), Shard(SETTINGS)
    wanted: list[Event] = []
    found: list[Event] = []
    for flush in said(is_long=is_long):
        told, told_again = whole.on_event(flush), again.on_event(flush)
        # In whatever order, but behind the same word: what it says is numbered.
        assert Counter(map(in_short, told_again)) == Counter(map(in_short, told))
        wanted += told  # type: ignore[arg-type]
        found += told_again  # type: ignore[arg-type]
        if draw.random() < 0.2:
            read = states.decode(states.encode(again))
            assert isinstance(read, Shard)
            again = read
    assert lines_of(found) == lines_of(wanted)
    samples = [one for one in wanted if isinstance(one, IterationSample)]
    assert [one for one in found if isinstance(one, IterationSample)] == samples
    assert again.is_closed


def test_the_end_of_a_long_iteration_is_told_with_the_last_word_about_it() -> None:
    shard, told = Shard(SETTINGS), 0
    for flush in said(is_long=True):
        results = shard.on_event(flush)
        for sample in (one for one in results if isinstance(one, IterationSample) and one.step > 3):
            told += 1
            marks = {one.stream: one.time_ns for one in results if isinstance(one, Watermark)}
            assert min(marks.values()) >= sample.time_ns, "time has come to it in all streams"
            assert len(lines_of(results)) > 0
    assert told > 5


def test_heartbeats_that_wait_are_told_when_a_host_is_silent() -> None:
    flushes, shard = said(is_long=True), Shard(SETTINGS)
    beating = next(at for at, flush in enumerate(flushes) if flush.heartbeat is not None and at > len(flushes) // 2)
    silent = flushes[beating].host
    for flush in flushes[:beating]:
        shard.on_event(flush)
    last_ns = 0
    for flush in flushes[beating:]:
        if flush.host != silent:
            last_ns = max(last_ns, flush.time_ns)
            shard.on_event(flush)
        if last_ns > flushes[beating].time_ns + 4 * 10**9:
            break
    late_ns = last_ns + 30 * 10**9
    results = shard.on_event(Tick(job=flushes[0].job, attempt=0, time_ns=late_ns, stream=flushes[0].key))
    marks = [one.time_ns for one in results if isinstance(one, Watermark) and not one.stream.startswith(HOST_STREAM)]
    assert marks
    assert min(marks) > flushes[beating].time_ns, "all that the others have promised is known"
