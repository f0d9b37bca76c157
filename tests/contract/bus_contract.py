"""What every bus promises: order within a key, nothing lost or doubled, back-pressure instead of growth.

A bus takes part by a class of its own with the fixture `make_bus`: the memory bus in `tests/contract`, Kafka with a
real broker in `tests/integration`.
"""

import threading
from collections import defaultdict

from bench.rig.realjob import until
from pacehound.errors import BusFull, Unavailable
from pacehound.model.topics import CALLS, FINDINGS, HOSTS, partition_of

WITHIN_S = 60.0
MANY = 10_000


def values(messages):
    return [message.value for message in messages]


def put(bus, topic, key, value):
    """As whoever publishes does: again, when the bus is full."""

    def is_taken():
        try:
            bus.publish(topic, key, value)
        except BusFull:
            return False
        return True

    until("the bus takes it", is_taken, WITHIN_S, 0.001)


def fill(bus):
    """Publish five bytes at a time until the bus takes no more: what it took."""
    taken = []
    try:
        for i in range(MANY):
            bus.publish(CALLS, "k", b"%05d" % i)
            taken.append(b"%05d" % i)
    except BusFull:
        pass
    return taken


def polled(consumer, at_most, timeout_s):
    """As whoever reads does: again, while a topic that was made a moment ago is not known everywhere."""
    try:
        return consumer.poll(at_most, timeout_s)
    except Unavailable:
        return []


def read(consumer, n, at_a_time=1000):
    """The next `n` messages, and whatever comes with them: there must be none."""
    found = []

    def is_enough():
        taken = polled(consumer, at_a_time, 0.1)
        assert len(taken) <= at_a_time
        found.extend(taken)
        return len(found) >= n

    until(f"{n} messages", is_enough, WITHIN_S, 0.0)
    assert len(found) == n
    assert consumer.poll(at_a_time, 0.0) == []
    return found


class BusContract:
    """Run by each bus with its own `make_bus`, which takes the most bytes that may wait."""

    def test_messages_of_one_key_come_in_the_order_they_were_published(self, make_bus):
        bus = make_bus()
        consumer = bus.subscribe([CALLS])
        for i in range(200):
            bus.publish(CALLS, f"c{i % 7}", b"%d" % i)
        found = read(consumer, 200, at_a_time=13)
        for key in range(7):
            assert values(m for m in found if m.key == f"c{key}") == [b"%d" % i for i in range(key, 200, 7)]

    def test_a_message_says_where_it_stands_and_offsets_have_no_gap(self, make_bus):
        bus = make_bus()
        consumer = bus.subscribe([CALLS])
        for i in range(100):
            bus.publish(CALLS, f"c{i}", b"x")
        offsets = defaultdict(list)
        for message in read(consumer, 100):
            assert message.topic == "calls"
            assert message.partition == partition_of(message.key.encode(), CALLS.partitions)
            offsets[message.partition].append(message.offset)
        assert all(found == list(range(len(found))) for found in offsets.values())

    def test_a_consumer_gets_its_topics_alone_and_two_consumers_do_not_share(self, make_bus):
        bus = make_bus()
        of_calls, of_both = bus.subscribe([CALLS]), bus.subscribe([CALLS, FINDINGS])
        for topic, value in ((CALLS, b"1"), (FINDINGS, b"2"), (HOSTS, b"3"), (CALLS, b"4")):
            bus.publish(topic, "k", value)
        assert values(read(of_calls, 2)) == [b"1", b"4"]
        both = read(of_both, 3)  # two topics have no mutual order
        assert values(m for m in both if m.topic == "calls") == [b"1", b"4"]
        assert values(m for m in both if m.topic == "findings") == [b"2"]

    def test_a_full_bus_says_so_and_a_refused_message_leaves_no_gap(self, make_bus):
        bus = make_bus(max_bytes=100)
        consumer = bus.subscribe([CALLS])
        taken = fill(bus)
        assert 20 <= len(taken) < MANY
        found = read(consumer, len(taken))
        consumer.commit()
        put(bus, CALLS, "k", b"after")
        found += read(consumer, 1)
        assert values(found) == [*taken, b"after"]
        assert [message.offset for message in found] == list(range(len(taken) + 1))

    def test_many_threads_lose_and_double_nothing(self, make_bus):
        bus = make_bus(max_bytes=2_000)
        consumers = [bus.subscribe([CALLS]) for _ in range(2)]
        n_writers, n_messages = 4, 400
        found = [[], []]

        def write(writer):
            for i in range(n_messages):
                put(bus, CALLS, f"w{writer}", b"%d %d" % (writer, i))

        def consume(index):
            while len(found[index]) < n_writers * n_messages and not has_failed.is_set():
                found[index] += values(polled(consumers[index], 50, 0.05))
                consumers[index].commit()

        has_failed = threading.Event()
        writers = [threading.Thread(target=write, args=(w,)) for w in range(n_writers)]
        readers = [threading.Thread(target=consume, args=(i,)) for i in range(2)]
        for thread in writers + readers:
            thread.start()
        for thread in writers + readers:
            thread.join(timeout=WITHIN_S)
        has_failed.set()
        assert not any(thread.is_alive() for thread in writers + readers)
        for consumer, got in zip(consumers, found, strict=True):
            assert consumer.poll(50, 0.0) == []
            for writer in range(n_writers):
                mine = [v for v in got if v.startswith(b"%d " % writer)]
                assert mine == [b"%d %d" % (writer, i) for i in range(n_messages)]
