"""Slow links from what the kernel counts of TCP connections."""

from __future__ import annotations

from dataclasses import replace

from pacehound.model.events import HostVitals, SocketReading
from streams.slow.connections import ConnectionTracker

S = 1_000_000_000
MB = 1_000_000


def port(rank: int, peer: int) -> str:
    return f"10.0.0.{rank}:{40000 + peer}"


def tracker(
    rates: dict[tuple[int, int], float], quiet: dict[tuple[int, int], float] | None, lost: float = 0.0
) -> ConnectionTracker:
    """A ring of four hosts, each sending 40 MB a second at its rate (MB/s), read every 5 s; slow from 60 s on."""
    made = ConnectionTracker()
    totals: dict[tuple[int, int], tuple[int, int, int]] = dict.fromkeys(rates, (0, 0, 0))
    for second in range(0 if quiet else 60, 121, 5):
        for sender in {a for a, _ in rates}:
            readings = []
            for (a, b), (acked, busy_us, again) in totals.items():
                if sender not in (a, b):
                    continue
                peer = b if sender == a else a
                mine = (acked, busy_us, again) if sender == a else (1000, 10, 0)
                readings.append(
                    SocketReading(
                        rank=sender, pid=sender, local=port(sender, peer), remote=port(peer, sender),
                        acked_bytes=mine[0], busy_us=mine[1], retransmitted_bytes=mine[2],
                    )
                )  # fmt: skip
            vitals = HostVitals(job="j", attempt=0, time_ns=second * S, host=f"h{sender}", sockets=tuple(readings))
            made.on_vitals(vitals)
        for edge, (acked, busy_us, again) in totals.items():
            rate = (quiet if quiet and second < 60 else rates)[edge]
            sent = min(40 * MB, int(rate * MB)) * 5
            again += int(lost * sent) if rate < 100 else 0
            totals[edge] = (acked + sent, busy_us + int(sent / rate / MB * 1e6), again)
    return made


RING = {(0, 1): 1000.0, (1, 2): 1000.0, (2, 3): 1000.0, (3, 0): 1000.0}


def test_the_connection_that_is_always_busy_and_gets_little_through_is_the_link() -> None:
    found = tracker(RING | {(1, 2): 50.0}, RING).slow_links(range(4), 60 * S)
    assert [(c.link, c.is_strong) for c in found] == [((1, 2), True)]
    assert "rank 1 to rank 2" in found[0].connection.words


def test_without_an_earlier_reading_it_is_no_certainty() -> None:
    found = tracker(RING | {(1, 2): 50.0}, None).slow_links(range(4), 60 * S)
    assert [(c.link, c.is_strong) for c in found] == [((1, 2), False)]


def test_a_connection_that_always_was_slower_is_not_blamed() -> None:
    always = RING | {(1, 2): 50.0}
    assert tracker(always, always).slow_links(range(4), 60 * S) == []


def test_data_that_is_sent_again_is_told() -> None:
    (found,) = tracker(RING | {(1, 2): 30.0}, RING, lost=0.05).slow_links(range(4), 60 * S)
    assert found.is_strong
    assert "sent again" in found.connection.words


def test_healthy_connections_and_those_of_other_ranks_say_nothing() -> None:
    assert tracker(RING, RING).slow_links(range(4), 60 * S) == []
    assert tracker(RING | {(1, 2): 50.0}, RING).slow_links((0, 3), 60 * S) == []


def test_an_end_that_nobody_has_read_names_no_rank() -> None:
    made = ConnectionTracker()
    for second in (60, 65, 70):
        reading = SocketReading(
            rank=0, pid=1, local="a:1", remote="b:2", acked_bytes=second * MB, busy_us=second * 1_000_000
        )
        made.on_vitals(HostVitals(job="j", attempt=0, time_ns=second * S, host="h", sockets=(reading,)))
    assert made.slow_links(range(4), 60 * S) == []


Figures = dict[tuple[int, int, str], tuple[tuple[float, float, float], tuple[float, float, float]]]

# Two hosts with two ranks each; an all_reduce goes round the ring 0, 3, 2, 1, and from 60 s on the network of the first
# host lets 5 MB/s out. What is sent in 5 s, for how long of them it is busy and what the network delivers, in MB and s,
# before and after, as read of a real job of gloo: acknowledgements are waited for, so that each edge is busy and slow.
MEASURED: Figures = {
    (0, 3, "big"): ((47.2, 0.76, 10_136.0), (17.6, 3.44, 4.8)),
    (3, 2, "big"): ((47.2, 2.13, 16_370.0), (17.7, 0.29, 16_370.0)),
    (2, 1, "big"): ((47.2, 0.77, 10_136.0), (17.8, 2.31, 10_136.0)),
    (1, 0, "big"): ((47.3, 2.14, 18_709.0), (17.6, 2.55, 18_709.0)),
    (3, 0, "big"): ((0.09, 0.25, 0.0), (0.04, 2.94, 0.0)),
    (1, 0, "small"): ((0.53, 1.44, 80.0), (0.37, 1.18, 80.0)),
    (2, 1, "small"): ((0.54, 1.36, 80.0), (0.37, 1.20, 80.0)),
}


def read_each_5_s(connections: Figures, slow_from: int = 60) -> ConnectionTracker:
    """What hosts read of such connections."""
    made = ConnectionTracker()
    totals = dict.fromkeys(connections, (0.0, 0.0))
    for second in range(0, 121, 5):
        readings = {}
        for (a, b, name), figures in connections.items():
            for rank, peer in ((b, a), (a, b)):
                ends = (f"10.0.0.{rank // 2}:{name}{rank}{peer}", f"10.0.0.{peer // 2}:{name}{peer}{rank}")
                readings.setdefault((rank, peer, name), SocketReading(rank=rank, pid=1, local=ends[0], remote=ends[1]))
            acked, busy = totals[a, b, name]
            readings[a, b, name] = replace(
                readings[a, b, name],
                acked_bytes=int(acked * MB),
                busy_us=int(busy * 1e6),
                delivery_bytes_per_s=int(figures[second > slow_from][2] * MB),
            )
            now = figures[second >= slow_from]
            totals[a, b, name] = (acked + now[0], busy + now[1])
        vitals = HostVitals(job="j", attempt=0, time_ns=second * S, host="h", sockets=tuple(readings.values()))
        made.on_vitals(vitals)
    return made


def test_of_a_ring_that_waits_for_one_edge_only_that_edge_is_slow() -> None:
    found = read_each_5_s(MEASURED).slow_links(range(4), 60 * S)
    assert [(one.link, one.is_strong) for one in found] == [((0, 3), True)]
    assert "rank 0 to rank 3" in found[0].connection.words


def test_nobody_is_named_for_small_messages_that_wait_for_their_acknowledgement() -> None:
    # Since 5 s, with nothing before, the small connections are a hundredth as fast as the large ones.
    assert read_each_5_s(MEASURED, slow_from=1_000).slow_links(range(4), 5 * S) == []


def test_nobody_is_named_where_all_messages_are_small() -> None:
    # A ring of tiny all_reduces over two hosts, healthy: what their packets were delivered at says nothing of a link.
    tiny: Figures = {
        (0, 1, "tiny"): ((0.07, 0.02, 16_384.0),) * 2,
        (1, 2, "tiny"): ((0.07, 0.9, 16_384.0),) * 2,
        (2, 3, "tiny"): ((0.07, 0.02, 16_384.0),) * 2,
        (3, 0, "tiny"): ((0.07, 1.1, 482.7),) * 2,
    }
    assert read_each_5_s(tiny, slow_from=1_000).slow_links(range(4), 5 * S) == []


def test_two_ranks_of_one_host_have_no_network_between_them() -> None:
    healthy = {ends: (before, before) for ends, (before, _) in MEASURED.items()}
    crowded = (47.3, 4.9, 12.0)  # a copy within a host waits for its processors
    for ends, named in (((1, 0, "big"), []), ((2, 1, "big"), [(1, 2)])):
        found = read_each_5_s(healthy | {ends: (healthy[ends][0], crowded)}).slow_links(range(4), 60 * S)
        assert [one.link for one in found] == named
