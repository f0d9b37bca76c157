"""Messages that are in the log and were not brought: who has waited for them for too long.

A message that comes before its turn shows that others are missing. Of the last ones of a partition nothing does: where
a partition has no commit yet, Faust loses what it has read just when the group changes
(`AIOKafkaConsumer.seek_to_committed` leaves such a partition where it is), and what a broker takes in all at once after
an outage may be all that ever comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pacehound.bus import Place

AFTER_S = 10.0
"""So long nothing comes at all, though a partition has something (chosen: as long as hosts have to be heard of again
after the group has changed). While other messages come, those of a partition may just wait for their turn: with much to
catch up on for longer than anybody would choose."""


@dataclass(frozen=True, slots=True)
class _Wait:
    next_offset: int
    since_s: float


@dataclass(slots=True)
class Undelivered:
    """How long each partition has stood where it stands, though its log goes on.

    Examples
    --------
    >>> waits, place = Undelivered(), ("calls", 3)
    >>> waits.due({place: (7, 9)}, 0.0, came_s=0.0), waits.due({place: (7, 9)}, 10.0, came_s=0.0)
    ([], [('calls', 3)])
    >>> waits.due({place: (7, 9)}, 20.0, came_s=15.0), waits.due({place: (7, 9)}, 25.0, came_s=15.0)
    ([], [('calls', 3)])

    """

    _waits: dict[Place, _Wait] = field(default_factory=dict)

    def due(self, offsets: Mapping[Place, tuple[int, int | None]], now_s: float, came_s: float) -> list[Place]:
        """The partitions of which messages are to be asked for now; each of them once in ten seconds.

        Parameters
        ----------
        offsets
            By partition, the offset that comes next, and the one after the last message of the log, where it is known.
        now_s, came_s
            Of the monotonic clock: now, and when the last message came, of any partition.

        """
        waits, late = {}, []
        for place, (next_offset, end) in offsets.items():
            if end is None or next_offset >= end:
                continue
            wait = self._waits.get(place)
            if wait is None or wait.next_offset != next_offset:
                wait = _Wait(next_offset, now_s)
            elif now_s - max(wait.since_s, came_s) >= AFTER_S:
                late.append(place)
                wait = _Wait(next_offset, now_s)
            waits[place] = wait
        self._waits = waits
        return late
