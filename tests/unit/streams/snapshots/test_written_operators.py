"""What operators leave out of a snapshot follows from the rest: read again they know and say the same as before."""

from __future__ import annotations

import itertools
import random
from typing import Any

import msgspec
import numpy as np
import pytest

from pacehound.model.events import (
    UNTOLD,
    HostSample,
    OpenCall,
    PairProgress,
    ProcessState,
    Progress,
    RankProgress,
)
from pacehound.settings import Settings
from streams.hang.rank_progress import ProgressTable
from streams.hang.shared_name import SharedName
from streams.rounds.assembly import RoundGrid
from streams.rounds.communicator import CommunicatorOperator
from streams.rounds.grids import read_pairs, written_pairs
from streams.rounds.hosts_of_communicator import HostOfCommunicator, HostsOfCommunicator, HostStates
from streams.rounds.mismatches import OPEN_FOR_NS, MismatchWatch
from streams.snapshots.codec import MalformedState
from streams.snapshots.schema import state_codec
from tests.fakes.events import topology
from tests.fakes.examples import tries
from tests.fakes.grid_rows import add

CODEC = state_codec(Settings())
MEMBERS = (0, 1, 2, 3, 4, 5)
HOSTS = {"a": (0, 1, 2), "b": (3, 4, 5)}


def written_and_read(state: Any) -> Any:
    content = CODEC.encode(state)
    again = CODEC.decode(content)
    assert CODEC.encode(again) == content
    return again


def some_rank(rng: random.Random, rank: int) -> RankProgress:
    """A rank in up to two collectives, not all of which are called alike, and in calls to or from peers."""
    launched = rng.choice((UNTOLD, 0, 3, 4, 5))
    seqs = rng.sample((3, 4, 5), rng.randrange(3))
    calls = [
        OpenCall(seq=seq, op="all_reduce", count=rng.choice((8, 8, 9)), dtype="int8", launch_ns=seq) for seq in seqs
    ]
    pairs = []
    for peer in rng.sample([one for one in MEMBERS if one != rank], rng.choice((0, 0, 1, 2))):
        direction = rng.choice(("send", "recv"))
        pairs.append(PairProgress(peer=peer, direction=direction, last_launched=7))
        if rng.random() < 0.5:
            call = OpenCall(seq=7, op=direction, count=1, dtype="int8", launch_ns=9, peer=peer, direction=direction)
            calls.append(call)
    return RankProgress(rank=rank, last_launched=launched, open=tuple(calls), pairs=tuple(pairs))


def said(rng: random.Random, n: int, communicators: tuple[str, ...] = ("world",)) -> list[Progress]:
    """What hosts say one after the other, now and then of some of their ranks."""
    found = []
    for time_ns in range(2 * OPEN_FOR_NS, 2 * OPEN_FOR_NS + n):  # long after the calls
        host = rng.choice(sorted(HOSTS))
        ranks = HOSTS[host] if rng.random() < 0.5 else rng.sample(HOSTS[host], 2)
        found.append(
            Progress(
                job="j",
                attempt=0,
                time_ns=time_ns,
                host=host,
                communicator=rng.choice(communicators),
                ranks=tuple(some_rank(rng, rank) for rank in ranks),
                closed=rng.random() < 0.1,
            )
        )
    return found


@pytest.mark.parametrize("seed", tries(4))
def test_a_communicator_goes_on_as_if_nothing_had_been_written(seed: int) -> None:
    rng = random.Random(seed)
    operator = CommunicatorOperator(topology(members=MEMBERS, host="a", host_ranks=HOSTS["a"]), lateness_ns=5)
    for host, ranks in HOSTS.items():
        operator.on_topology(topology(members=MEMBERS, host=host, host_ranks=ranks))
    again, n_mismatches = operator, 0
    for progress in said(rng, 40):
        again = written_and_read(again)
        assert {name: host.progress for name, host in again._hosts._known.items()} == {
            name: host.progress for name, host in operator._hosts._known.items()
        }
        expected = operator.on_progress(progress)
        assert again.on_progress(progress) == expected
        n_mismatches += sum(type(event).__name__ == "SignatureMismatch" for event in expected)
    assert n_mismatches > 0
    assert CODEC.encode(again) == CODEC.encode(operator)


@pytest.mark.parametrize("seed", tries(4))
def test_open_calls_that_differ_are_told_in_the_same_order(seed: int) -> None:
    """Who came first into a round is looked at first, also when he has left it and come again."""
    rng, grid = random.Random(seed), RoundGrid(len(MEMBERS))
    watch = MismatchWatch(topology(members=MEMBERS))
    again = watch
    for progress in said(rng, 60):
        again = written_and_read(again)
        assert again.in_open(progress, grid, sees_ends=True) == watch.in_open(progress, grid, sees_ends=True)
        assert {seq: list(calls) for seq, calls in again._open_calls.items()} == {
            seq: list(calls) for seq, calls in watch._open_calls.items()
        }
        assert {rank: set(seqs) for rank, seqs in again._open_seqs.items()} == {
            rank: set(seqs) for rank, seqs in watch._open_seqs.items()
        }


def test_open_calls_of_which_a_column_is_short_are_refused() -> None:
    watch = MismatchWatch(topology())
    for columns in (((0, 1), (0,), (5, 5)), ((0,), (1,), (5,)), ((0,), (0,), ())):
        watch.__dict__["_open_calls"] = {}
        state = watch.__getstate__()
        state["_open_calls"] = ([], {3: columns})
        with pytest.raises((ValueError, IndexError)):
            object.__new__(MismatchWatch).__setstate__(state)


@pytest.mark.parametrize("seed", tries(4))
def test_a_progress_table_finds_again_what_follows_from_its_sequences(seed: int) -> None:
    rng, table = random.Random(seed), ProgressTable()
    names = ("world", "group", "late")
    again = table
    for number, progress in enumerate(said(rng, 60, names)):
        if number in (5, 20, 40):
            announced = topology(names[(5, 20, 40).index(number)], MEMBERS)
            table.on_topology(announced)
            again.on_topology(announced)
        again = written_and_read(again)
        assert again.on_progress(progress) == table.on_progress(progress)
        for name in ("sequences", "_collective", "_pair", "_open", "_early", "_length"):
            assert getattr(again, name) == getattr(table, name), name
        paired = {key: slots for key, slots in table._paired.items() if slots}
        assert {key: slots for key, slots in again._paired.items() if slots} == paired
        for name in table._columns:
            assert np.array_equal(again.column(name), table.column(name))
    assert paired


def test_a_progress_table_that_contradicts_its_sequences_is_refused() -> None:
    def table() -> ProgressTable:
        table = ProgressTable()
        table.on_topology(topology(members=(0, 1)))
        pair = PairProgress(peer=1, direction="send", last_launched=2)
        ranks = (RankProgress(rank=0, pairs=(pair,)),)
        table.on_progress(Progress(job="j", attempt=0, time_ns=1, host="h", communicator="world", ranks=ranks))
        return table

    def changed(**changes: Any) -> None:
        object.__new__(ProgressTable).__setstate__({**table().__getstate__(), **changes})

    changed()
    columns = table().__getstate__()["_columns"]
    sequences = table().sequences
    for wrong in (np.array([4]), np.array([-1]), np.array([0.0]), np.array([[0]])):
        with pytest.raises(ValueError, match="pairs in others"):
            changed(_paired=wrong)
    with pytest.raises(ValueError, match="slot 1 of a progress table is in no pair of a member"):
        changed(_paired=np.array([1]))
    with pytest.raises(ValueError, match="begins at 2, not at 0"):
        changed(sequences=sequences[::-1])
    with pytest.raises(ValueError, match="not those of its sequences"):
        changed(_columns={**columns, "rank": columns["rank"][::-1]})
    with pytest.raises(ValueError, match="not those of its sequences"):
        changed(_columns={name: column[:3] for name, column in columns.items()}, _paired=np.zeros(0, np.int64))
    with pytest.raises(ValueError, match="type or length"):
        changed(_columns={**columns, "launched": columns["launched"][1:]})


def test_a_grid_without_rows_takes_no_room() -> None:
    """A job whose agents tell of iterations has two for each communicator and one for each pair that sends."""
    few, many = (len(CODEC.encode([RoundGrid(2) for _ in range(n)])) for n in (1, 101))
    assert (many - few) / 100 < 16
    grid = written_and_read(RoundGrid(2))
    assert not grid.has_open


def test_a_grid_of_no_ranks_is_refused() -> None:
    grid = RoundGrid(1)
    grid.n_ranks = 0
    with pytest.raises(MalformedState):
        CODEC.decode(CODEC.encode(grid))


@pytest.mark.parametrize("seed", tries(4))
def test_the_grids_of_pairs_come_back_in_their_order_whether_or_not_a_round_is_open(seed: int) -> None:
    rng, pairs = random.Random(seed), dict[tuple[int, int], RoundGrid]()
    for pair in rng.sample(list(itertools.permutations(range(6), 2)), 20):
        grid = pairs[pair] = RoundGrid(2)
        for _ in range(rng.randrange(3)):
            first = rng.randrange(50)
            assert add(grid, [0, 0], [first, first + 2], has_rates=rng.random() < 0.3)
        if rng.random() < 0.5:
            grid.begin_anew(70)
    written = written_pairs(pairs)
    assert written is not None
    assert 0 < len(written[1]) < len(pairs)
    assert len(written[1]) == sum(not grid.is_bare for grid in pairs.values())
    again = read_pairs(CODEC.decode(CODEC.encode(written)))
    assert list(again) == list(pairs)
    assert [CODEC.encode(grid) for grid in again.values()] == [CODEC.encode(grid) for grid in pairs.values()]
    assert read_pairs(written_pairs({})) == {}


def test_grids_of_pairs_that_contradict_themselves_are_refused() -> None:
    rows, with_rounds = written_pairs({(0, 1): RoundGrid(2)}) or ()
    with pytest.raises(ValueError, match="rounds of pairs that are not known"):
        read_pairs((rows, {(4, 5): RoundGrid(2)}))
    for wrong in (rows[:, :-1], rows.astype(np.int32), rows[0]):
        with pytest.raises(ValueError, match="pairs is"):
            read_pairs((wrong, with_rounds))
    for column, number in ((2, 0), (9, 3)):  # ranks; rounds in use, of which there are none
        wrong = rows.copy()
        wrong[0, column] = number
        with pytest.raises(ValueError, match="a grid has"):
            read_pairs((wrong, with_rounds))


def test_hosts_of_which_one_has_said_something_else_are_refused() -> None:
    (progress,) = said(random.Random(1), 1)
    hosts = {"a": HostOfCommunicator(frozenset({0, 1, 2}), last_progress=progress)}
    states = HostStates.of(hosts, 0, 5, 2)
    with pytest.raises(ValueError, match="has said a Topology"):
        states.hosts([topology()])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="zip"):
        states.hosts([progress, progress])
    with pytest.raises(ValueError, match=r"the ranks \[1, 2\], which are no members"):
        HostsOfCommunicator.of_state((states, [progress]), {0: 0}, 5)


def test_open_calls_in_slots_that_there_are_not_are_refused() -> None:
    table = ProgressTable()
    table.on_topology(topology(members=(0, 1)))
    state = table.__getstate__()
    for slot in (-1, 2):
        with pytest.raises(ValueError, match="2 slots has open calls in others"):
            object.__new__(ProgressTable).__setstate__({**state, "_open": msgspec.msgpack.encode({slot: ()})})
    with pytest.raises(msgspec.ValidationError):
        object.__new__(ProgressTable).__setstate__({**state, "_open": msgspec.msgpack.encode({0: [{"seq": "1"}]})})


def test_processes_of_ranks_come_back_each_to_its_own() -> None:
    watch, empty = SharedName("j", 0), SharedName("j", 0)
    for host, pid, state in (("a", 1, "running"), ("b", 2, "running"), ("a", 3, "exited")):
        processes = tuple(
            ProcessState(rank=rank, pid=pid + 10 * rank, state=state, since_ns=0) for rank in (0, 1, 2)[: pid + 1]
        )
        watch.of_the_first(HostSample(job="j", attempt=0, time_ns=pid, host=host, processes=processes))
    again = written_and_read(watch)
    assert {rank: len(seen) for rank, seen in again._seen.items()} == {0: 2, 1: 2, 2: 1}
    assert (again._seen, again._several) == (watch._seen, watch._several)
    assert written_and_read(empty)._seen == {}
    state = watch.__getstate__()
    ranks, counts, processes = state["_seen"]
    with pytest.raises(ValueError, match="5 processes are those of ranks that have 6"):
        object.__new__(SharedName).__setstate__({**state, "_seen": (ranks, [3, *counts[1:]], processes)})
