"""Slow ranks and links of simulated jobs through the whole pipeline: whom it names, by source and layout.

Thousands of such jobs are scored by `python -m bench root_cause`; these few say what each kind of them shows.
"""

from __future__ import annotations

from typing import Any

import pytest

from pacehound.model.events import Finding, HostVitals, Progress, RankProcessors, SocketReading
from pacehound.model.topology import Layout
from pacehound.settings import Settings
from simulator.faults import HiddenLateness, SlowCompute, SlowLink
from simulator.job import JobSpec, simulate
from simulator.source import C10D_GLOO, DEVICE_TIMES, LAUNCH_ONLY, UNSEEN_TP
from simulator.suites.root_cause_jobs import RootCauseCase, case_of
from streams.pipeline import Pipeline
from tests.fakes.evidence_words import words_of

ONSET, STEPS = 36, 60
GRID = Layout(tp=2, dp=4, pp=2)
OFFSETS_MS = (50.0, -50.0, 17.0, -31.0)
S = 1_000_000_000


def found(*faults: Any, extra: tuple[HostVitals, ...] = (), **changes: Any) -> Finding:
    """The last version of what is said about a job that becomes slow at `ONSET`."""
    return all_said(*faults, extra=extra, **changes)[-1]


def all_said(*faults: Any, extra: tuple[HostVitals, ...] = (), **changes: Any) -> list[Finding]:
    """Every version of it."""
    fields = {"layout": GRID, "iterations": STEPS, "micro_batches": 4, "tp_calls": 1, "ranks_per_host": 8}
    spec = JobSpec(faults=faults, **(fields | changes))
    pipeline, said = Pipeline(Settings()), []
    pending = list(extra)
    for event in simulate(spec).events():
        while pending and isinstance(event, Progress) and pending[0].time_ns <= event.time_ns:
            pipeline.on_event(pending.pop(0))
        said += [out for out in pipeline.on_event(event) if isinstance(out, Finding)]
    return said


def told_of(case: RootCauseCase) -> Finding:
    """What is said last of a case's slowdown."""
    pipeline = Pipeline(Settings())
    said = [out for event in simulate(case.spec).events() for out in pipeline.on_event(event)]
    return [out for out in said if isinstance(out, Finding) and out.kind == "slow"][-1]


def slow_rank(*ranks: int, factor: float = 1.8) -> SlowCompute:
    return SlowCompute(ranks=ranks, factor=factor, from_step=ONSET)


@pytest.mark.parametrize("source", [C10D_GLOO, DEVICE_TIMES], ids=lambda source: source.name)
@pytest.mark.parametrize("culprits", [(3,), (1, 14)], ids=str)
def test_a_slow_tensor_parallel_rank_is_named_and_its_pipeline_and_replicas_are_victims(
    source: Any, culprits: tuple[int, ...]
) -> None:
    said = found(slow_rank(*culprits), source=source, seed=3)
    assert (said.verdict, said.cause, said.culprits) == ("culprit", "S1", culprits)
    assert set(said.victims) == set(range(16)) - set(culprits)


def test_all_ranks_of_one_of_two_hosts_are_suspected_and_as_many_of_both_are_candidates() -> None:
    """They are half of the job: more share something, or their work has become more."""
    halves = {"layout": Layout(dp=16), "source": DEVICE_TIMES, "seed": 4}
    said = found(slow_rank(*range(8, 16)), **halves)
    assert (said.verdict, said.cause, said.culprits) == ("suspected", "S1", tuple(range(8, 16)))
    assert any("whether it is the host or the work of its ranks: they are 8 of 16" in words for words in said.unseen)
    mixed = found(slow_rank(*range(4, 12)), **halves)
    assert (mixed.verdict, mixed.candidates) == ("unknown", tuple(range(4, 12)))


def test_a_fault_that_comes_into_a_slow_stretch_is_named_too() -> None:
    everybody = SlowCompute(ranks=tuple(range(16)), factor=1.3, from_step=ONSET)
    second = SlowCompute(ranks=(6,), factor=2.2, from_step=ONSET + 30)
    said = found(everybody, second, source=C10D_GLOO, iterations=ONSET + 60, seed=2)
    assert said.onset is not None
    assert said.onset.step == ONSET
    assert (said.verdict, said.cause, said.culprits) == ("culprit", "S1", (6,))


def test_who_was_slow_at_first_is_cleared_where_others_keep_the_job_as_slow() -> None:
    """Each rank in its turn, twenty iterations long: the first one is no reason for what comes after."""
    turns = [
        SlowCompute(ranks=(turn % 4,), factor=1.8, from_step=100 + 20 * turn, to_step=120 + 20 * turn)
        for turn in range(8)
    ]
    said = all_said(*turns, layout=Layout(dp=4), ranks_per_host=4, source=C10D_GLOO, seed=5, iterations=260)
    assert said[0].culprits == (0,)
    assert (said[-1].verdict, said[-1].culprits, said[-1].relief) == ("unknown", (), None)


def test_who_is_slow_in_half_of_the_iterations_stays_named() -> None:
    every_second = [
        SlowCompute(ranks=(2,), factor=2.6, from_step=step, to_step=step + 1 + (step < 110))
        for step in range(100, 260, 2)
    ]
    said = all_said(*every_second, layout=Layout(dp=4), ranks_per_host=4, source=C10D_GLOO, seed=5, iterations=260)
    assert {finding.culprits for finding in said} == {(2,)}


def test_it_is_named_with_clocks_apart_and_lost_rows() -> None:
    said = found(
        slow_rank(9), source=DEVICE_TIMES, clock_offsets_ms=OFFSETS_MS, dropped_fraction=0.05, ranks_per_host=4, seed=5
    )
    assert (said.cause, said.culprits) == ("S1", (9,))
    assert any("were lost" in sentence for sentence in said.unseen)


@pytest.mark.parametrize("dropped", [0.0, 0.05])
def test_a_slow_link_between_stages_is_named_with_clocks_apart(dropped: float) -> None:
    link = SlowLink(link=(2, 10), bandwidth_factor=0.02, from_step=ONSET)
    said = found(
        link, source=DEVICE_TIMES, clock_offsets_ms=OFFSETS_MS, ranks_per_host=4, dropped_fraction=dropped, seed=6
    )
    assert (said.cause, said.culprits, said.links) == ("S2", (), ((2, 10),))


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_an_edge_of_a_larger_communicator_is_named_by_rates(algorithm: str) -> None:
    link = SlowLink(link=(2, 4) if algorithm == "ring" else (0, 4), bandwidth_factor=0.1, from_step=ONSET)
    said = found(link, source=DEVICE_TIMES, ranks_per_host=2, algorithm=algorithm, dp_bytes=512 << 20, seed=7)
    assert (said.verdict, said.cause, said.culprits) == ("culprit", "S2", ())
    assert {frozenset(pair) for pair in said.links} == {frozenset(link.link)}


def test_without_rates_the_members_are_candidates() -> None:
    link = SlowLink(link=(2, 4), bandwidth_factor=0.1, from_step=ONSET)
    said = found(link, source=C10D_GLOO, ranks_per_host=2, dp_bytes=512 << 20, seed=7)
    assert (said.verdict, said.cause, said.culprits, said.candidates) == ("unknown", "S2", (), (0, 2, 4, 6))


def connections(start_s: int, slow: tuple[int, int], slow_from_s: float) -> tuple[HostVitals, ...]:
    """What the kernel counts of the connections of ring (0, 2, 4, 6), two ranks to a host, once a second."""
    edges = [(0, 2), (2, 4), (4, 6), (6, 0)]
    made = []
    acked = dict.fromkeys(edges, 0)
    busy_us = dict.fromkeys(edges, 0)
    for second in range(40):
        for host in range(4):
            readings = []
            for a, b in edges:
                for rank, peer in ((a, b), (b, a)):
                    if rank // 2 == host:
                        readings.append(
                            SocketReading(
                                rank=rank, pid=rank, local=f"10.0.0.{rank}:{a}{b}", remote=f"10.0.0.{peer}:{a}{b}",
                                acked_bytes=acked[a, b] if rank == a else 0, busy_us=busy_us[a, b] if rank == a else 0,
                            )
                        )  # fmt: skip
            now_ns, name = (start_s + second) * S, f"host{host}"
            made.append(HostVitals(job="simulated", attempt=0, time_ns=now_ns, host=name, sockets=tuple(readings)))
        for edge in edges:
            is_slow = edge == slow and second >= slow_from_s
            acked[edge] += 400_000_000
            busy_us[edge] += 900_000 if is_slow else 40_000
    return tuple(made)


def test_the_kernels_view_of_connections_names_the_link_that_gloo_does_not_show() -> None:
    link = SlowLink(link=(2, 4), bandwidth_factor=0.1, from_step=60)
    spec = JobSpec()
    extra = connections(spec.start_unix_ns // S, (2, 4), slow_from_s=6.0)
    said = found(link, source=C10D_GLOO, ranks_per_host=2, dp_bytes=512 << 20, seed=7, iterations=100, extra=extra)
    assert (said.verdict, said.cause, said.culprits, said.links) == ("culprit", "S2", (), ((2, 4),))


def test_what_was_said_before_the_link_was_known_is_not_said_beside_it() -> None:
    link = SlowLink(link=(2, 4), bandwidth_factor=0.1, from_step=60)
    start_s = JobSpec().start_unix_ns // S
    seldom = tuple(one for one in connections(start_s, (2, 4), 6.0) if (one.time_ns // S - start_s) % 8 == 0)
    said = all_said(link, source=C10D_GLOO, ranks_per_host=2, dp_bytes=512 << 20, seed=7, iterations=140, extra=seldom)
    assert (said[0].links, said[-1].links) == ((), ((2, 4),))
    assert sum("transfers of communicator" in sentence for sentence in words_of(said[-1])) == 1


def test_gradient_exchange_beside_the_backward_pass_hides_neither_the_culprit_nor_charges_hidden_lateness() -> None:
    said = found(slow_rank(6), source=DEVICE_TIMES, overlaps=True, seed=8)
    assert (said.cause, said.culprits) == ("S1", (6,))
    hidden = HiddenLateness(rank=3, share=0.6, from_step=ONSET)
    said = all_said(hidden, layout=Layout(dp=16), source=DEVICE_TIMES, overlaps=True, tp_calls=4, seed=8)
    assert all(finding.culprits == () for finding in said[-1:])


def test_hot_experts_are_no_name_and_a_slow_rank_beside_them_is() -> None:
    said = found(slow_rank(11, factor=2.2), source=DEVICE_TIMES, ep=4, seed=9)
    assert (said.cause, said.culprits) == ("S1", (11,))
    said = all_said(source=DEVICE_TIMES, ep=4, seed=9)
    assert all(finding.culprits == () for finding in said[-1:])


def test_ranks_that_wait_for_each_other_in_a_library_that_is_not_seen_are_not_called_culprits() -> None:
    said = found(slow_rank(9), source=UNSEEN_TP, seed=4)
    assert said.verdict != "culprit"
    assert 9 in (*said.culprits, *said.candidates)


@pytest.mark.parametrize(
    ("source", "seed"),
    [
        ("unseen library, tp", 50105),
        ("unseen library, ep", 50034),
        ("unseen library, ep", 50102),
        ("unseen library, ep", 88),
    ],
    ids=["beside a pair", "all of a ring", "all of a ring, tied", "half of a ring"],
)
def test_who_waits_unseen_for_a_slow_link_is_no_part_of_it(source: str, seed: int) -> None:
    """Their own times grow by what the transfers of others do, or a part of it in most ranks of the communicator."""
    case = case_of(source, seed)
    last = told_of(case)
    assert (last.cause, last.culprits) == ("S2", ())
    assert {frozenset(link) for link in last.links} == {frozenset(link) for link in case.truth.links}


@pytest.mark.parametrize("seed", [50202, 110110], ids=["all calls", "some are lost"])
def test_slow_ranks_that_have_tokens_of_one_expert_do_not_wait_for_each_other(seed: int) -> None:
    """Their own times move together, as do those of the others who have them and are as quick as before."""
    case = case_of("MoE", seed)
    last = told_of(case)
    assert (last.verdict, last.cause, last.culprits) == ("culprit", "S1", case.truth.culprits)


def processors(short: int, short_from_s: float, *, n_ranks: int, every_s: int) -> tuple[HostVitals, ...]:
    """What the scheduler counts of the ranks of one host, one of which waits for a processor from some time on."""
    made, waited_s = [], dict.fromkeys(range(n_ranks), 0.0)
    for second in range(0, 100, every_s):
        readings = tuple(
            RankProcessors(rank=rank, pid=rank, ran_ns=second * S, waited_ns=int(waited * S))
            for rank, waited in waited_s.items()
        )
        time_ns = JobSpec().start_unix_ns + second * S
        made.append(HostVitals(job="simulated", attempt=0, time_ns=time_ns, host="host0", rank_processors=readings))
        waited_s[short] += (0.6 if second >= short_from_s else 0.0) * every_s
    return tuple(made)


def test_of_ranks_that_wait_for_each_other_unseen_the_one_that_lacks_processors_is_suspected() -> None:
    extra = processors(9, 2.0, n_ranks=16, every_s=1)
    said = found(slow_rank(9), source=UNSEEN_TP, seed=4, ranks_per_host=16, iterations=80, extra=extra)
    assert (said.verdict, said.cause, said.culprits) == ("suspected", "S1", (9,))
    assert any("rank 9 has a processor for" in sentence for sentence in words_of(said))


def test_a_reason_that_is_known_only_when_the_quiet_iterations_are_forgotten_is_still_told() -> None:
    small = {"layout": Layout(dp=4), "ranks_per_host": 4, "source": C10D_GLOO, "seed": 5}
    slow = SlowCompute(ranks=(2,), factor=1.8, from_step=100)
    before = found(slow, iterations=130, **small)
    assert (before.culprits, before.relief) == ((2,), None)
    assert before.onset is not None
    since_s = (before.onset.time_ns - JobSpec().start_unix_ns) / 1e9
    # Two readings before the onset, and the second one since it when some 250 slow iterations have gone by.
    every_s = int(since_s / 2) + 1
    said = found(slow, iterations=420, extra=processors(2, since_s, n_ranks=4, every_s=every_s), **small)
    assert said.culprits == (2,)
    assert sum("rank 2 has a processor for" in sentence for sentence in words_of(said)) == 1


@pytest.mark.parametrize("is_read", [True, False])
def test_a_rank_is_suspected_until_the_processors_that_could_clear_it_have_been_read(is_read: bool) -> None:
    """Where they are never read there is nothing to wait for."""
    small = {"layout": Layout(dp=4), "ranks_per_host": 4, "source": C10D_GLOO, "seed": 5, "iterations": 420}
    extra = processors(0, 1e9, n_ranks=4, every_s=5) if is_read else ()
    said = all_said(SlowCompute(ranks=(2,), factor=1.8, from_step=100), extra=extra, **small)
    assert {finding.culprits for finding in said if finding.kind == "slow"} == {(2,)}
    assert [said[0].verdict, said[-1].verdict] == ["suspected" if is_read else "culprit", "culprit"]
    assert [any("processors have not been read" in words for words in one.unseen) for one in (said[0], said[-1])] == [
        is_read,
        False,
    ]


def test_two_readings_since_the_slowdown_began_are_enough_however_short_iterations_are() -> None:
    """A hundred slow iterations of 52 ms, which are compared, take little longer than there is between readings."""
    small = {"layout": Layout(dp=4), "ranks_per_host": 4, "source": C10D_GLOO, "seed": 5, "micro_batches": 2}
    slow = SlowCompute(ranks=(2,), factor=1.8, from_step=100)
    said = found(slow, iterations=300, extra=processors(0, 1e9, n_ranks=4, every_s=5), **small)
    assert (said.verdict, said.culprits) == ("culprit", (2,))


def test_launches_alone_give_no_class() -> None:
    said = found(slow_rank(9), source=LAUNCH_ONLY, seed=4)
    assert (said.cause, said.verdict == "culprit") == (None, False)
