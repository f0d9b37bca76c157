"""Whatever hosts say, and in whatever order, the table holds what a plain model of it holds."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from pacehound.model.events import NEVER, UNTOLD, OpenCall, PairProgress, Progress, RankProgress
from streams.hang.rank_progress import NOT_OPEN, ProgressTable
from streams.rounds.signatures import packed, signature_of
from tests.fakes.events import topology
from tests.fakes.examples import tries

MEMBERS = (0, 1, 2, 5, 6, 7)
HOSTS = {"a": (0, 1, 2), "b": (5, 6, 7, 9)}  # 9 is no member
COMMUNICATORS = ("world", "group")


@dataclass(slots=True)
class Row:
    """What is known of one rank on one line of calls."""

    rank: int
    launched: int = NEVER
    completed: int = NEVER
    calls: tuple[OpenCall, ...] = ()
    reported_ns: int = 0

    def set(self, launched: int, completed: int, calls: tuple[OpenCall, ...]) -> bool:
        has_moved = launched > self.launched or completed > self.completed
        self.launched, self.completed, self.calls = launched, completed, calls
        return has_moved

    def columns(self) -> tuple[int, ...]:
        """As `columns` of the table."""
        if not self.calls:
            return self.rank, self.launched, self.completed, NOT_OPEN, 0, 0, self.reported_ns
        oldest = min(self.calls, key=lambda call: (call.launch_ns, call.seq))
        signature = packed(signature_of(oldest)) if oldest.direction == "none" else 0
        return self.rank, self.launched, self.completed, oldest.seq, oldest.launch_ns, signature, self.reported_ns


class PlainTable:
    """Rows in the order of their slots."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.lines: dict[tuple[str, tuple[int, ...]], dict[int, Row]] = {}  # by communicator and ends: none, or a pair
        self.paired: dict[tuple[str, int], list[Row]] = {}
        self.early: dict[tuple[str, str], Progress] = {}

    def line(self, communicator: str, ends: tuple[int, ...], ranks: tuple[int, ...]) -> dict[int, Row]:
        if (communicator, ends) not in self.lines:
            rows = [Row(rank) for rank in ranks]
            self.rows += rows
            self.lines[communicator, ends] = dict(zip(ranks, rows, strict=True))
        return self.lines[communicator, ends]

    def on_topology(self, communicator: str) -> None:
        self.line(communicator, (), MEMBERS)
        for key in [key for key in self.early if key[0] == communicator]:
            self.on_progress(self.early.pop(key))

    def on_progress(self, said: Progress) -> list[int]:
        members = self.lines.get((said.communicator, ()))
        if members is None:
            self.early[said.communicator, said.host] = said
            return []
        return [theirs.rank for theirs in said.ranks if theirs.rank in members and self.take(theirs, said)]

    def take(self, theirs: RankProgress, said: Progress) -> bool:
        calls = () if said.closed else theirs.open
        mine = self.line(said.communicator, (), MEMBERS)[theirs.rank]
        collectives = tuple(call for call in calls if call.direction == "none")
        has_moved = mine.set(theirs.last_launched, theirs.last_completed, collectives)
        pairs = {(pair.peer, pair.direction): pair for pair in theirs.pairs}
        for call in calls:
            if call.direction != "none":
                pair = pairs.get((call.peer, call.direction))
                if pair is None:
                    pair = PairProgress(peer=call.peer, direction=call.direction, last_launched=call.seq)
                elif pair.last_launched < call.seq:
                    pair = PairProgress(
                        peer=pair.peer,
                        direction=pair.direction,
                        last_launched=call.seq,
                        last_completed=pair.last_completed,
                    )
                pairs[pair.peer, pair.direction] = pair
        paired = self.paired.setdefault((said.communicator, theirs.rank), [])
        told = []
        for (peer, direction), pair in sorted(pairs.items()):
            ends = (theirs.rank, peer) if direction == "send" else (peer, theirs.rank)
            row = self.line(said.communicator, ends, ends)[theirs.rank]
            open_calls = tuple(call for call in calls if (call.peer, call.direction) == (peer, direction))
            has_moved |= row.set(pair.last_launched, pair.last_completed, open_calls)
            told.append(row)
        for row in paired:
            if not any(row is one for one in told):
                row.calls = ()
        paired += [row for row in told if not any(row is one for one in paired)]
        for row in (mine, *paired):
            row.reported_ns = said.time_ns
        return has_moved


class Host:
    """Says mostly the same again, with counters that have gone on."""

    def __init__(self, rng: random.Random, name: str, communicator: str) -> None:
        self.rng, self.name, self.communicator = rng, name, communicator
        self.peers = {
            rank: [(peer, rng.choice(("send", "recv"))) for peer in rng.choices(MEMBERS, k=rng.randrange(4))]
            for rank in HOSTS[name]
        }

    def says(self, time_ns: int) -> Progress:
        rng = self.rng
        ranks = HOSTS[self.name] if rng.random() < 0.7 else rng.choices(HOSTS[self.name], k=rng.randrange(4))
        return Progress(
            job="j",
            attempt=0,
            time_ns=time_ns,
            host=self.name,
            communicator=self.communicator,
            ranks=tuple(self.rank(rank, time_ns) for rank in ranks),
            closed=rng.random() < 0.05,
        )

    def rank(self, rank: int, time_ns: int) -> RankProgress:
        rng, told = self.rng, self.peers[rank]
        if rng.random() < 0.1:
            rng.shuffle(told)
        if rng.random() < 0.1:
            told.append((rng.choice(MEMBERS), rng.choice(("send", "recv"))))
        if rng.random() < 0.2:
            told = rng.sample(told, rng.randrange(len(told) + 1))
        pairs = [
            PairProgress(
                peer=peer, direction=way, last_launched=self.count(time_ns), last_completed=self.count(time_ns)
            )
            for peer, way in told
        ]
        calls = [self.call(time_ns, -1, "none") for _ in range(rng.choice((0, 0, 1, 3)))]
        if rng.random() < 0.4:
            calls += [self.call(time_ns, *rng.choice(self.peers[rank] or [(0, "send")])) for _ in range(3)]
        if rng.random() < 0.1:
            calls.append(self.call(time_ns, rng.choice(MEMBERS), "recv"))
        rng.shuffle(calls)
        launched, completed = rng.choice((UNTOLD, self.count(time_ns))), self.count(time_ns)
        return RankProgress(
            rank=rank, last_launched=launched, last_completed=completed, open=tuple(calls), pairs=tuple(pairs)
        )

    def count(self, time_ns: int) -> int:
        return self.rng.choice((NEVER, time_ns // 3, time_ns // 3 + self.rng.randrange(-1, 2)))

    def call(self, time_ns: int, peer: int, direction: str) -> OpenCall:
        rng = self.rng
        op = "all_reduce" if direction == "none" else direction
        seq, launch_ns = max(0, self.count(time_ns)), time_ns - rng.randrange(4)
        count = rng.choice((8, 9))
        return OpenCall(seq=seq, op=op, count=count, dtype="int8", launch_ns=launch_ns, peer=peer, direction=direction)


@pytest.mark.parametrize("seed", tries(12))
def test_the_table_holds_what_the_plain_one_holds(seed: int) -> None:
    rng, table, plain = random.Random(seed), ProgressTable(), PlainTable()
    hosts = [Host(rng, name, communicator) for name in HOSTS for communicator in COMMUNICATORS]
    announced_at = dict(zip(rng.sample(range(30), 2), COMMUNICATORS, strict=True))
    for time_ns in range(120):
        if time_ns in announced_at:
            table.on_topology(replace(topology(members=MEMBERS, world_size=8), communicator=announced_at[time_ns]))
            plain.on_topology(announced_at[time_ns])
        said = rng.choice(hosts).says(time_ns)
        assert table.on_progress(said) == plain.on_progress(said)
        names = ("rank", "launched", "completed", "open_seq", "open_ns", "signature", "reported_ns")
        columns = [table.column(name).tolist() for name in names]
        assert list(zip(*columns, strict=True)) == [row.columns() for row in plain.rows]
        assert [table.open_calls(slot) for slot in range(len(table))] == [row.calls for row in plain.rows]
        lines = [(one.communicator, one.ranks if one.is_pair else ()) for one in table.sequences]
        assert lines == list(plain.lines)
    assert len(table) > 3 * len(MEMBERS)
