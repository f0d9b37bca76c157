"""What every bus promises: order within a key, nothing lost until it is committed, back-pressure instead of growth.

A bus is added to `BUSES` with a factory; the same tests then run against it.
"""

import threading

import pytest

from pacehound.bus.memory import MemoryBus
from pacehound.errors import BusFull
from pacehound.model.topics import CALLS, FINDINGS, HOSTS, partition_of

BUSES = {"memory": MemoryBus}


@pytest.fixture(params=BUSES.values(), ids=BUSES)
def make_bus(request):
    return request.param


def values(messages):
    return [message.value for message in messages]


def drain(consumer, n=1000):
    taken = []
    while batch := consumer.poll(n):
        taken += batch
    return taken


def test_messages_of_one_key_come_in_the_order_they_were_published(make_bus):
    bus = make_bus()
    consumer = bus.subscribe([CALLS])
    for i in range(200):
        bus.publish(CALLS, f"c{i % 7}", b"%d" % i)
    read = drain(consumer, n=13)
    for key in range(7):
        assert values(m for m in read if m.key == f"c{key}") == [b"%d" % i for i in range(key, 200, 7)]


def test_a_message_says_where_it_stands_and_offsets_have_no_gap(make_bus):
    bus = make_bus()
    consumer = bus.subscribe([CALLS])
    for i in range(100):
        bus.publish(CALLS, f"c{i}", b"x")
    offsets = {}
    for message in drain(consumer):
        assert message.topic == "calls"
        assert message.partition == partition_of(message.key.encode(), CALLS.partitions)
        offsets.setdefault(message.partition, []).append(message.offset)
    assert all(found == list(range(len(found))) for found in offsets.values())


def test_a_consumer_gets_its_topics_alone_and_two_consumers_do_not_share(make_bus):
    bus = make_bus()
    of_calls, of_both = bus.subscribe([CALLS]), bus.subscribe([CALLS, FINDINGS])
    for topic, value in ((CALLS, b"1"), (FINDINGS, b"2"), (HOSTS, b"3"), (CALLS, b"4")):
        bus.publish(topic, "k", value)
    assert values(drain(of_calls)) == [b"1", b"4"]
    assert values(drain(of_both)) == [b"1", b"2", b"4"]
    assert drain(of_both) == []


def test_poll_returns_at_most_what_was_asked_for(make_bus):
    bus = make_bus()
    consumer = bus.subscribe([CALLS])
    for i in range(5):
        bus.publish(CALLS, "k", b"%d" % i)
    assert [values(consumer.poll(2)) for _ in range(4)] == [[b"0", b"1"], [b"2", b"3"], [b"4"], []]


def test_a_late_consumer_begins_with_the_next_message(make_bus):
    bus = make_bus()
    early = bus.subscribe([CALLS])
    bus.publish(CALLS, "k", b"before")
    late = bus.subscribe([CALLS])
    bus.publish(CALLS, "k", b"after")
    assert values(drain(late)) == [b"after"]
    assert values(drain(early)) == [b"before", b"after"]


def test_a_full_bus_says_so_and_takes_more_once_everybody_has_committed():
    bus = MemoryBus(max_bytes=10)
    fast, slow = bus.subscribe([CALLS]), bus.subscribe([CALLS])
    bus.publish(CALLS, "k", b"12345")
    bus.publish(CALLS, "k", b"67890")
    with pytest.raises(BusFull, match="holds 10 of 10 bytes"):
        bus.publish(CALLS, "k", b"x")
    drain(fast)
    fast.commit()
    with pytest.raises(BusFull):
        bus.publish(CALLS, "k", b"x")
    assert values(drain(slow)) == [b"12345", b"67890"]
    with pytest.raises(BusFull):  # polled is not dealt with
        bus.publish(CALLS, "k", b"x")
    slow.commit()
    assert bus.held_bytes == 0
    bus.publish(CALLS, "k", b"x")
    assert values(drain(slow)) == [b"x"]


def test_a_refused_message_leaves_no_gap():
    bus = MemoryBus(max_bytes=4)
    consumer = bus.subscribe([CALLS])
    bus.publish(CALLS, "k", b"1234")
    with pytest.raises(BusFull):
        bus.publish(CALLS, "k", b"5")
    drain(consumer)
    consumer.commit()
    bus.publish(CALLS, "k", b"6")
    (message,) = drain(consumer)
    assert (message.offset, message.value) == (1, b"6")


def test_a_topic_that_nobody_consumes_keeps_nothing():
    bus = MemoryBus(max_bytes=10)
    bus.subscribe([FINDINGS])
    for _ in range(100):
        bus.publish(CALLS, "k", b"1234567890")
    assert bus.held_bytes == 0


def test_a_consumer_that_leaves_holds_nothing_back():
    bus = MemoryBus()
    stays, leaves = bus.subscribe([CALLS]), bus.subscribe([CALLS])
    bus.publish(CALLS, "k", b"1")
    drain(stays)
    stays.commit()
    assert bus.held_bytes == 1
    leaves.close()
    assert bus.held_bytes == 0
    bus.publish(CALLS, "k", b"2")
    assert values(drain(stays)) == [b"2"]
    assert leaves.poll(1) == []


def test_when_the_last_consumer_has_left_nothing_is_kept():
    bus = MemoryBus(max_bytes=10)
    bus.subscribe([CALLS]).close()
    for _ in range(100):
        bus.publish(CALLS, "k", b"1234567890")
    assert bus.held_bytes == 0


def test_a_consumer_of_another_topic_holds_back_only_until_it_polls_and_commits():
    bus = MemoryBus()
    of_calls, of_findings = bus.subscribe([CALLS]), bus.subscribe([FINDINGS])
    bus.publish(CALLS, "k", b"1")
    drain(of_calls)
    of_calls.commit()
    assert drain(of_findings) == []
    of_findings.commit()
    assert bus.held_bytes == 0


def test_a_waiting_poll_is_woken_by_a_message():
    bus = MemoryBus()
    consumer = bus.subscribe([CALLS])
    found = []
    reader = threading.Thread(target=lambda: found.extend(consumer.poll(1, timeout_s=20.0)))
    reader.start()
    bus.publish(CALLS, "k", b"1")
    reader.join(timeout=10.0)
    assert not reader.is_alive()
    assert values(found) == [b"1"]


def test_many_threads_lose_and_double_nothing():
    bus = MemoryBus(max_bytes=2_000)
    consumers = [bus.subscribe([CALLS]) for _ in range(2)]
    n_writers, n_messages = 4, 400
    is_done = threading.Event()
    read = [[], []]

    def write(writer):
        for i in range(n_messages):
            while True:
                try:
                    bus.publish(CALLS, f"w{writer}", b"%d %d" % (writer, i))
                    break
                except BusFull:
                    is_done.wait(0.0005)

    def consume(index):
        while not is_done.is_set() or bus.held_bytes:
            taken = consumers[index].poll(50, timeout_s=0.05)
            read[index] += values(taken)
            consumers[index].commit()

    writers = [threading.Thread(target=write, args=(w,)) for w in range(n_writers)]
    readers = [threading.Thread(target=consume, args=(i,)) for i in range(2)]
    for thread in writers + readers:
        thread.start()
    for thread in writers:
        thread.join(timeout=30)
    is_done.set()
    for thread in readers:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in writers + readers)
    for found in read:
        for writer in range(n_writers):
            mine = [v for v in found if v.startswith(b"%d " % writer)]
            assert mine == [b"%d %d" % (writer, i) for i in range(n_messages)]
