"""Which link between two ranks is slow, from what the kernel counts of their TCP connections.

Where calls only tell that a communicator's transfers take longer (gloo's rings show no rates), the connection over
a slow link has data on its way nearly all of the time and gets few through, while its peers have long been served
and wait for it.

Not every connection that is busy and slow holds anything up. Small messages wait for their acknowledgement, up to 40 ms
of it, also on a link that does nothing else: only connections that carry as much as others do are looked at, and where
the kernel says what rate the network delivered, only those that are busy because of it. And of a ring each edge is busy
for longer while it waits for the slow one: what was delivered tells them apart. Two ends with one address have no
network between them.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from pacehound.model.events import HostVitals
from pacehound.model.evidence.transfers import Connection
from streams.slow.thresholds import (
    FAR_BELOW,
    MIN_BUSY,
    MIN_OF_LARGEST,
    MIN_RETRANSMITTED,
    MIN_SENT_BYTES,
    STRONG_BUSY,
    WAITS_FOR_NO_RATE,
)

READINGS = 32
"""Of each connection; one every few seconds."""

MAX_CONNECTIONS = 8_192
"""What comes after so many is not followed: it is for jobs whose calls run over TCP, and those are small."""


@dataclass(frozen=True, slots=True)
class SlowConnection:
    """A link whose connection stands apart; `is_strong` where it was not so before."""

    link: tuple[int, int]
    is_strong: bool
    connection: Connection


@dataclass(frozen=True, slots=True)
class _Counted:
    """What is kept of one reading."""

    time_ns: int
    acked_bytes: int
    retransmitted_bytes: int
    busy_us: int
    delivery_bytes_per_s: int


@dataclass(frozen=True, slots=True)
class _Span:
    """What a connection did over a stretch of time.

    Attributes
    ----------
    busy
        Share of the time in which it had data on its way or waiting.
    got_through_bytes_per_s
        What was acknowledged over the time it was busy.
    delivery_bytes_per_s
        What the kernel saw the network deliver, the median of its readings; 0 where it does not say.

    """

    sender: int
    receiver: int
    local: str
    remote: str
    acked_bytes: int
    retransmitted_bytes: int
    busy: float
    got_through_bytes_per_s: float
    delivery_bytes_per_s: float

    @property
    def link(self) -> tuple[int, int]:
        """Its ends, the lower rank first."""
        return min(self.sender, self.receiver), max(self.sender, self.receiver)

    @property
    def has_network(self) -> bool:
        """Its ends have addresses of their own."""
        return self.local.rpartition(":")[0] != self.remote.rpartition(":")[0]

    @property
    def resent_share(self) -> float | None:
        """Of what it sent, what was sent again, where that is much."""
        share = self.retransmitted_bytes / max(self.acked_bytes, 1)
        return share if share >= MIN_RETRANSMITTED else None

    @property
    def waits_for_network(self) -> bool:
        """What keeps it busy is the rate of its network, or its losses, as far as the kernel says what it delivers."""
        most = WAITS_FOR_NO_RATE * self.got_through_bytes_per_s
        return self.resent_share is not None or self.delivery_bytes_per_s <= most


class ConnectionTracker:
    """The last readings of each connection."""

    def __init__(self) -> None:
        self._readings: dict[tuple[int, str, str], deque[_Counted]] = {}
        self._owner: dict[tuple[str, str], int] = {}

    def on_vitals(self, vitals: HostVitals) -> None:
        """What a host has read of its connections."""
        for reading in vitals.sockets:
            key = (reading.rank, reading.local, reading.remote)
            if key not in self._readings and len(self._readings) >= MAX_CONNECTIONS:
                continue
            counted = _Counted(
                vitals.time_ns,
                reading.acked_bytes,
                reading.retransmitted_bytes,
                reading.busy_us,
                reading.delivery_bytes_per_s,
            )
            self._readings.setdefault(key, deque(maxlen=READINGS)).append(counted)
            self._owner[reading.local, reading.remote] = reading.rank

    def slow_links(self, members: Collection[int], since_ns: int) -> list[SlowConnection]:
        """Links among `members` whose connections stand apart since then, the slowest first."""
        spans = _large(self._spans(since_ns, None, members))
        earlier = {(span.local, span.remote): span for span in self._spans(None, since_ns, members)}
        found: dict[tuple[int, int], tuple[float, SlowConnection]] = {}
        for span in spans:
            if span.busy < MIN_BUSY or not span.has_network or not span.waits_for_network:
                continue
            before = earlier.get((span.local, span.remote))
            if before is not None and before.got_through_bytes_per_s * FAR_BELOW < span.got_through_bytes_per_s:
                continue  # it was about as slow before: that is how this link is
            others = [peer for peer in spans if peer.link != span.link] or ([] if before is None else [before])
            if not others:
                continue
            rate, typical = _rate_and_typical(span, others)
            if rate >= FAR_BELOW * typical:
                continue
            share = rate / typical
            connection = Connection(
                sender=span.sender,
                receiver=span.receiver,
                busy_share=span.busy,
                bytes_per_s=rate,
                peers_bytes_per_s=typical,
                resent_share=span.resent_share,
            )
            is_strong = before is not None and (span.busy >= STRONG_BUSY or span.resent_share is not None)
            if span.link not in found or share < found[span.link][0]:
                found[span.link] = (share, SlowConnection(span.link, is_strong, connection))
        return [connection for _, connection in sorted(found.values(), key=lambda item: (item[0], item[1].link))]

    def _spans(self, since_ns: int | None, until_ns: int | None, members: Collection[int]) -> list[_Span]:
        spans = []
        for (rank, local, remote), readings in sorted(self._readings.items()):
            peer = self._owner.get((remote, local))
            if rank not in members or peer is None or peer == rank or peer not in members:
                continue
            chosen = [
                counted
                for counted in readings
                if (since_ns is None or counted.time_ns >= since_ns)
                and (until_ns is None or counted.time_ns < until_ns)
            ]
            if len(chosen) < 2:
                continue
            first, last = chosen[0], chosen[-1]
            acked = last.acked_bytes - first.acked_bytes
            busy_us = last.busy_us - first.busy_us
            if acked < MIN_SENT_BYTES or busy_us <= 0:
                continue
            spans.append(
                _Span(
                    sender=rank,
                    receiver=peer,
                    local=local,
                    remote=remote,
                    acked_bytes=acked,
                    retransmitted_bytes=last.retransmitted_bytes - first.retransmitted_bytes,
                    busy=min(busy_us * 1e3 / max(last.time_ns - first.time_ns, 1), 1.0),
                    got_through_bytes_per_s=acked / (busy_us / 1e6),
                    delivery_bytes_per_s=float(statistics.median(one.delivery_bytes_per_s for one in chosen[1:])),
                )
            )
        return spans


def _large(spans: list[_Span]) -> list[_Span]:
    """Those that carry enough of what their ranks send to hold it up."""
    largest = max((span.acked_bytes for span in spans), default=0)
    return [span for span in spans if span.acked_bytes >= MIN_OF_LARGEST * largest]


def _rate_and_typical(span: _Span, others: list[_Span]) -> tuple[float, float]:
    """How fast a connection is and how fast others are: as the network delivered, where all of them say it."""
    delivered = [one.delivery_bytes_per_s for one in others]
    if min(span.delivery_bytes_per_s, *delivered) > 0:
        return span.delivery_bytes_per_s, statistics.median(delivered)
    return span.got_through_bytes_per_s, statistics.median(one.got_through_bytes_per_s for one in others)
