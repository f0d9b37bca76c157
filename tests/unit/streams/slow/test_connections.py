"""Slow links from what the kernel counts of TCP connections."""

from __future__ import annotations

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
