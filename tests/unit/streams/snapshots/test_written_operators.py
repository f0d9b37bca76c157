"""What operators leave out of a snapshot follows from the rest: read again they know and say the same as before."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from pacehound.model.events import UNTOLD, OpenCall, PairProgress, Progress, RankProgress
from pacehound.settings import Settings
from streams.hang.rank_progress import ProgressTable
from streams.rounds.assembly import RoundGrid
from streams.rounds.communicator import CommunicatorOperator
from streams.rounds.mismatches import OPEN_FOR_NS, MismatchWatch
from streams.snapshots.codec import MalformedState
from streams.snapshots.schema import state_codec
from tests.fakes.events import topology
from tests.fakes.examples import tries

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
        assert {name: host.progress for name, host in again._hosts.items()} == {
            name: host.progress for name, host in operator._hosts.items()
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
        assert again.in_open(progress, grid) == watch.in_open(progress, grid)
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
