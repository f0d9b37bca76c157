"""The whole of the streams on simulated jobs: verdicts against the simulator's truth, and replays."""

from __future__ import annotations

import hashlib
import itertools
import random
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest
from msgspec import structs

from bench.rig.flushes import together
from pacehound.errors import InvalidEvent
from pacehound.model.calls import CallBatch
from pacehound.model.codec import decode, encode
from pacehound.model.events import (
    Changepoint,
    EarlierRun,
    Finding,
    GpuReading,
    HostSample,
    HostVitals,
    Incident,
    IterationSample,
    JobHistory,
    LevelChange,
    Markers,
    Progress,
    Watermark,
)
from pacehound.model.evidence.machines import Gpu
from pacehound.model.rounds import Rounds
from pacehound.model.routing import Event, route
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import ExitRank, Pause, SlowCompute, SlowLink, StopRank
from simulator.job import JobSpec, Simulation, simulate
from simulator.source import LAUNCH_ONLY
from streams.pipeline import Pipeline
from streams.snapshots.codec import MalformedState
from tests.fakes.events import without_steps
from tests.fakes.evidence_words import words_of
from tests.fakes.examples import steps

SETTINGS = Settings.load({}, ["hang.suspect_after_s=3"])
GRID = Layout(tp=2, dp=2, pp=2)
SLOW = SlowCompute(ranks=(5,), factor=1.5, from_step=60, to_step=110)


def run(events: Iterable[Event], settings: Settings = SETTINGS) -> list[Event]:
    pipeline = Pipeline(settings)
    return [out for event in events for out in pipeline.on_event(event)]


def incidents(events: Iterable[Event]) -> list[Incident]:
    return [event for event in events if isinstance(event, Incident)]


def job(*faults: object, iterations: int = 150, **extra: object) -> Simulation:
    return simulate(JobSpec(iterations=iterations, layout=GRID, faults=faults, **extra))  # type: ignore[arg-type]


@cache
def recording(fault: object = SLOW) -> tuple[Event, ...]:
    """Two hosts, an incident in it: what is replayed in other ways must say the same."""
    return tuple(job(fault, ranks_per_host=4).events())


@cache
def replay(fault: object = SLOW) -> tuple[Event, ...]:
    """What comes of a recording as it is."""
    return tuple(run(recording(fault)))


@pytest.mark.parametrize("culprit", [0, 6])
def test_a_slow_rank_anywhere_in_the_grid_is_named_and_its_relief_reported(culprit: int) -> None:
    simulation = job(
        SlowCompute(ranks=(culprit,), factor=1.5, from_step=100, to_step=150), iterations=260, seed=culprit
    )
    opened, *_, closed = incidents(run(simulation.events()))
    (finding,) = opened.findings
    (truth,) = simulation.truth.findings
    assert (finding.kind, finding.verdict, finding.cause, finding.culprits) == ("slow", "culprit", "S1", (culprit,))
    assert finding.onset is not None
    assert finding.detected is not None
    assert abs(finding.onset.step - truth.onset.step) <= 2
    assert finding.detected.step - truth.onset.step <= 12
    relief = closed.findings[0].relief
    assert relief is not None
    assert truth.relief is not None
    assert abs(relief.step - truth.relief.step) <= 10
    assert (closed.state, closed.closed_why) == ("closed", "relieved")
    assert closed.cost.excess_s == pytest.approx(truth.excess_s, rel=0.1)


def test_without_optimizer_steps_the_recurring_calls_give_the_iterations() -> None:
    simulation = job(iterations=460)
    samples = [event for event in run(without_steps(simulation.events())) if isinstance(event, IterationSample)]
    assert {sample.boundary for sample in samples} == {"period"}
    ours = [sample.step_time_s for sample in samples if sample.step_time_s][-200:]
    theirs = simulation.iteration_times_s[-len(ours) :]
    assert len(ours) == 200
    assert sum(ours) == pytest.approx(sum(theirs), rel=0.001)


def test_a_slow_rank_is_named_without_optimizer_steps() -> None:
    simulation = job(SlowCompute(ranks=(5,), factor=1.5, from_step=250), iterations=400)
    out = run(without_steps(simulation.events()))
    assert [f.culprits for f in incidents(out)[-1].findings] == [(5,)]


def test_a_clean_job_has_no_finding() -> None:
    simulation = job(iterations=steps(300, 600), jitter=0.05, spike_probability=0.0005, spike_s=0.05)
    found = [e for e in run(simulation.events()) if isinstance(e, (Finding, Incident, Changepoint))]
    assert found == []


def test_planned_pauses_have_no_finding() -> None:
    checkpoint = Pause(kind="checkpoint", every_steps=50, duration_s=4.0)
    evaluation = Pause(kind="evaluation", every_steps=70, duration_s=2.0)
    found = [e for e in run(job(checkpoint, evaluation).events()) if isinstance(e, (Finding, Incident))]
    assert found == []


def test_a_stopped_rank_is_a_hang_that_ends_when_it_goes_on() -> None:
    simulation = job(StopRank(rank=3, step=60, resume_after_s=8), iterations=160)
    opened, relieved, closed = incidents(run(simulation.events()))
    (finding,) = opened.findings
    assert (finding.kind, finding.verdict, finding.cause, finding.culprits) == ("hang", "culprit", "H1", (3,))
    assert finding.onset is not None
    assert opened.time_ns - finding.onset.time_ns <= 5e9
    assert relieved.state == "relieved"
    assert (closed.state, closed.closed_why) == ("closed", "relieved")
    assert closed.cost.excess_s == pytest.approx(8.0, abs=1.5)


def test_a_stopped_rank_is_named_by_its_process_where_only_launches_are_seen() -> None:
    simulation = job(StopRank(rank=3, step=60, resume_after_s=12), iterations=120, source=LAUNCH_ONLY)
    opened, *_ = incidents(run(simulation.events()))
    assert [(f.kind, f.verdict, f.culprits) for f in opened.findings] == [("hang", "culprit", (3,))]


def test_without_ends_and_without_a_stopped_process_no_innocent_is_called_culprit() -> None:
    """The rank runs, as far as its host can tell: it may be suspected, and nobody else."""
    simulation = job(StopRank(rank=3, step=60, resume_after_s=12), iterations=120, source=LAUNCH_ONLY)
    running = [_all_running(e) if isinstance(e, HostSample) else e for e in simulation.events()]
    finding = incidents(run(running))[0].findings[0]
    assert finding.verdict != "culprit"
    assert set(finding.culprits) <= {3}
    assert 3 in (*finding.culprits, *finding.candidates)


def _all_running(sample: HostSample) -> HostSample:
    return replace(sample, processes=tuple(replace(p, state="running") for p in sample.processes))


def test_a_slow_rank_is_not_named_where_only_launches_are_seen() -> None:
    finding = incidents(run(job(SLOW, source=LAUNCH_ONLY).events()))[0].findings[0]
    assert (finding.kind, finding.verdict, finding.culprits) == ("slow", "unknown", ())
    assert any("start and an end" in sentence for sentence in finding.unseen)


def test_a_rank_that_is_killed_is_named_once_and_its_victims_are_not() -> None:
    out = run(job(ExitRank(rank=6, step=60, signal=9)).events())
    last = incidents(out)[-1]
    assert {finding.culprits for finding in last.findings} == {(6,)}
    assert last.closed_why == "job killed"
    assert len({incident.id for incident in incidents(out)}) == 1


def test_a_slow_pipeline_link_is_named_and_no_rank_is_blamed() -> None:
    """Its transfers take longer in both directions, by clocks that are known: that is evidence of the link itself."""
    spec = JobSpec(
        iterations=120,
        layout=Layout(tp=2, dp=4, pp=2),
        ranks_per_host=4,
        faults=(SlowLink(link=(0, 8), bandwidth_factor=0.02, from_step=60),),
    )
    finding = incidents(run(simulate(spec).events()))[-1].findings[0]
    assert (finding.verdict, finding.cause, finding.culprits, finding.links) == ("culprit", "S2", (), ((0, 8),))


def test_a_slow_link_inside_a_collective_blames_no_rank() -> None:
    spec = JobSpec(
        iterations=120,
        layout=Layout(tp=2, dp=4, pp=2),
        ranks_per_host=4,
        faults=(SlowLink(link=(2, 4), bandwidth_factor=0.2, from_step=60),),
    )
    finding = incidents(run(simulate(spec).events()))[-1].findings[0]
    assert (finding.verdict, finding.cause, finding.culprits) == ("unknown", "S2", ())
    assert set(finding.candidates) == {0, 2, 4, 6}
    assert finding.unseen


def streams_of(events: Sequence[Event]) -> dict[tuple[str, str], list[Event]]:
    streams: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for event in events:
        topic, key = route(event)
        streams[topic.name, key].append(event)
    return streams


def interleavings(events: Sequence[Event], seed: int) -> list[Event]:
    """The same streams, each in its own order, shuffled into each other in long runs and short ones."""
    chooser = random.Random(seed)
    streams = [list(reversed(stream)) for stream in streams_of(events).values()]
    merged: list[Event] = []
    while streams:
        stream = chooser.choice(streams)
        for _ in range(chooser.choice((1, 3, 400))):
            if stream:
                merged.append(stream.pop())
        streams = [s for s in streams if s]
    return merged


def by_stream(events: Iterable[Event]) -> dict[str, tuple[int, str]]:
    """Number and digest of the bytes that come out: stage one per communicator, stage two per job."""
    written: dict[str, list[bytes]] = defaultdict(list)
    for event in events:
        is_stage_one = isinstance(event, (Rounds, Watermark))
        stream = getattr(event, "communicator", getattr(event, "stream", "")) if is_stage_one else "job"
        written[stream].append(encode(event))
    return {stream: (len(out), hashlib.sha256(b"".join(out)).hexdigest()) for stream, out in written.items()}


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 30), marks=pytest.mark.prove)], ids=["one", "many"])
@pytest.mark.parametrize(
    "fault",
    [SLOW, StopRank(rank=3, step=60, resume_after_s=8), ExitRank(rank=6, step=60, signal=9)],
    ids=["slow", "stopped", "killed"],
)
def test_any_interleaving_of_a_recording_gives_the_same_bytes(fault: object, seeds: range) -> None:
    """Replayed in other orders of its communicators and hosts: one order of each here, many in `make prove`."""
    recorded, out = recording(fault), replay(fault)
    expected = by_stream(out)
    assert incidents(out)
    for seed in seeds:
        assert by_stream(run(interleavings(recorded, seed))) == expected


def with_a_hot_card(events: Iterable[Event], from_step: int) -> Iterator[Event]:
    """Each fifth second a host says how its cards are, before it says how its processes are."""
    slow, seen = False, 0
    for event in events:
        if isinstance(event, Markers):
            slow = slow or max(event.steps) >= from_step
        if isinstance(event, HostSample):
            seen += 1
            if seen % 5 == 0:
                card = GpuReading(
                    uuid="GPU-5",
                    index=1,
                    ranks=(5,),
                    sm_clock_mhz=900 if slow else 1980,
                    max_sm_clock_mhz=1980,
                    throttle_reasons=("hw_thermal_slowdown",) if slow else (),
                )
                seen_ns = event.time_ns - 300_000_000
                gpus = (card,) if 5 in {process.rank for process in event.processes} else ()
                yield HostVitals(job=event.job, attempt=0, time_ns=seen_ns, host=event.host, gpus=gpus)
        yield event


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 30), marks=pytest.mark.prove)], ids=["one", "many"])
def test_promises_that_speak_for_processes_wait_for_what_their_host_has_said_besides(seeds: range) -> None:
    """On Kafka they travel apart, and all promises of a job may be read before the first word of a host."""
    recorded = list(with_a_hot_card(recording(), from_step=60))
    told = list(together(recorded))
    n_samples = [sum(isinstance(event, HostSample) for event in events) for events in (recorded, told)]
    assert n_samples[1] < n_samples[0] / 4
    expected = by_stream(run(recorded))["job"]
    (finding,) = incidents(run(told))[-1].findings
    assert any(isinstance(one, Gpu) for one in finding.evidence), "what may be read later has a say in it"
    calls_first = sorted(told, key=lambda event: (route(event)[0].name, route(event)[1]))
    for order in (told, calls_first, *(interleavings(told, seed) for seed in seeds)):
        assert by_stream(run(order))["job"] == expected


def test_events_that_went_through_bytes_give_the_same_bytes() -> None:
    again = [event for message in map(encode, recording()) for event in decode(message)]
    assert by_stream(run(again)) == by_stream(replay())


def test_messages_that_arrive_twice_change_nothing_that_is_said_about_the_job() -> None:
    twice = [event for event in recording() for _ in range(2)]
    assert [encode(e) for e in incidents(run(twice))] == [encode(e) for e in incidents(replay())]


def test_a_pipeline_that_is_moved_in_mid_job_says_the_same() -> None:
    pipeline = Pipeline(SETTINGS)
    out: list[Event] = []
    for number, event in enumerate(recording()):
        if number % 97 == 0:
            pipeline = Pipeline.restore(pipeline.snapshot(), SETTINGS)
        out += pipeline.on_event(event)
    assert by_stream(out) == by_stream(replay())


def test_a_pipeline_of_which_only_what_changed_was_kept_says_the_same() -> None:
    """A part is not written again while nothing of it was heard, and one that is gone is left out."""
    pipeline, kept = Pipeline(SETTINGS), dict[str, bytes]()
    out: list[Event] = []
    for number, event in enumerate(recording()):
        if number % 97 == 0:
            changed, names = pipeline.changed()
            kept = {name: part for name, part in {**kept, **changed}.items() if name in names}
            assert kept.keys() == names
            pipeline = Pipeline(SETTINGS)
            pipeline.take_back(kept)
        out += pipeline.on_event(event)
    assert by_stream(out) == by_stream(replay())
    pipeline.changed()
    assert pipeline.changed()[0].keys() == {"counts"}


def test_a_part_that_is_no_part_is_refused_and_nothing_is_taken() -> None:
    pipeline, other = Pipeline(SETTINGS), Pipeline(SETTINGS)
    for event in itertools.islice(recording(), 50):
        other.on_event(event)
    parts, _ = other.changed(everything=True)
    name = next(name for name in parts if name.startswith("key "))
    with pytest.raises(MalformedState, match=r"key .* is a dict"):
        pipeline.take_back({**parts, name: parts["counts"]})
    assert pipeline.streams() == {}


def test_calls_of_a_communicator_that_nobody_announced_are_refused() -> None:
    batch = next(event for event in job(iterations=10).events() if isinstance(event, CallBatch))
    with pytest.raises(InvalidEvent, match="which no topology has announced"):
        Pipeline(SETTINGS).on_event(batch)


def test_messages_after_the_end_of_a_job_are_counted() -> None:
    recorded = list(job(iterations=20).events())
    pipeline = Pipeline(SETTINGS)
    for event in recorded:
        pipeline.on_event(event)
    assert pipeline.streams() == {}
    late = next(event for event in recorded if isinstance(event, Progress))
    assert pipeline.on_event(late) == []
    assert pipeline.all_counts() == {"after_end": 1}


def test_dropped_calls_are_said_with_the_finding() -> None:
    out = run(job(SLOW, dropped_fraction=0.02).events())
    finding = incidents(out)[-1].findings[0]
    assert any("were lost" in sentence for sentence in finding.unseen)
    assert finding.culprits in ((5,), ())


EVERYBODY = SlowCompute(ranks=tuple(range(8)), factor=1.5, from_step=100)
EARLIER = JobHistory(
    job="simulated",
    attempt=0,
    time_ns=0,
    runs=(EarlierRun(name="yesterday", last_step=300, changes=(LevelChange(step=101, log_ratio=0.35),)),),
)


def after_a_gap(events: Iterable[Event], from_ns: int, n_rounds: int) -> Iterator[Event]:
    """As if an agent had been dead from `from_ns` on for so many rounds: they are counted, and never told of."""
    for event in events:
        if isinstance(event, CallBatch) and event.integers("launch_ns").min() >= from_ns:
            moved = pa.array(event.integers("seq") + n_rounds, event.rows.schema.field("seq").type)
            event = replace(event, rows=event.rows.set_column(event.rows.schema.get_field_index("seq"), "seq", moved))
        elif isinstance(event, Progress) and event.time_ns >= from_ns:
            counted = [
                structs.replace(
                    rank,
                    last_launched=rank.last_launched + n_rounds,
                    last_completed=rank.last_completed + n_rounds,
                    open=tuple(structs.replace(call, seq=call.seq + n_rounds) for call in rank.open),
                    pairs=(),
                )
                for rank in event.ranks
            ]
            event = replace(event, ranks=tuple(counted))
        yield event


def test_after_a_gap_of_any_length_a_communicator_goes_on_and_the_gap_is_said() -> None:
    recorded = recording()
    promised_ns = sorted(event.time_ns for event in recorded if isinstance(event, Progress))
    out = run(after_a_gap(recorded, promised_ns[len(promised_ns) // 5], 200_000))
    (finding, *_) = [finding for finding in findings(out) if finding.culprits]
    assert finding.culprits == (5,)
    assert any(
        re.search(r"(19|20)\d{4} rounds of world were told of by nobody", sentence) for sentence in finding.unseen
    )


def test_a_number_that_is_not_true_blinds_a_communicator_for_a_second() -> None:
    """The hosts' own counters say where the rounds are."""
    recorded = list(recording())
    at = next(i for i, e in enumerate(recorded) if isinstance(e, CallBatch) and i > len(recorded) // 6)
    batch = recorded[at]
    assert isinstance(batch, CallBatch)
    row = batch.rows.slice(0, 1)
    seq = pa.array([1 << 60], row.schema.field("seq").type)
    lie = replace(batch, rows=row.set_column(row.schema.get_field_index("seq"), "seq", seq))
    out = run([*recorded[:at], lie, *recorded[at:]])
    assert {finding.culprits for finding in findings(out) if finding.culprits} == {(5,)}


def findings(events: Iterable[Event]) -> list[Finding]:
    return [event for event in events if isinstance(event, Finding)]


def test_a_job_wide_change_that_an_earlier_run_had_at_the_same_step_is_planned() -> None:
    simulation = job(EVERYBODY, iterations=200)
    unknown = findings(run(simulation.events()))
    assert (unknown[0].kind, unknown[0].verdict) == ("slow", "unknown")
    out = run([EARLIER, *simulation.events()])
    (planned,) = findings(out)
    assert (planned.kind, planned.pages) == ("planned", False)
    assert any("yesterday" in sentence for sentence in words_of(planned))
    assert incidents(out) == []


def test_a_job_that_was_never_as_fast_as_its_last_attempts_is_an_incident_since_its_first_step() -> None:
    simulation = job(iterations=200, ranks_per_host=4)
    clean = run(simulation.events())
    assert incidents(clean) == []
    pace_s = statistics.median(event.step_time_s for event in clean if isinstance(event, IterationSample))
    runs = tuple(
        EarlierRun(name=f"attempt {n}", last_step=900, changes=(), step_time_s=pace_s / 1.18, world_size=8, hosts=2)
        for n in (3, 2, 1)
    )
    out = run([replace(EARLIER, runs=runs), *simulation.events()])
    (found,) = findings(out)
    assert (found.kind, found.verdict) == ("slow", "unknown")
    assert words_of(found)[0].startswith("18% slower than its last 3 attempts")
    assert found.onset is not None
    assert found.onset.step == 0
    assert [incident.state for incident in incidents(out)] == ["open", "closed"]


def test_history_does_not_excuse_a_rank_that_stands_apart() -> None:
    history = replace(EARLIER, runs=(replace(EARLIER.runs[0], changes=(LevelChange(step=100, log_ratio=0.3),)),))
    found = findings(run([history, *job(SLOW).events()]))
    assert (found[0].kind, found[0].culprits) == ("slow", (5,))


def test_a_slowdown_below_the_bar_names_its_rank_and_wakes_nobody() -> None:
    found = findings(run(job(SlowCompute(ranks=(5,), factor=1.10, from_step=400), iterations=900).events()))
    assert {finding.kind for finding in found} == {"slow"}
    assert found[-1].culprits == (5,)
    assert found[-1].magnitude is not None
    assert 0.04 < found[-1].magnitude < 0.10
    assert not any(finding.pages for finding in found)


def test_ranks_that_are_killed_after_a_hang_are_not_guilty_of_it() -> None:
    """A link is dead, everybody waits, and in the end the job is killed with all its ranks."""
    simulation = job(SlowLink(link=(0, 2), bandwidth_factor=0.0, from_step=60), iterations=120)
    last = incidents(run(simulation.events()))[-1]
    assert {finding.kind for finding in last.findings} == {"hang"}
    assert all(finding.culprits == () for finding in last.findings)
