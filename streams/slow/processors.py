"""Which ranks get less of their host's processors than before, from what the scheduler counts of their threads.

Falcon (section 3.2) traced four of six slow computations to other work on the host, by a lower "CPU satisfaction
rate": of the time in which a job wants a processor, the share in which it has one. Here that comes from the kernel's
counts, rank by rank, and is asked for only when iterations are longer: it explains a growth, and never finds one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from pacehound.model.events import HostVitals
from pacehound.model.evidence.machines import Crowded, LacksProcessor
from streams.slow.thinned import Thinned
from streams.slow.thresholds import AWAITED_NS, CROWD_PATIENCE_NS, CROWD_WAIT, CROWDED, SATURATED

RECENT, OLDER, THINNED = 8, 12, 3
"""Readings kept of each host, one every five seconds: the last ones, and every third of those before (four minutes)."""


_RAN, _WAITED, _THROTTLED = range(3)
_COUNTS = struct.Struct("=3q")

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is kept of one reading.

    `counts` holds 64-bit numbers, three of each rank: what it ran, waited and was throttled, in ns. Of a large job
    tens of thousands of readings are kept, and few are ever looked at.
    """

    time_ns: int
    busy_ns: int
    stolen_ns: int
    n_processors: int
    ranks: tuple[int, ...]
    counts: bytes

    def __post_init__(self) -> None:
        if len(self.counts) != _COUNTS.size * len(self.ranks):
            raise ValueError(f"a reading of {len(self.ranks)} ranks has {len(self.counts)} bytes of counts")


@dataclass(frozen=True, slots=True)
class _Rates:
    """What a host and its ranks did per second of a stretch of time; arrays have one entry per rank."""

    satisfied: npt.NDArray[np.float64]
    waited: npt.NDArray[np.float64]
    throttled: npt.NDArray[np.float64]
    stolen: float  # of the time that the host wants
    taken: float  # of the time of all its processors


class ProcessorTracker:
    """The last readings of each host."""

    def __init__(self) -> None:
        self._hosts: dict[str, Thinned[_Reading]] = {}

    def on_vitals(self, vitals: HostVitals) -> None:
        """What a host has read of its processors."""
        readings = sorted(vitals.rank_processors, key=lambda reading: reading.rank)
        if not readings:
            return
        host = vitals.processors
        reading = _Reading(
            time_ns=vitals.time_ns,
            busy_ns=host.busy_ns if host else 0,
            stolen_ns=host.stolen_ns if host else 0,
            n_processors=host.count if host else 0,
            ranks=tuple(one.rank for one in readings),
            counts=b"".join(_COUNTS.pack(one.ran_ns, one.waited_ns, one.throttled_ns) for one in readings),
        )
        self._hosts.setdefault(vitals.host, Thinned(RECENT, OLDER, every=THINNED, n_gone=-1)).append(reading)

    def are_awaited(self, ranks: Iterable[int], since_ns: int, now_ns: int) -> bool:
        """Whether the host of one of some ranks reads its processors, and is soon to say what they did since then."""
        asked = frozenset(ranks)
        return now_ns - since_ns < AWAITED_NS and any(
            not asked.isdisjoint(readings.recent[-1].ranks)
            and sum(reading.time_ns >= since_ns for reading in readings.recent) < 2
            for readings in self._hosts.values()
        )

    def shortages(self, ranks: Iterable[int], since_ns: int, min_share: float) -> dict[int, LacksProcessor]:
        """Those of some ranks that get less of the processors since then, and why.

        A rank is named if it lacks the processor for `min_share` more of each second than before. Without two readings
        before `since_ns` and two since nothing is said.
        """
        asked = frozenset(ranks)
        found: dict[int, LacksProcessor] = {}
        for host in sorted(self._hosts):
            members = self._hosts[host].recent[-1].ranks
            if asked.isdisjoint(members):
                continue
            comparable = [reading for reading in self._hosts[host] if reading.ranks == members]
            before = _rates([reading for reading in comparable if reading.time_ns < since_ns])
            now = _rates([reading for reading in comparable if reading.time_ns >= since_ns])
            if before is None or now is None:
                continue
            for place, rank in enumerate(members):
                lacks = _shortage(rank, place, host, before, now, min_share) if rank in asked else None
                if lacks is not None:
                    found[rank] = lacks
        return found

    def lacked(self, ranks: Iterable[int]) -> dict[int, float] | None:
        """What share of each second some ranks have lacked the processor for since the start, where it is read.

        `None` where one of their hosts has been read only once, so that it is not known yet.
        """
        asked = frozenset(ranks)
        found: dict[int, float] = {}
        for readings in self._hosts.values():
            members = readings.recent[-1].ranks
            if asked.isdisjoint(members):
                continue
            rates = _rates([reading for reading in readings if reading.ranks == members])
            if rates is None:
                return None
            shares = np.maximum(rates.waited, rates.throttled) + rates.stolen
            found |= {rank: float(share) for rank, share in zip(members, shares, strict=True) if rank in asked}
        return found

    def crowd(
        self, ranks: Iterable[int], since_ns: int, min_share: float, *, is_apart: bool, now_ns: int
    ) -> tuple[Crowded, ...] | None:
        """Whether each of some ranks shares a host on which there is no processor for it, whoever is slow.

        That is where all processors are taken and all these ranks wait for one longer than they run and for `min_share`
        of each second, also if they did before; or where the hypervisor takes as much. Where nobody stands apart
        (`is_apart`) it takes less: they wait so long, or they wait at all and all is taken, for readings are seconds
        apart and other work comes and goes within them. One host stands for all of them. `None` while the readings
        that would tell are still to come.
        """
        asked = frozenset(ranks)
        if not asked or now_ns - since_ns >= CROWD_PATIENCE_NS:
            return ()
        crowded, covered = tuple[Crowded, ...](), frozenset[int]()
        for host, kept in sorted(self._hosts.items()):
            members = kept.recent[-1].ranks
            if asked.isdisjoint(members):
                continue
            readings = [reading for reading in kept.recent if reading.ranks == members]
            n_before = sum(reading.time_ns < since_ns for reading in readings)
            rates = _rates(readings[max(n_before - 1, 0) :])
            if rates is None:  # one at most since it began, or just before
                return None if now_ns - since_ns < AWAITED_NS else ()
            explains, is_full = rates.waited >= min_share, rates.taken >= SATURATED
            if is_apart:
                waits = explains & is_full & (rates.satisfied < CROWDED)
            else:
                waits = (explains | is_full) & (rates.waited >= CROWD_WAIT)
            lacks = waits | (rates.stolen >= min_share)
            if not lacks[np.isin(members, list(asked))].all():
                return ()
            covered |= asked.intersection(members)
            least, most = float(rates.satisfied.min()), float(rates.satisfied.max())
            crowded = (Crowded(host=host, least_share=least, most_share=most),)
        return crowded if covered == asked else ()


def _table(reading: _Reading) -> Int64Array:
    """Shape `(n_ranks, 3)`."""
    return np.frombuffer(reading.counts, np.int64).reshape(len(reading.ranks), 3)


def _rates(readings: Sequence[_Reading]) -> _Rates | None:
    """Between the first and the last of some readings; nothing where there are no two, or an agent began anew."""
    if len(readings) < 2:
        return None
    first, last = readings[0], readings[-1]
    counts = _table(last) - _table(first)
    stolen_ns, busy_ns = last.stolen_ns - first.stolen_ns, last.busy_ns - first.busy_ns
    took_ns = last.time_ns - first.time_ns
    if took_ns <= 0 or counts.min() < 0 or stolen_ns < 0 or busy_ns < 0:
        return None
    wanted_ns = counts[:, _RAN] + counts[:, _WAITED]
    return _Rates(
        satisfied=counts[:, _RAN] / np.maximum(wanted_ns, 1),
        waited=counts[:, _WAITED] / took_ns,
        throttled=counts[:, _THROTTLED] / took_ns,
        stolen=stolen_ns / max(busy_ns + stolen_ns, 1),
        taken=(busy_ns + stolen_ns) / (took_ns * max(last.n_processors, 1)),
    )


def _shortage(rank: int, place: int, host: str, before: _Rates, now: _Rates, min_share: float) -> LacksProcessor | None:
    """Why a rank lacks a processor, the most certain reason first; nothing where it does not."""
    lacks = partial(LacksProcessor, rank=rank, host=host)
    if now.throttled[place] - before.throttled[place] >= min_share:
        return lacks(cause="quota", now=float(now.throttled[place]), before=float(before.throttled[place]))
    if now.stolen - before.stolen >= min_share:
        return lacks(cause="hypervisor", now=float(now.stolen), before=float(before.stolen))
    if now.waited[place] - before.waited[place] >= min_share:
        return lacks(cause="other work", now=float(now.satisfied[place]), before=float(before.satisfied[place]))
    return None
