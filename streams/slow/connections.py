"""Which link between two ranks is slow, from what the kernel counts of their TCP connections.

Where calls only tell that a communicator's transfers take longer (gloo's rings show no rates), the connection over
a slow link has data on its way nearly all of the time and gets few through, while its peers have long been served
and wait for it. Its rate is the bytes that were acknowledged over the time it was busy.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from pacehound.model.events import HostVitals
from pacehound.model.evidence.transfers import Connection
from streams.slow.thresholds import FAR_BELOW, MIN_BUSY, MIN_RETRANSMITTED, MIN_SENT_BYTES, STRONG_BUSY

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


@dataclass(frozen=True, slots=True)
class _Span:
    """What a connection did over a stretch of time."""

    sender: int
    receiver: int
    acked_bytes: int
    retransmitted_bytes: int
    busy: float
    bytes_per_s: float


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
            counted = _Counted(vitals.time_ns, reading.acked_bytes, reading.retransmitted_bytes, reading.busy_us)
            self._readings.setdefault(key, deque(maxlen=READINGS)).append(counted)
            self._owner[reading.local, reading.remote] = reading.rank

    def slow_links(self, members: Collection[int], since_ns: int) -> list[SlowConnection]:
        """Links among `members` whose connections stand apart since then, the slowest first."""
        spans = self._spans(since_ns, None, members)
        earlier = {(span.sender, span.receiver): span for span in self._spans(None, since_ns, members)}
        found: dict[tuple[int, int], tuple[float, SlowConnection]] = {}
        for span in spans:
            peers = [s.bytes_per_s for s in spans if {s.sender, s.receiver} != {span.sender, span.receiver}]
            before = earlier.get((span.sender, span.receiver))
            typical = statistics.median(peers) if peers else (before.bytes_per_s if before else 0.0)
            if not typical:
                continue
            share = span.bytes_per_s / typical
            lost = span.retransmitted_bytes / max(span.acked_bytes, 1)
            is_lossy = lost >= MIN_RETRANSMITTED and share < FAR_BELOW
            if span.busy < MIN_BUSY or share >= FAR_BELOW:
                continue
            if before is not None and before.bytes_per_s * FAR_BELOW < span.bytes_per_s:
                continue  # it was about as slow before: that is how this link is
            connection = Connection(
                sender=span.sender,
                receiver=span.receiver,
                busy_share=span.busy,
                bytes_per_s=span.bytes_per_s,
                peers_bytes_per_s=float(typical),
                resent_share=lost if is_lossy else None,
            )
            is_strong = before is not None and (span.busy >= STRONG_BUSY or is_lossy)
            link = (min(span.sender, span.receiver), max(span.sender, span.receiver))
            if link not in found or share < found[link][0]:
                found[link] = (share, SlowConnection(link, is_strong, connection))
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
                    acked_bytes=acked,
                    retransmitted_bytes=last.retransmitted_bytes - first.retransmitted_bytes,
                    busy=min(busy_us * 1e3 / max(last.time_ns - first.time_ns, 1), 1.0),
                    bytes_per_s=acked / (busy_us / 1e6),
                )
            )
        return spans
