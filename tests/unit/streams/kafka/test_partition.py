"""The state of partitions when owners die, are replaced and wake up again: nothing lost, nothing twice, in order."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

import pytest

from pacehound.bus import Message
from pacehound.errors import MalformedMessage
from streams.kafka.partition import Gap, Partition, Snapshot, Stamp
from streams.kafka.snapshot_records import MARKER, SnapshotReader, record_key
from streams.snapshots.codec import StateCodec, TooLarge
from streams.snapshots.values import Remembered
from tests.fakes.examples import tries


class Chain:
    """Hashes all that it has taken in: any message that is lost, repeated or out of order shows in what follows."""

    def __init__(self, key: str) -> None:
        self.digest = key.encode()
        self.is_closed = False

    def take(self, value: bytes) -> bytes:
        self.digest = hashlib.sha1(self.digest + value).digest()
        self.is_closed = value == b"close"
        return self.digest

    def shed(self) -> None:
        self.digest = hashlib.sha1(self.digest + b"shed").digest()


def schema(version: int) -> StateCodec:
    return StateCodec(version=version, plain={Chain: ("digest", "is_closed")}, made=())


CODEC = schema(1)


class FullNowAndThen(StateCodec):
    """To which such a share of states is too large."""

    def __init__(self, seed: int, share: float = 0.5) -> None:
        super().__init__(version=1, plain={Chain: ("digest", "is_closed")}, made=())
        self.share = share
        self._rng = random.Random(seed)

    def encode(self, state: object, remembered: Remembered | None = None) -> bytes:
        if isinstance(state, tuple) and isinstance(state[0], Chain) and self._rng.random() < self.share:
            raise TooLarge("for now")
        return super().encode(state, remembered)


@dataclass
class Log:
    """A partition of a topic."""

    topic: str
    messages: list[Message] = field(default_factory=list)

    def append(self, key: str, value: bytes, stamp: Stamp | None = None) -> None:
        headers = () if stamp is None else (stamp.header(),)
        self.messages.append(
            Message(topic=self.topic, key=key, partition=0, offset=len(self.messages), value=value, headers=headers)
        )


class Owner:
    """Somebody who works on a partition: reads, sends on, writes snapshots, and may stop anywhere in between."""

    def __init__(
        self,
        name: str,
        source: Log,
        out: Log,
        snapshots: list[tuple[bytes, bytes | None]],
        codec: StateCodec = CODEC,
    ) -> None:
        self.name, self.source, self.out, self.snapshots = name, source, out, snapshots
        self.partition: Partition[Chain] = Partition(source.topic, 0, Chain, codec)
        reader = SnapshotReader()
        for key, value in snapshots:
            reader.add(key, value)
        self.partition.restore(0, reader.of(source.topic, 0, 1))
        self.at = self.partition.next_offset
        self.unsent: list[tuple[str, bytes, Stamp]] = []

    def read(self) -> bool:
        """Take the next message in; what follows from it waits to be sent."""
        if self.at >= len(self.source.messages):
            if self.partition.next_offset == len(self.source.messages):
                return False
            self.at = self.partition.next_offset  # on Kafka the next message shows the gap, one a second at the least
        message = self.source.messages[self.at]
        self.at += 1
        state = self.partition.admit(message)
        if isinstance(state, Gap):
            self.at = state.wanted
        elif state is not None:
            result = state.operator.take(message.value)
            self.unsent.append((message.key, result, self.partition.stamp(message.key, state)))
            self.partition.done(message.key, state)
        return True

    def send(self) -> None:
        for key, value, stamp in self.unsent:
            self.out.append(key, value, stamp)
        self.unsent.clear()

    def snapshot(self, rng: random.Random, *, breaks_off: bool) -> None:
        """What came out before is sent first; the records may be broken off anywhere."""
        snapshot = self.partition.snapshot(self.name)
        if snapshot is None:
            return
        self.send()
        records = [*snapshot.records, *((key, None) for key in snapshot.superseded)]
        if breaks_off:
            records = records[: rng.randrange(len(records) + 1)]
        self.snapshots.extend(records)

    def wander(self, rng: random.Random) -> None:
        """Faust may deliver from an earlier offset, or leave messages out, when groups change."""
        self.at = max(0, self.at + rng.randint(-4, 3))


def compacted(records: list[tuple[bytes, bytes | None]], rng: random.Random) -> list[tuple[bytes, bytes | None]]:
    """Kafka removes earlier records of a key, sooner or later, and keeps the order."""
    last = {key: index for index, (key, _) in enumerate(records)}
    cut = rng.randrange(len(records) + 1)
    return [record for i, record in enumerate(records) if i >= cut or last[record[0]] == i]


def run(source: Log, rng: random.Random, n_kills: int, codec: StateCodec = CODEC) -> list[Message]:
    """Owners come and go until everything has been worked on; what stage two would take in."""
    out, snapshots = Log("out"), []
    owners = [Owner("0", source, out, snapshots, codec)]
    while True:
        owner = rng.choice(owners) if rng.random() < 0.2 else owners[-1]
        act = rng.random()
        if act < 0.7:
            is_over = not owner.read()
            if is_over and owner is owners[-1] and n_kills == 0:
                owner.send()
                break
        elif act < 0.8:
            owner.send()
        elif act < 0.9:
            owner.snapshot(rng, breaks_off=False)
        elif act < 0.95:
            owner.wander(rng)
        elif n_kills:
            n_kills -= 1
            if rng.random() < 0.6:
                owner.snapshot(rng, breaks_off=True)
                if owner in owners:
                    owners.remove(owner)  # killed; else it was only stopped, and wakes up
            snapshots[:] = compacted(snapshots, rng)
            owners.append(Owner(str(n_kills + 1), source, out, snapshots, codec))
            owners = owners[-3:]
    taker: Partition[Chain] = Partition("out", 0, Chain, CODEC)
    return [message for message in out.messages if taker_takes(taker, message)]


def taker_takes(taker: Partition[Chain], message: Message) -> bool:
    state = taker.admit(message)
    if state is None or isinstance(state, Gap):
        return False
    taker.done(message.key, state)
    return True


@pytest.mark.parametrize("is_full", [False, True], ids=["", "states too large"])
@pytest.mark.parametrize("seed", tries(20, deep=100))
def test_whoever_dies_or_wakes_up_stage_two_takes_each_output_once_and_in_order(seed: int, is_full: bool) -> None:
    """Also where states are too large to be written, as often as not."""
    rng = random.Random(seed)
    source = Log("calls")
    for number in range(300):
        source.append(rng.choice("abcd"), b"close" if rng.random() < 0.02 else str(number).encode())
    taken = run(source, rng, n_kills=8, codec=FullNowAndThen(seed) if is_full else CODEC)
    expected: dict[str, list[bytes]] = {}
    chains: dict[str, Chain] = {}
    for message in source.messages:
        chain = chains.setdefault(message.key, Chain(message.key))
        expected.setdefault(message.key, []).append(chain.take(message.value))
        if chain.is_closed:
            chain.shed()
    for key, results in expected.items():
        assert [m.value for m in taken if m.key == key] == results


def test_while_a_state_is_too_large_nothing_that_the_last_snapshot_names_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A key that has come again meanwhile is not removed with what it was before."""
    monkeypatch.setattr("streams.kafka.partition.REMEMBERED", 0)
    source, snapshots = Log("calls"), []
    codec = FullNowAndThen(0, share=0.0)
    owner = Owner("0", source, Log("out"), snapshots, codec)

    def take(*messages: tuple[str, bytes]) -> Snapshot:
        for key, value in messages:
            source.append(key, value)
            owner.read()
        snapshot = owner.partition.snapshot("0")
        assert snapshot is not None
        snapshots.extend([*snapshot.records, *((key, None) for key in snapshot.superseded)])
        return snapshot

    def restored() -> tuple[list[str], set[str], int]:
        partition, reader = Partition("calls", 0, Chain, CODEC), SnapshotReader()
        for key, value in snapshots:
            reader.add(key, value)
        reasons = partition.restore(0, reader.of("calls", 0, 1))
        return reasons, set(partition.keys), partition.next_offset

    assert take(("a", b"1"), ("big", b"2")).covered == 1
    codec.share = 1.0
    full = take(("a", b"close"), ("big", b"3"))
    assert (full.covered, full.superseded, [key for key, _ in full.too_large]) == (1, (), ["big"])
    assert restored() == ([], {"a", "big"}, 2)
    codec.share = 0.0
    assert take(("a", b"4"), ("big", b"5")).covered == 5
    assert restored() == ([], {"a", "big"}, 6)


def test_a_message_behind_a_gap_is_refused_and_one_of_before_is_skipped() -> None:
    log = Log("calls")
    for number in range(4):
        log.append("k", str(number).encode())
    partition: Partition[Chain] = Partition("calls", 0, Chain, CODEC)
    first = partition.admit(log.messages[0])
    assert first is not None
    assert partition.admit(log.messages[2]) == Gap(wanted=1)
    assert partition.admit(log.messages[0]) is None
    assert partition.repeats == 1


def test_a_snapshot_that_is_not_there_is_said_and_nothing_is_guessed() -> None:
    log, snapshots = Log("calls"), []
    log.append("a", b"1")
    log.append("b", b"2")
    owner = Owner("0", log, Log("out"), snapshots)
    owner.read()
    owner.read()
    owner.snapshot(random.Random(0), breaks_off=False)
    reader = SnapshotReader()
    for key, value in snapshots:
        if not key.endswith(b" a"):
            reader.add(key, value)
    partition: Partition[Chain] = Partition("calls", 0, Chain, CODEC)
    (reason,) = partition.restore(0, reader.of("calls", 0, 1))
    assert "lacks a" in reason
    # What is whole is right by itself: only the key that is lost is begun anew.
    assert [taker_takes(partition, message) for message in log.messages] == [True, False]
    assert {key: (state.is_begun_anew, state.covered) for key, state in partition.keys.items()} == {
        "a": (True, 0),
        "b": (False, 1),
    }


def test_only_the_keys_that_were_closed_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.kafka.partition.REMEMBERED", 2)
    log, snapshots = Log("calls"), []
    for key in "abc":
        log.append(key, b"close")
    log.append("d", b"1")
    owner = Owner("0", log, Log("out"), snapshots)
    while owner.read():
        pass
    assert list(owner.partition.keys) == ["b", "c", "d"]
    owner.snapshot(random.Random(0), breaks_off=False)
    log.append("b", b"2")
    log.append("d", b"close")
    again = Owner("1", log, Log("out"), snapshots)
    while again.read():
        pass
    assert set(again.partition.keys) == {"b", "c", "d"}


def test_large_snapshots_are_written_in_pieces() -> None:
    log, snapshots = Log("calls"), []
    log.append("a", b"1")
    owner = Owner("0", log, Log("out"), snapshots)
    owner.read()
    owner.partition.keys["a"].operator.digest = random.Random(0).randbytes(3_000_000)
    owner.snapshot(random.Random(0), breaks_off=False)
    assert max(len(value or b"") for _, value in snapshots) < 600_000
    again = Owner("1", log, Log("out"), snapshots)
    assert again.partition.keys["a"].operator.digest == owner.partition.keys["a"].operator.digest
    assert again.at == 1


@pytest.mark.parametrize(
    "header",
    [b"", b"7", b"7 0", b"x y s", b"-1 0 s", b"0 -1 s", b"1.5 0 s", b"\xff 0 s", b"9" * 5_000 + b" 0 s"],
)
def test_a_stamp_that_cannot_be_read_is_refused_and_the_partition_goes_on(header: bytes) -> None:
    log = Log("calls")
    log.append("k", b"0")
    bad = Message(topic="rounds", key="k", partition=0, offset=0, value=b"0", headers=(("output", header),))
    partition: Partition[Chain] = Partition("rounds", 0, Chain, CODEC)
    with pytest.raises(MalformedMessage, match="header 'output'"):
        partition.admit(bad)
    log.append("k", b"1", Stamp(stream="s", began=0, number=0))
    assert taker_takes(partition, log.messages[1])
    foreign: Partition[Chain] = Partition("calls", 0, Chain, CODEC, is_stamped=False)
    assert taker_takes(foreign, bad)


def whole(owner: str, covered: int, keys: dict[str, int], codec: StateCodec = CODEC) -> list[tuple[bytes, bytes]]:
    """The records of a snapshot as an owner writes them."""
    records = [
        (
            record_key("calls", 0, codec.version, owner, 0, key),
            f"{at} 1 ".encode() + codec.encode((Chain(key), 0, at, 0, {}, {}, [], False)),
        )
        for key, at in keys.items()
    ]
    marker = f"{covered} 1 ".encode() + codec.encode((covered, keys))
    return [*records, (record_key("calls", 0, codec.version, owner, 0, MARKER), marker)]


GARBAGE = [
    (b"", b"7 1 body"),
    (b"\xff\xfe", b"7 1 body"),
    (b"calls", b"7 1 body"),
    (b"calls zero 1.0 0 a", b"7 1 body"),
    (b"calls 0/1 1.0 first a", b"7 1 body"),
    (b"calls 0/1 x.1 0 a", b""),
    (b"calls 0/1 x.0 0 a", b"7"),
    (b"calls 0/1 x.0 0 a", b"x 1 body"),
    (b"calls 0/1 x.0 0 a", b"99 0 body"),
    (b"calls 0/1 x.0 0 a", b"99 1000000000000 body"),
    (b"calls 0/1 x.0 0 a", b"99 1 no snapshot"),
    (b"calls 0/1 x.0 0 \0partition", b"99 1 no snapshot"),
    (b"calls 0/1 y.0 0 \0partition", b"99 1 " + CODEC.encode("no marker")),
    (b"calls 0/1 z.0 0 \0partition", b"99 1 " + CODEC.encode((99, {"a": "x"}))),
    (b"calls 0/1 z.0 0 a", b"99 1 " + CODEC.encode(("no operator", 0, 99, 0, {}, {}, [], False))),
    (b"calls 0/1 z.1 0 a", b"99 1 " + CODEC.encode((Chain("a"), 0, 99, 0, {}, {"b": "nothing taken"}, [], False))),
    (b"calls 0/1 z.2 0 a", b"99 1 " + CODEC.encode((Chain("a"), 0, 99, 0, {}, {}, [], False))[:-9]),
]


@pytest.mark.parametrize("seed", range(5))
def test_records_that_are_no_snapshots_hide_none_that_are(seed: int) -> None:
    reader = SnapshotReader()
    records = [*GARBAGE, *whole("1.0", 5, {"a": 4, "b": 5})]
    random.Random(seed).shuffle(records)
    for key, value in records:
        reader.add(key, value)
    partition: Partition[Chain] = Partition("calls", 0, Chain, CODEC)
    partition.restore(0, reader.of("calls", 0, 1))
    assert partition.next_offset == 6
    assert {key: state.covered for key, state in partition.keys.items()} == {"a": 4, "b": 5}
    assert reader.strangers > 0


def test_workers_of_two_schema_versions_leave_each_other_s_snapshots_alone() -> None:
    """An upgrade that goes on, and one that is taken back: each version goes on where it was itself."""
    log, reader = Log("calls"), SnapshotReader()

    def worker(version: int, oldest: int = 0) -> tuple[Partition[Chain], list[str]]:
        made: Partition[Chain] = Partition("calls", 0, Chain, schema(version))
        return made, made.restore(oldest, reader.of("calls", 0, version))

    def keep(partition: Partition[Chain], owner: str) -> tuple[bytes, ...]:
        snapshot = partition.snapshot(owner)
        assert snapshot is not None
        for key, value in [*snapshot.records, *((key, None) for key in snapshot.superseded)]:
            reader.add(key, value)
        return snapshot.superseded

    for number in range(8):
        log.append("a", str(number).encode())
    old, _ = worker(1)
    assert [taker_takes(old, message) for message in log.messages[:5]] == [True] * 5
    keep(old, "old")
    new, reasons = worker(2)
    assert reasons == ["there are snapshots of other schema versions than 2 alone"]
    assert [taker_takes(new, message) for message in log.messages[:7]] == [True] * 7
    assert new.keys["a"].is_begun_anew
    assert keep(new, "new") == ()
    back, reasons = worker(1)
    assert (back.next_offset, reasons) == (5, [])
    assert [taker_takes(back, message) for message in log.messages[5:7]] == [True, True]
    assert back.keys["a"].operator.digest == new.keys["a"].operator.digest
    again, reasons = worker(2)
    assert (again.next_offset, reasons) == (7, [])
    # The first message that an old worker would need has expired: its snapshots are of no use to anybody.
    later, _ = worker(2, oldest=6)
    assert taker_takes(later, log.messages[7])
    assert {key.split()[1] for key in keep(later, "later")} == {b"0/2", b"0/1"}
    assert reader.of("calls", 0, 2).foreign == {}


def test_snapshots_of_before_there_were_versions_are_in_nobody_s_way() -> None:
    reader = SnapshotReader()
    reader.add(b"calls 0 1.0 0 a", b"4 1 a pickle")
    reader.add(b"calls 0 1.0 0 \0partition", b"4 1 a pickle")
    partition: Partition[Chain] = Partition("calls", 0, Chain, CODEC)
    assert partition.restore(2, reader.of("calls", 0, 1)) != []
    assert partition.next_offset == 2


def test_a_state_that_is_begun_anew_takes_a_sender_in_where_it_is() -> None:
    """The outputs before are not sent again: they were taken in, by the state that is lost."""
    taken, reader = [], SnapshotReader()
    reader.add(record_key("rounds", 0, 2, "old.0", 0, "j"), b"8 1 another schema")
    for found in (None, reader.of("rounds", 0, 1)):
        partition: Partition[Chain] = Partition("rounds", 0, Chain, CODEC)
        partition.restore(0, found)
        log = Log("rounds")
        for number in (7, 8, 8, 10):
            log.append("j", b"x", Stamp(stream="calls/c", began=4, number=number))
        taken.append([taker_takes(partition, message) for message in log.messages])
    assert taken == [[False] * 4, [True, True, False, False]]


def test_messages_that_change_no_key_move_the_partition_on() -> None:
    """Were they not covered, every worker after this one would set them aside again."""
    log = Log("calls")
    log.append("a", b"1")
    partition: Partition[Chain] = Partition("calls", 0, Chain, CODEC)
    partition.restore(0)
    assert partition.snapshot("0") is None
    partition.admit(log.messages[0])  # and not done: it was poison
    snapshot = partition.snapshot("0")
    assert snapshot is not None
    assert snapshot.covered == 0
    assert partition.snapshot("0") is None
    reader = SnapshotReader()
    for key, value in snapshot.records:
        reader.add(key, value)
    again: Partition[Chain] = Partition("calls", 0, Chain, CODEC)
    again.restore(0, reader.of("calls", 0, 1))
    assert (again.next_offset, again.keys, again.snapshot("1")) == (1, {}, None)
