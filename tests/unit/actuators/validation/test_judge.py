"""Who is slow, from what all ranks measured: one that is, and nobody who was only disturbed."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from actuators.validation.judge import judge_links, judge_ranks
from actuators.validation.outcome import RankMeasured, outcome_of, read_measured
from actuators.validation.passes import ring_passes
from pacehound.errors import MalformedMessage
from tests.fakes.examples import tries

REPETITIONS = 10


def measured(
    n_ranks: int, chance: np.random.Generator, *, slow: dict[int, float] | None = None, noise: float = 0.08
) -> dict[int, list[float]]:
    """Times of all ranks: what disturbs a repetition disturbs all of them, and each is noisy besides."""
    common = chance.lognormal(0, 0.3, REPETITIONS)
    return {
        rank: list(0.05 * (slow or {}).get(rank, 1.0) * common * chance.lognormal(0, noise, REPETITIONS))
        for rank in range(n_ranks)
    }


def verdicts(times: dict[int, list[float]]) -> dict[int, str]:
    return {rank: judged.verdict for rank, judged in judge_ranks(times).items()}


@pytest.mark.parametrize("n_ranks", [3, 8, 64])
def test_a_slow_rank_is_proven_and_the_others_are_cleared(n_ranks: int) -> None:
    chance = np.random.default_rng(n_ranks)
    for _ in tries(4, deep=100):
        slow = int(chance.integers(n_ranks))
        found = verdicts(measured(n_ranks, chance, slow={slow: 1.6}))
        assert found.pop(slow) == "culprit"
        assert "culprit" not in found.values()


def test_of_healthy_ranks_nobody_is_named() -> None:
    chance = np.random.default_rng(7)
    named = sum("culprit" in verdicts(measured(8, chance)).values() for _ in tries(30, deep=800))
    assert named == 0


def test_a_rank_that_was_disturbed_in_a_few_repetitions_is_not_named() -> None:
    times = {rank: [0.05] * REPETITIONS for rank in range(4)}
    times[2] = [0.05] * 6 + [0.5] * 4
    assert verdicts(times)[2] == "cleared"


def test_a_rank_that_is_as_fast_as_its_peers_at_its_best_is_not_named() -> None:
    times = {rank: [0.05] * REPETITIONS for rank in range(3)}
    times[2] = [0.10] * 9 + [0.05]
    found = judge_ranks(times)
    assert found[2].verdict == "unclear"
    assert "slower in 90% of 10 repetitions, 1.00 times at its best" in found[2].reason
    assert verdicts(times | {2: [0.10] * REPETITIONS})[2] == "culprit"


def test_nobody_can_say_which_of_two_is_slow() -> None:
    found = judge_ranks({0: [0.05] * REPETITIONS, 1: [0.5] * REPETITIONS})
    assert {one.verdict for one in found.values()} == {"unclear"}
    assert "1 peers were measured; 2 are needed" in found[1].reason


def test_a_rank_that_measured_too_little_is_unclear_and_judges_nobody() -> None:
    times = {rank: [0.05] * REPETITIONS for rank in range(4)} | {4: [9.0] * 3}
    found = judge_ranks(times)
    assert found[4].verdict == "unclear"
    assert "measured 3 times; 8 are needed" in found[4].reason
    assert {found[rank].verdict for rank in range(4)} == {"cleared"}


def ring(n_ranks: int, slow: dict[tuple[int, int], float]) -> dict[tuple[int, int], list[float]]:
    return {link: [0.002 * slow.get(link, 1.0)] * REPETITIONS for one in ring_passes(n_ranks) for link in one}


def test_a_slow_link_is_named_and_its_ends_are_not() -> None:
    links, ranks = judge_links(ring(8, {(3, 4): 3.0}))
    assert [link for link, judged in links.items() if judged.verdict == "culprit"] == [(3, 4)]
    assert ranks == {}


def test_a_rank_whose_links_are_all_slow_is_named_instead_of_them() -> None:
    links, ranks = judge_links(ring(8, {(3, 4): 3.0, (4, 5): 3.0}))
    assert "culprit" not in {judged.verdict for judged in links.values()}
    assert list(ranks) == [4]


def test_of_three_slow_links_in_a_row_nobody_is_named() -> None:
    links, ranks = judge_links(ring(8, {(3, 4): 3.0, (4, 5): 3.0, (5, 6): 3.0}))
    assert "culprit" not in {judged.verdict for judged in links.values()}
    assert ranks == {}
    assert "several links side by side are slow" in links[4, 5].reason


def said(rank: int, host: str, seconds: float, link_s: float, n_ranks: int = 4, device: str = "cpu") -> RankMeasured:
    link = (rank, (rank + 1) % n_ranks, (link_s,) * REPETITIONS)
    return RankMeasured(
        rank=rank,
        host=host,
        machine=host,
        device=device,
        ranks={"gemm float32": (seconds,) * REPETITIONS, "memory": (0.03,) * REPETITIONS},
        links={"latency": (link,)},
        measured_s=4.0,
    )


def test_the_slowest_measurement_of_a_rank_decides_and_is_told() -> None:
    outcome = outcome_of([said(rank, f"h{rank}", 0.1 if rank == 2 else 0.05, 0.001) for rank in range(4)])
    (culprit,) = outcome.culprits()
    assert (culprit.ranks, culprit.hosts, culprit.measured) == ((2,), ("h2",), "gemm float32")
    assert culprit.judged.reason == "2.00 times the peers' time (100.00 ms against 50.00 ms)"


def test_links_within_a_host_are_not_judged_where_processors_move_the_data() -> None:
    on_one = [said(rank, "h0", 0.05, 0.009 if rank == 2 else 0.001) for rank in range(4)]
    assert outcome_of(on_one).links == ()
    on_gpus = [msgspec.structs.replace(one, device="NVIDIA H100") for one in on_one]
    assert [one.ranks for one in outcome_of(on_gpus).culprits()] == [(2, 3)]


def copying(seconds: dict[int, float], n_hosts: int, device: str = "cpu") -> list[RankMeasured]:
    """Of six ranks, the memory of those named takes these seconds, that of all others 0.03."""
    each = 6 // n_hosts
    return [
        msgspec.structs.replace(
            said(rank, f"h{rank // each}", 0.05, 0.001, device=device),
            ranks={"memory": (seconds.get(rank, 0.03),) * REPETITIONS},
            links={},
        )
        for rank in range(6)
    ]


def test_memory_is_the_machines_where_processors_copy() -> None:
    one_rank, one_host = {1: 0.06}, {2: 0.06, 3: 0.06}
    assert outcome_of(copying(one_rank, n_hosts=1)).ranks == ()  # its pages, not the memory
    assert outcome_of(copying(one_host, n_hosts=2)).ranks == ()  # of two machines nobody can say which is slow
    assert [one.ranks for one in outcome_of(copying(one_host, n_hosts=3)).culprits()] == [(2,), (3,)]
    containers = [msgspec.structs.replace(one, machine="m") for one in copying(one_host, n_hosts=3)]
    assert outcome_of(containers).ranks == ()
    assert [one.ranks for one in outcome_of(copying(one_rank, n_hosts=1, device="NVIDIA H100")).culprits()] == [(1,)]


def test_what_is_no_measurement_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="no measurements"):
        read_measured(b'[{"rank": "x"}]')
