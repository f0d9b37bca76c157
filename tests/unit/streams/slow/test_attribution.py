"""Who made iterations longer: each rule on iterations written down by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pacehound.model.events import GpuReading, GroupOutlier, HostVitals
from pacehound.model.evidence.machines import LacksProcessor, Stack
from pacehound.model.evidence.transfers import Connection, EdgeRates
from streams.rounds.clocks import ClockOffsets
from streams.rounds.round_columns import TransferKey
from streams.slow.attribution.attribute import attribute
from streams.slow.attribution.observations import Observations
from streams.slow.attribution.records import IterationRecord
from streams.slow.attribution.verdict import Attribution
from streams.slow.connections import SlowConnection
from streams.slow.critical_path import Charges
from streams.slow.gpu_state import GpuStates
from streams.slow.rates import SlowEdges
from tests.fakes.evidence_words import words_of

MS = 1e6
N_RANKS = 16
RANKS = np.arange(N_RANKS)
KEYS: dict[TransferKey, int] = {"dp": 0, "two": 1, (0, 8): 2, (8, 0): 3, (2, 8): 4, (8, 2): 5}
OBSERVED = Observations(
    communicators={"dp": ("dp0", (0, 2, 4, 6)), "two": ("dp1", (1, 13))},
    outliers=list,
    hosts={rank: f"host{rank // 4}" for rank in range(N_RANKS)},
)

BUSY = Connection(sender=1, receiver=13, busy_share=0.9, bytes_per_s=1e6, peers_bytes_per_s=1e8)
SENDS_SLOWLY = EdgeRates(sender=2, receiver=4, op="all_reduce", send_share=0.4, receive_share=0.4, reference="earlier")


def records(
    n: int,
    *,
    own: dict[int, float] | None = None,
    transfers: dict[TransferKey, float] | None = None,
    first: int = 0,
    seed: int = 0,
    **changes: Any,
) -> list[IterationRecord]:
    """Iterations of 100 ms; `own` and `transfers` say by how many milliseconds some of them are longer."""
    rng = np.random.default_rng([seed, first])
    made = []
    extra_ms = max((own or {}).values(), default=0.0) + sum((transfers or {}).values())
    for step in range(first, first + n):
        own_ns = 80 * MS + 0.4 * MS * rng.standard_normal(N_RANKS)
        charged = {rank: round(2 * MS) for rank in range(N_RANKS)}
        for rank, ms in (own or {}).items():
            own_ns[rank] += ms * MS
            charged[rank] += round(ms * MS / len(own or {}))
        transfer_ns = np.full(len(KEYS), 5 * MS)
        on_path: dict[TransferKey, int] = {key: round(5 * MS) for key in KEYS}
        for key, ms in (transfers or {}).items():
            transfer_ns[KEYS[key]] += ms * MS
            on_path[key] += round(ms * MS)
        fields = {
            "step": step,
            "time_ns": step * 10**8,
            "step_time_s": 0.1 + extra_ms / 1e3 + 1e-4 * rng.standard_normal(),
            "ranks": RANKS,
            "charges": Charges(charged, on_path),
            "own_ns": own_ns.astype(np.float32),
            "own_most_ns": own_ns.astype(np.float32),
            "transfer_ns": transfer_ns.astype(np.float32),
            "n_rounds": 40,
            "size_bytes": 10**9,
        }
        made.append(IterationRecord(**(fields | changes)))
    return made


def answer(
    slow: list[IterationRecord],
    quiet: list[IterationRecord],
    keys: Mapping[TransferKey, int],
    observed: Observations,
) -> Attribution:
    """Of a stretch that has no more iterations than these."""
    return attribute(slow, quiet, keys, observed, slow[0].time_ns)


def found(observed: Observations = OBSERVED, **slow: Any) -> Attribution:
    return answer(records(20, first=100, **slow), records(60), KEYS, observed)


@pytest.mark.parametrize("culprits", [(5,), (3, 12), (0, 7, 15)])
def test_ranks_whose_own_time_grew_are_culprits_of_computation(culprits: tuple[int, ...]) -> None:
    said = found(own=dict.fromkeys(culprits, 40.0))
    assert (said.verdict, said.cause, said.culprits, said.links) == ("culprit", "S1", culprits, ())


@pytest.mark.parametrize(
    ("waits", "lost", "said"),
    [(True, 0.0, ("S2", ())), (False, 0.0, ("S1", (5,))), (True, 0.1, ("S2", ()))],
    ids=["moves with it", "moves by itself", "no whole iteration"],
)
def test_whose_own_time_grows_and_moves_as_others_transfers_do_waits_for_them(
    waits: bool, lost: float, said: tuple[str, tuple[int, ...]]
) -> None:
    """In calls that are not seen; a rank of the slow pair itself is another matter."""
    slow, rng = [], np.random.default_rng(2)
    for record in records(20, first=100, own={5: 45.0}, transfers={(0, 8): 42.0}):
        own_ns, transfer_ns = record.own_ns.copy(), record.transfer_ns.copy()
        transfer_ns[KEYS[0, 8]] += (moves_ns := 3 * MS * rng.standard_normal())
        own_ns[5] += moves_ns if waits else 3 * MS * rng.standard_normal()
        lost_share = np.where(RANKS == 5, lost, 0.0).astype(np.float32)
        slow.append(replace(record, own_ns=own_ns, own_most_ns=own_ns, transfer_ns=transfer_ns, lost_share=lost_share))
    found = answer(slow, records(60), KEYS, OBSERVED)
    assert (found.cause, found.culprits) == said


def test_a_communicator_of_two_has_one_link_which_is_suspected_until_something_of_the_link_itself_tells() -> None:
    said = found(transfers={"two": 30.0})
    assert (said.verdict, said.cause, said.culprits, said.links) == ("suspected", "S2", (), ((1, 13),))
    rates = replace(OBSERVED, slow_edges=lambda _name, _since: SlowEdges(((1, 13),), is_sure=True, evidence=()))
    assert found(rates, transfers={"two": 30.0}).verdict == "culprit"
    busy = SlowConnection((1, 13), is_strong=True, connection=BUSY)
    kernel = replace(OBSERVED, connections=lambda _ranks, _since: [busy])
    assert found(kernel, transfers={"two": 30.0}).verdict == "culprit"


def test_two_ranks_of_one_host_have_no_network_between_them() -> None:
    """A copy there takes longer for many reasons, and a busy machine is the first of them."""
    together = replace(OBSERVED, hosts=dict.fromkeys(range(N_RANKS), "host0"))
    for transfers in ({"two": 30.0}, {(0, 8): 20.0, (8, 0): 20.0}):
        said = found(together, transfers=transfers)
        assert (said.verdict, said.culprits, said.links) == ("unknown", (), ())
        assert any("both are on host host0" in sentence for sentence in said.unseen)
    apart = GroupOutlier(job="j", attempt=0, time_ns=0, communicator="two", peers=7, transfer_s=0.03, median_s=0.001)
    said = found(replace(together, outliers=lambda: [apart]), transfers={"two": 30.0})
    assert (said.verdict, said.links) == ("suspected", ((1, 13),)), "other pairs of the machine are as quick as before"
    rates = replace(together, slow_edges=lambda _name, _since: SlowEdges(((1, 13),), is_sure=True, evidence=()))
    assert found(rates, transfers={"two": 30.0}).links == ((1, 13),)


def test_a_smaller_part_that_most_ranks_of_a_slow_communicator_have_is_what_the_transfer_does_to_them() -> None:
    edge = SlowEdges(((2, 4),), is_sure=True, evidence=(SENDS_SLOWLY,))
    rates = replace(OBSERVED, slow_edges=lambda _name, _since: edge)
    for ranks, said in (((2,), ("S3", (2,))), ((0, 2, 4, 6), ("S2", ())), ((2, 4), ("S2", ()))):
        found_ = found(rates, own=dict.fromkeys(ranks, 15.0), transfers={"dp": 50.0})
        assert (found_.cause, found_.culprits, found_.links) == (*said, ((2, 4),))


def test_a_pair_that_is_slow_in_both_directions_is_named_and_in_one_direction_suspected() -> None:
    said = found(transfers={(0, 8): 20.0, (8, 0): 20.0})
    assert (said.verdict, said.cause, said.links) == ("culprit", "S2", ((0, 8),))
    assert (found(transfers={(0, 8): 40.0}).verdict, found(transfers={(0, 8): 40.0}).links) == ("suspected", ((0, 8),))


def test_clocks_that_could_have_made_the_growth_weaken_a_pair_and_nothing_else() -> None:
    uncertain = ClockOffsets(RANKS, np.zeros(N_RANKS), np.full(N_RANKS, 5 * MS), RANKS // 4)
    observed = replace(OBSERVED, clocks=uncertain)
    said = found(observed, transfers={(0, 8): 20.0, (8, 0): 20.0})
    assert (said.verdict, said.links) == ("suspected", ((0, 8),))
    assert any("clocks" in sentence for sentence in said.unseen)
    assert found(observed, own={5: 40.0}).verdict == "culprit"
    assert found(observed, transfers={"two": 40.0}) == found(transfers={"two": 40.0})


@pytest.mark.parametrize(("others_ms", "links"), [(0.5, ((0, 8),)), (5.0, ())], ids=["alone", "in a crowd"])
def test_a_link_that_explains_a_third_is_named_only_if_it_stands_out_among_its_kind(
    others_ms: float, links: tuple[tuple[int, int], ...]
) -> None:
    keys: dict[TransferKey, int] = {**KEYS, (4, 12): 6, (12, 4): 7}
    ways = {(0, 8): 6.0, (8, 0): 6.0, (2, 8): others_ms, (4, 12): others_ms}

    def made(n: int, first: int, grown: dict[tuple[int, int], float]) -> list[IterationRecord]:
        return [
            replace(
                record,
                step_time_s=record.step_time_s + (0.036 if grown else 0.0),
                transfer_ns=np.array([5 * MS + MS * grown.get(key, 0.0) for key in keys], np.float32),
                charges=Charges(record.charges.ranks, {k: round(5 * MS + MS * grown.get(k, 0.0)) for k in keys}),
            )
            for record in records(n, first=first)
        ]

    said = answer(made(20, 100, ways), made(60, 0, {}), keys, OBSERVED)
    assert said.links == links
    assert said.verdict in ("suspected", "unknown")
    assert bool(links) or "no link stands apart" in " ".join(words_of(said))


def test_several_slow_links_that_meet_in_one_rank_are_told_as_its_network_interface() -> None:
    said = found(transfers={(0, 8): 15.0, (8, 0): 15.0, (2, 8): 14.0, (8, 2): 14.0})
    assert any("meet in rank 8" in sentence for sentence in words_of(said))


def test_a_larger_communicator_without_rates_has_candidates_and_no_name() -> None:
    said = found(transfers={"dp": 40.0})
    assert (said.verdict, said.cause, said.culprits, said.links) == ("unknown", "S2", (), ())
    assert said.candidates == (0, 2, 4, 6)
    assert said.unseen


@pytest.mark.parametrize(("is_sure", "verdict"), [(True, "culprit"), (False, "suspected")])
def test_rates_name_the_edge(is_sure: bool, verdict: str) -> None:
    observed = replace(OBSERVED, slow_edges=lambda _name, _since: SlowEdges(((2, 4),), is_sure, (SENDS_SLOWLY,)))
    said = found(observed, transfers={"dp": 40.0})
    assert (said.verdict, said.cause, said.links) == (verdict, "S2", ((2, 4),))
    assert SENDS_SLOWLY in said.evidence


@pytest.mark.parametrize(("is_strong", "verdict"), [(True, "culprit"), (False, "suspected")])
def test_connections_name_the_link_where_calls_cannot(is_strong: bool, verdict: str) -> None:
    slow = SlowConnection((2, 4), is_strong, "the connection from rank 2 to rank 4 is busy")
    observed = replace(OBSERVED, connections=lambda _ranks, _since: [slow])
    said = found(observed, transfers={"dp": 40.0})
    assert (said.verdict, said.cause, said.links, said.culprits) == (verdict, "S2", ((2, 4),), ())


@pytest.mark.parametrize(("own_ms", "transfer_ms"), [(20.0, 20.0), (36.0, 6.0), (9.0, 60.0)])
def test_both_on_one_rank_and_its_link_is_mixed(own_ms: float, transfer_ms: float) -> None:
    said = found(own={1: own_ms}, transfers={"two": transfer_ms})
    assert (said.verdict, said.cause, said.culprits, said.links) == ("culprit", "S3", (1,), ((1, 13),))


@pytest.mark.parametrize(("resent_share", "cause"), [(None, "S1"), (0.05, "S3")])
def test_a_connection_to_a_rank_that_reads_late_is_no_slow_link(resent_share: float | None, cause: str) -> None:
    """Its data wait for the rank; where they are sent again, the link has lost them."""
    connection = Connection(
        sender=13, receiver=1, busy_share=0.9, bytes_per_s=1e6, peers_bytes_per_s=1e8, resent_share=resent_share
    )
    slow = SlowConnection((1, 13), is_strong=True, connection=connection)
    observed = replace(OBSERVED, connections=lambda _ranks, _since: [slow])
    said = found(observed, own={1: 30.0}, transfers={"two": 12.0})
    assert (said.cause, said.culprits) == (cause, (1,))


@pytest.mark.parametrize(("lost", "cause"), [(0.0, "S3"), (0.1, "S1")])
def test_waiting_in_lost_calls_of_a_slow_rank_is_no_slow_transfer(lost: float, cause: str) -> None:
    share = np.zeros(N_RANKS, np.float32)
    share[2] = lost
    said = found(own={2: 40.0}, transfers={"dp": 10.0}, lost_share=share if lost else None)
    assert (said.cause, said.culprits, said.links) == (cause, (2,), ())


def test_a_slow_link_elsewhere_does_not_make_a_slow_rank_mixed() -> None:
    said = found(own={5: 40.0}, transfers={"two": 12.0})
    assert (said.cause, said.culprits, said.links) == ("S1", (5,), ())


def test_a_link_is_not_named_where_a_rank_came_late_to_its_rounds() -> None:
    """A rank that stalls inside a call looks like a slow transfer; CCL-D's P tells one from the other."""
    late = replace(OBSERVED, rank_came_late=lambda communicator: communicator == "two")
    said = found(late, transfers={"two": 30.0})
    assert (said.verdict, said.cause, said.links, said.candidates) == ("unknown", None, (), (1, 13))
    assert any("a rank came late" in sentence for sentence in said.unseen)
    said = found(late, own={1: 20.0}, transfers={"two": 20.0})
    assert (said.verdict, said.cause, said.culprits, said.links) == ("culprit", "S1", (1,), ())
    rates = replace(late, slow_edges=lambda _name, _since: SlowEdges(((1, 13),), is_sure=True, evidence=()))
    assert found(rates, transfers={"two": 30.0}).links == ((1, 13),), "what is known of the link itself counts"


def test_transfers_of_the_whole_job_do_not_make_a_slow_rank_mixed() -> None:
    """As with FSDP: every rank is in the communicator, and a slow one slows its transfers too."""
    world = replace(OBSERVED, communicators={**OBSERVED.communicators, "dp": ("world", tuple(range(N_RANKS)))})
    said = found(world, own={5: 40.0}, transfers={"dp": 30.0})
    assert (said.cause, said.culprits, said.links) == ("S1", (5,), ())


@pytest.mark.parametrize(("rank", "culprits"), [(0, ()), (5, (5,))])
def test_rank_0_that_is_busy_by_its_stack_is_told_as_that_and_no_culprit(rank: int, culprits: tuple[int, ...]) -> None:
    words = f"rank {rank} is busy: it reads or writes storage (py-spy): save < main"
    stack = Stack(rank=rank, doing="storage", taken_by="py-spy", frames=("save", "main"), shown_as="busy")
    busy = replace(OBSERVED, busy_in=lambda asked, _since: (stack,) if asked == rank else ())
    said = found(busy, own={rank: 40.0})
    assert said.culprits == culprits
    if not culprits:
        assert (said.verdict, said.candidates, words_of(said)[-1]) == ("unknown", (0,), words)


def test_growth_that_wanders_over_ranks_names_nobody() -> None:
    slow = [one for i in range(20) for one in records(1, own={(5 * i) % N_RANKS: 40.0}, first=100 + i)]
    said = answer(slow, records(60), KEYS, OBSERVED)
    assert (said.verdict, said.cause, said.culprits) == ("unknown", None, ())
    assert any("wanders" in sentence for sentence in words_of(said))


def test_a_slow_rank_beside_a_wandering_charge_is_still_named() -> None:
    slow = [one for i in range(20) for one in records(1, own={5: 40.0, (3 * i) % N_RANKS: 41.0}, first=100 + i)]
    said = answer(slow, records(60), KEYS, OBSERVED)
    assert (said.verdict, said.cause, said.culprits) == ("culprit", "S1", (5,))


def test_own_time_that_follows_the_bytes_is_imbalance() -> None:
    quiet = [
        one for i in range(60) for one in records(1, own={5: 4.0 * (i % 4)}, first=i, size_bytes=10**9 + i % 4 * 10**8)
    ]
    slow = records(20, own={5: 40.0}, first=100, size_bytes=2 * 10**9)
    said = answer(slow, quiet, KEYS, OBSERVED)
    assert (said.verdict, said.culprits) == ("unknown", ())
    assert any("follows the bytes" in sentence for sentence in words_of(said))


def test_more_work_for_everybody_is_a_change() -> None:
    said = found(own=dict.fromkeys(range(N_RANKS), 40.0), size_bytes=14 * 10**8)
    assert (said.kind, said.verdict, said.culprits) == ("change", "unknown", ())


def test_most_ranks_that_compute_for_longer_are_not_named_one_by_one() -> None:
    said = found(own=dict.fromkeys(range(7), 40.0))
    assert (said.verdict, said.culprits) == ("unknown", ())
    assert said.candidates == tuple(range(7))


def test_ranks_that_move_together_wait_for_each_other_unseen_and_are_not_named() -> None:
    def tied(made: list[IterationRecord], seed: int) -> list[IterationRecord]:
        moves = np.random.default_rng(seed).normal(0, 0.4 * MS, len(made))
        for record, move in zip(made, moves, strict=True):
            record.own_ns[[4, 5]] = (record.own_ns[4] + move, record.own_ns[4] + move + 0.1 * MS)
            record.own_most_ns[[4, 5]] = record.own_ns[[4, 5]]
        return made

    slow = tied(records(20, own={4: 40.0, 5: 40.0}, first=100), 1)
    said = answer(slow, tied(records(60), 2), KEYS, OBSERVED)
    assert (said.verdict, said.culprits, said.candidates) == ("unknown", (), (4, 5))
    assert any("not seen" in sentence for sentence in said.unseen)


def test_a_pause_that_a_host_made_once_does_not_tie_its_ranks_to_each_other() -> None:
    """All that two ranks had in common in sixty quiet iterations was one of 15 ms, which both of them felt."""
    quiet = records(60)
    for record in (quiet[20], quiet[41]):
        record.own_ns[[4, 5]] += 15 * MS
    replicas = replace(OBSERVED, communicators=OBSERVED.communicators | {"dp": ("dp0", tuple(range(N_RANKS)))})
    said = answer(records(20, own={4: 40.0, 5: 40.0}, first=100), quiet, KEYS, replicas)
    assert (said.verdict, said.cause, said.culprits) == ("culprit", "S1", (4, 5))


def test_ranks_of_one_host_that_no_call_ties_are_not_told_apart() -> None:
    """Two ranks beside each other that exchange nothing, and lose the same: what ties them is not seen."""
    lanes = {"even": (0, 2, 4, 6, 8, 10, 12, 14), "odd": (1, 3, 5, 7, 9, 11, 13, 15)}
    keys: dict[TransferKey, int] = {"even": 0, "odd": 1, **{(0, 2 * i): i for i in range(2, 6)}}
    observed = replace(OBSERVED, communicators={name: (name, ranks) for name, ranks in lanes.items()})
    slow, quiet = records(20, own={4: 40.0, 5: 40.0}, first=100), records(60)
    assert answer(slow, quiet, keys, observed).candidates == (4, 5)
    tied = replace(observed, communicators={"even": ("even", lanes["even"]), "odd": ("tp", (4, 5))})
    assert answer(slow, quiet, keys, tied).culprits == (4, 5)


def test_a_named_rank_that_has_lost_most_of_its_calls_is_only_suspected() -> None:
    lost = np.zeros(N_RANKS, np.float32)
    lost[5] = 0.5
    assert found(own={5: 40.0}, lost_share=lost).verdict == "suspected"
    assert found(own={5: 40.0}, lost_share=np.full(N_RANKS, 0.05, np.float32)).verdict == "culprit"


def test_a_rank_that_may_wait_in_a_replay_is_only_suspected() -> None:
    said = found(replace(OBSERVED, replaying=frozenset({4, 5})), own={5: 40.0})
    assert (said.verdict, said.culprits) == ("suspected", (5,))
    assert found(replace(OBSERVED, replaying=frozenset({8, 9})), own={5: 40.0}).verdict == "culprit"


def test_ranks_of_one_host_are_no_culprits_together_where_calls_were_lost() -> None:
    lost = np.full(N_RANKS, 0.05, np.float32)
    own = {4: 40.0, 5: 40.0}
    assert found(own=own, lost_share=lost).verdict != "culprit"
    assert found(own={4: 40.0, 9: 40.0}, lost_share=lost).verdict == "culprit"


def test_a_communicator_whose_rows_are_lost_is_not_named_for_sure() -> None:
    lost = np.zeros(N_RANKS, np.float32)
    lost[13] = 0.9
    assert found(transfers={"two": 40.0}, lost_share=lost).verdict == "suspected"


def gpus(rank: int) -> GpuStates:
    states = GpuStates()
    for host in range(4):
        readings = tuple(
            GpuReading(
                uuid=f"GPU-{r}", index=r % 4, ranks=(r,), max_sm_clock_mhz=1980,
                sm_clock_mhz=900 if r == rank else 1755,
                throttle_reasons=("hw_thermal_slowdown",) if r == rank else (),
            )
            for r in range(4 * host, 4 * host + 4)
        )  # fmt: skip
        states.on_vitals(HostVitals(job="j", attempt=0, time_ns=0, host=f"host{host}", gpus=readings))
    return states


def test_a_throttled_gpu_strengthens_its_own_rank_and_accuses_nobody_else() -> None:
    lost = np.zeros(N_RANKS, np.float32)
    lost[5] = 0.5
    said = found(replace(OBSERVED, gpu_problems=gpus(5).problems), own={5: 40.0}, lost_share=lost)
    assert said.verdict == "culprit"
    assert any("hw_thermal_slowdown" in sentence for sentence in words_of(said))
    assert any("900 MHz" in sentence for sentence in words_of(said))
    innocent = found(replace(OBSERVED, gpu_problems=gpus(9).problems), own={5: 40.0}, lost_share=lost)
    assert (innocent.verdict, innocent.culprits) == ("suspected", (5,))
    assert not any("GPU" in sentence for sentence in words_of(innocent))
    assert found(replace(OBSERVED, gpu_problems=gpus(9).problems), transfers={"dp": 40.0}).culprits == ()


def test_launches_alone_suspect_a_late_host_at_most() -> None:
    def launched(late_ms: dict[int, float]) -> dict[str, Any]:
        first = np.full(N_RANKS, 2 * MS, np.float32)
        for rank, ms in late_ms.items():
            first[rank] += ms * MS
        return {"sees_transfers": False, "first_launch_ns": first}

    quiet = records(60, **launched({}))
    said = answer(records(20, own={5: 40.0}, first=100, **launched({5: 38.0})), quiet, KEYS, OBSERVED)
    assert (said.verdict, said.cause, said.culprits) == ("suspected", None, (5,))
    said = answer(records(20, own={5: 40.0}, first=100, **launched({})), quiet, KEYS, OBSERVED)
    assert (said.verdict, said.cause, said.culprits) == ("unknown", None, ())
    assert any("start and an end" in sentence for sentence in said.unseen)


def test_ranks_that_were_not_seen_before_or_are_gone_are_no_reason_to_fail() -> None:
    slow = records(20, own={5: 40.0}, first=100)
    fewer = [replace(r, ranks=RANKS[:12], own_ns=r.own_ns[:12], own_most_ns=r.own_most_ns[:12]) for r in records(60)]
    assert answer(slow, fewer, KEYS, OBSERVED).culprits == (5,)
    assert answer([replace(r, ranks=RANKS[:12], own_ns=r.own_ns[:12], own_most_ns=r.own_most_ns[:12]) for r in slow],
                     records(60), KEYS, OBSERVED).culprits == (5,)  # fmt: skip


def test_too_little_to_compare_says_so() -> None:
    assert answer(records(2), records(60), KEYS, OBSERVED).unseen
    assert answer(records(20), records(60, own={1: 20.0}), KEYS, OBSERVED).verdict == "unknown"


def lack_of(rank: int) -> LacksProcessor:
    return LacksProcessor(rank=rank, host="h", cause="other work", now=0.5, before=1.0)


def short(*ranks: int, nearly: tuple[int, ...] = ()) -> Observations:
    """Some ranks lack processors for half of what 40 ms more than 100 ms ask for, and others for 0.3 of it."""

    def shortages(asked: Sequence[int], _since_ns: int, min_share: float) -> dict[int, LacksProcessor]:
        lacks = dict.fromkeys(nearly, 0.3 * 40 / 140) | dict.fromkeys(ranks, 0.51 * 40 / 140)
        return {rank: lack_of(rank) for rank in asked if lacks.get(rank, 0.0) >= min_share}

    return replace(OBSERVED, shortages=shortages)


def test_a_culprit_that_lacks_processors_is_told_why_and_nobody_else_is_named_for_it() -> None:
    said = found(short(5, 9), own={5: 40.0})
    assert (said.verdict, said.culprits, said.short_of_processors) == ("culprit", (5,), (5,))
    assert said.evidence[-1] == lack_of(5)
    innocent = found(short(9), own={5: 40.0})
    assert (innocent.culprits, innocent.short_of_processors) == ((5,), ())
    assert not any("has a processor" in sentence for sentence in words_of(innocent))


def test_a_busy_machine_makes_nobody_a_culprit() -> None:
    """Ranks 4 to 7 share a host: that rank 5 shows it most is chance. On other hosts nothing lacks."""
    said = found(short(5, nearly=(4, 6, 7)), own={5: 40.0})
    assert (said.verdict, said.culprits, said.candidates) == ("unknown", (), (4, 5, 6, 7))
    assert any("lack processors" in sentence for sentence in said.unseen)
    assert found(short(5, nearly=(4, 6, 9)), own={5: 40.0}).culprits == (5,), "rank 7 of that host has what it wants"


def test_many_ranks_that_compute_for_longer_are_named_when_processors_are_what_they_share() -> None:
    many = dict.fromkeys(range(8), 40.0)
    assert found(own=many).culprits == ()
    said = found(short(*range(8)), own=many)
    assert (said.verdict, said.cause, said.culprits) == ("culprit", "S1", tuple(range(8)))
    assert any("5 more like these" in sentence for sentence in words_of(said))
    some = found(short(1, 2), own=many)
    assert (some.verdict, some.cause, some.culprits) == ("suspected", "S1", (1, 2))
    assert some.candidates == (0, 3, 4, 5, 6, 7)


def test_of_a_slow_communicator_without_a_slow_link_the_members_that_lack_processors_are_suspected() -> None:
    said = found(short(4), transfers={"dp": 40.0})
    assert (said.verdict, said.cause, said.culprits) == ("suspected", "S2", (4,))
    most = found(short(0, 2, 4), transfers={"dp": 40.0})
    assert (most.verdict, most.culprits, most.short_of_processors) == ("unknown", (), (0, 2, 4))
    close = found(short(4, nearly=(2,)), transfers={"dp": 40.0})
    assert (close.verdict, close.culprits, close.short_of_processors) == ("unknown", (), (4,))
    everybody = found(short(0, 2, 4, 6), transfers={"dp": 40.0})
    assert (everybody.verdict, everybody.cause, everybody.culprits) == ("unknown", "S2", ())
    assert any("has a processor" in sentence for sentence in words_of(everybody))


def test_where_everybody_is_slower_ranks_that_lack_processors_are_candidates() -> None:
    said = found(short(*RANKS.tolist()), own=dict.fromkeys(RANKS.tolist(), 40.0))
    assert (said.verdict, said.cause, said.culprits) == ("unknown", None, ())
    assert said.candidates == tuple(RANKS.tolist())


def test_work_that_has_changed_is_no_shortage() -> None:
    said = found(short(*RANKS.tolist()), own=dict.fromkeys(RANKS.tolist(), 40.0), n_rounds=60)
    assert (said.kind, said.short_of_processors) == ("change", ())
