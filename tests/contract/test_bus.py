"""The memory bus: what every bus promises, and when it forgets a message."""

import threading

import pytest

from pacehound.bus.memory import MemoryBus
from pacehound.errors import BusFull
from pacehound.model.topics import CALLS, FINDINGS
from tests.contract.bus_contract import BusContract, values


class TestMemoryBus(BusContract):
    @pytest.fixture
    def make_bus(self):
        return MemoryBus


def everything(consumer):
    return consumer.poll(1000)


def test_a_late_consumer_begins_with_the_next_message():
    bus = MemoryBus()
    early = bus.subscribe([CALLS])
    bus.publish(CALLS, "k", b"before")
    late = bus.subscribe([CALLS])
    bus.publish(CALLS, "k", b"after")
    assert values(everything(late)) == [b"after"]
    assert values(everything(early)) == [b"before", b"after"]


def test_a_full_bus_says_so_and_takes_more_once_everybody_has_committed():
    bus = MemoryBus(max_bytes=10)
    fast, slow = bus.subscribe([CALLS]), bus.subscribe([CALLS])
    bus.publish(CALLS, "k", b"12345")
    bus.publish(CALLS, "k", b"67890")
    with pytest.raises(BusFull, match="holds 10 of 10 bytes"):
        bus.publish(CALLS, "k", b"x")
    everything(fast)
    fast.commit()
    with pytest.raises(BusFull):
        bus.publish(CALLS, "k", b"x")
    assert values(everything(slow)) == [b"12345", b"67890"]
    with pytest.raises(BusFull):  # polled is not dealt with
        bus.publish(CALLS, "k", b"x")
    slow.commit()
    assert bus.held_bytes == 0
    bus.publish(CALLS, "k", b"x")
    assert values(everything(slow)) == [b"x"]


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
    everything(stays)
    stays.commit()
    assert bus.held_bytes == 1
    leaves.close()
    assert bus.held_bytes == 0
    bus.publish(CALLS, "k", b"2")
    assert values(everything(stays)) == [b"2"]
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
    everything(of_calls)
    of_calls.commit()
    assert everything(of_findings) == []
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


def test_a_waiting_poll_sleeps_on_where_others_are_told():
    bus = MemoryBus()
    reader = bus.subscribe([FINDINGS])
    bus.subscribe([CALLS])
    woken = []
    reader.arrived.notify = lambda: woken.append(True)
    bus.publish(CALLS, "k", b"1")
    assert woken == []
    bus.publish(FINDINGS, "k", b"1")
    assert woken == [True]


def test_who_is_woken_comes_back_without_a_message_also_where_that_was_before_he_slept():
    bus = MemoryBus()
    consumer = bus.subscribe([CALLS])
    consumer.wake()
    assert consumer.poll(1, timeout_s=60.0) == []
    reader = threading.Thread(target=lambda: consumer.poll(1, timeout_s=60.0))
    reader.start()
    consumer.wake()
    reader.join(timeout=10.0)
    assert not reader.is_alive()
