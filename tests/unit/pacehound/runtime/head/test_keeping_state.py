"""A head that was killed has left everything from which the next one goes on, or says why it cannot."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacehound.bus.memory import MemoryBus
from pacehound.clock import ManualClock
from pacehound.errors import InvalidInput
from pacehound.model.topics import CALLS, INCIDENTS
from pacehound.runtime.head.journal import Journal, read_journal
from pacehound.runtime.head.keeper import EVERY_S, FIRST_S, LONGEST_AWAY_S, SELDOM_S, WORTH_S, Keeper
from pacehound.runtime.head.state_file import StateFile, read_state
from tests.fakes.examples import examples


class Counter:
    """A pipeline that counts what each key was told."""

    def __init__(self):
        self.told = {}
        self.touched = set()

    def on(self, message):
        self.told[message.key] = self.told.get(message.key, 0) + 1
        self.touched.add(message.key)

    def changed(self, *, everything=False):
        written = {name: str(n).encode() for name, n in self.told.items() if everything or name in self.touched}
        self.touched.clear()
        return written, set(self.told)

    def take_back(self, parts):
        self.told = {name: int(content) for name, content in parts.items()}

    def open_incidents(self):
        return set()


class Head:
    """What of a head keeps its state: a bus, a journal, a pipeline."""

    def __init__(self, folder, clock):
        self.pipeline = Counter()
        self.worked_s, self.a_message_takes_s = 0.0, WORTH_S
        self.keeper = Keeper(self.pipeline, folder, clock, worked_s=lambda: self.worked_s)
        self.bus = MemoryBus(journal=self.keeper.journal)
        self.reader = self.bus.subscribe([CALLS])
        for message in self.keeper.again:
            self.bus.publish(CALLS, message.key, message.value, number=message.offset)
        self.work()

    def say(self, key):
        self.bus.publish(CALLS, key, key.encode())

    def work(self):
        for message in self.reader.poll(1_000):
            self.pipeline.on(message)
            self.worked_s += self.a_message_takes_s
            self.keeper.handled(message)
        self.reader.commit()

    def keep(self, stored=None):
        self.keeper.look(self.bus.position)
        self.keeper.write(self.bus.position if stored is None else stored)


@examples(16)
@given(st.lists(st.sampled_from(["a", "b", "c", "work", "keep", "kill", "full"]), max_size=40))
def test_whatever_comes_in_between_the_next_head_has_been_told_everything_once(tmp_path_factory, steps):
    folder, clock = tmp_path_factory.mktemp("state"), ManualClock(0)
    head, told = Head(folder, clock), {}
    for step in steps:
        clock.advance_s(EVERY_S)
        if step == "work":
            head.work()
        elif step == "keep":
            head.keep()
        elif step == "full":
            head.keep(stored=0)
        elif step == "kill":
            head = Head(folder, clock)
        else:
            head.say(step)
            told[step] = told.get(step, 0) + 1
    assert Head(folder, clock).pipeline.told == told


def test_a_state_is_written_only_when_the_store_has_what_was_concluded_before_it(tmp_path):
    clock = ManualClock(0)
    head = Head(tmp_path, clock)
    head.say("a")
    head.work()
    clock.advance_s(EVERY_S)
    head.keep(stored=0)
    assert read_state(tmp_path / "operators.state") is None
    head.keeper.write(head.bus.position)
    assert read_state(tmp_path / "operators.state").first == 1


@pytest.mark.parametrize(("reading_takes", "every_s"), [(1 / 1_000, SELDOM_S), (1 / 100, EVERY_S)])
def test_what_is_soon_read_again_is_kept_seldom(tmp_path, reading_takes, every_s):
    """A message a second, which takes such a share of what is worth keeping the state for."""
    clock = ManualClock(0)
    head = Head(tmp_path, clock)
    head.a_message_takes_s = reading_takes * WORTH_S
    kept_s = []
    for second in range(round(FIRST_S + SELDOM_S) + 1):
        head.say("a")
        head.work()
        if head.keeper.look(head.bus.position):
            kept_s.append(second)
        assert head.keeper.is_waiting == (second in kept_s)
        head.keeper.write(head.bus.position)
        clock.advance_s(1.0)
    assert kept_s == list(range(round(FIRST_S), round(FIRST_S + SELDOM_S) + 1, round(every_s)))


def test_what_has_not_changed_is_neither_encoded_nor_lost(tmp_path):
    clock = ManualClock(0)
    head = Head(tmp_path, clock)
    for key in ("a", "b", "a"):
        head.say(key)
        head.work()
        clock.advance_s(EVERY_S)
        head.keep()
    assert read_state(tmp_path / "operators.state").parts == {"a": b"2", "b": b"1"}
    assert len(list(tmp_path.glob("journal-*"))) == 1


def test_a_head_that_ends_in_order_leaves_nothing_to_go_on_from(tmp_path):
    head = Head(tmp_path, ManualClock(0))
    head.say("a")
    head.keeper.forget()
    assert not Keeper(Counter(), tmp_path, ManualClock(0)).has_found


def damaged(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def a_head_was_there(folder):
    """It was told something, and kept its state; the clock that the next one has."""
    clock = ManualClock(0)
    head = Head(folder, clock)
    head.say("a")
    head.work()
    clock.advance_s(EVERY_S)
    head.keep()
    return clock


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (damaged, "another checksum"),
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), "0 are there"),
        (lambda path: path.write_bytes(path.read_bytes()[:20]), "ends after 20 bytes"),
        (lambda path: path.write_bytes(b"PACEHOUND-STATE\x63\x00" + path.read_bytes()[17:]), "has format 99"),
        (lambda path: path.write_bytes(b"nonsense"), "is no state of a head"),
        (lambda path: [each.unlink() for each in path.parent.glob("journal-*")], "journal is missing"),
    ],
)
def test_a_state_that_cannot_be_read_is_refused_in_words_and_the_head_begins_anew(tmp_path, harm, said):
    clock = a_head_was_there(tmp_path)
    harm(tmp_path / "operators.state")
    keeper = Keeper(Counter(), tmp_path, clock)
    assert said in keeper.refused_why
    assert not keeper.has_found
    assert Head(tmp_path, clock).pipeline.told == {}


def test_a_state_that_our_own_fault_keeps_us_from_reading_is_met_once(tmp_path):
    class Faulty(Counter):
        def take_back(self, parts):
            raise KeyError("nobody has thought of this")

    clock = a_head_was_there(tmp_path)
    keeper = Keeper(Faulty(), tmp_path, clock)
    assert keeper.refused_why == "KeyError: 'nobody has thought of this'"
    assert not keeper.has_found
    assert Keeper(Faulty(), tmp_path, clock).refused_why == ""


def test_who_was_away_for_too_long_begins_anew(tmp_path):
    clock = ManualClock(0)
    head = Head(tmp_path, clock)
    head.say("a")
    away = ManualClock(head_written_ns(tmp_path) + int((LONGEST_AWAY_S + 1) * 1e9))
    assert "900 s at most" in Keeper(Counter(), tmp_path, away).refused_why


def head_written_ns(folder):
    return max(path.stat().st_mtime_ns for path in folder.glob("journal-*"))


def test_a_journal_with_a_gap_is_refused_and_a_torn_end_is_not(tmp_path):
    journal = Journal(tmp_path, 0)
    assert [journal.append("calls", "k", b"v"), journal.append(INCIDENTS.name, "k", b"v")] == [0, -1]
    journal.append("calls", "k", b"w")
    journal.close()
    (path,) = tmp_path.glob("journal-*")
    path.write_bytes(path.read_bytes()[:-1])
    assert [message.value for message in read_journal(tmp_path, 0)] == [b"v"]
    Journal(tmp_path, 3).close()
    with pytest.raises(InvalidInput, match="and 1 is missing"):
        list(read_journal(tmp_path, 0))


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path):
    file = StateFile(tmp_path / "s.state")
    file.write({"a": b"1"}, {"a"}, first=1, written_ns=5)
    (tmp_path / "s.new").mkdir()
    with pytest.raises(IsADirectoryError):
        file.write({"a": b"2"}, {"a"}, first=2, written_ns=6)
    assert read_state(tmp_path / "s.state").parts == {"a": b"1"}
