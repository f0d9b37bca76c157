"""Messages that a worker lacks: it goes back to where they stand in the log, and asks again until they have come."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pacehound.bus import Place
from pacehound.clock import Clock
from pacehound.errors import Unavailable
from pacehound.runtime.metric_names import MISSING
from pacehound.runtime.telemetry import Telemetry
from streams.kafka.consumer_group import ConsumerGroup
from streams.kafka.partition import Partition
from streams.kafka.undelivered import Undelivered

logger = logging.getLogger("pacehound.streams")

ASKED_AGAIN_AFTER_S = 2.0
"""The group may change while it goes back; there may be nothing to go back to; and nothing new may come."""
NOT_RESTORED = -1
"""For the offset that comes next in a partition of which no message has come to this worker yet."""


@dataclass(slots=True)
class _Seeking:
    wanted: int
    asked_s: float


class GoingBack:
    """Of one worker.

    Parameters
    ----------
    group
        Who lets messages come from an offset on.
    partitions
        Those that are this worker's: it is asked for them as they are then.
    first_offset_from
        The offset of the first message of a partition from one on; nothing where there is none yet. `Unavailable`: the
        broker does not answer.
    telemetry, clock
        What counts, and what tells the time.

    """

    def __init__(
        self,
        group: ConsumerGroup,
        partitions: Mapping[Place, Partition[Any]],
        first_offset_from: Callable[[Place, int], Awaitable[int | None]],
        telemetry: Telemetry,
        clock: Clock,
    ) -> None:
        self._group, self._partitions = group, partitions
        self._first_offset_from = first_offset_from
        self._telemetry, self._clock = telemetry, clock
        self._seeking: dict[Place, _Seeking] = {}
        self._undelivered = Undelivered()

    def has_come(self, place: Place) -> None:
        """What was wanted of a partition is there, or the partition is somebody else's."""
        self._seeking.pop(place, None)

    async def to(self, place: Place, wanted: int, *, came: int) -> None:
        """Messages before the one that `came` have not been delivered: ask for them."""
        seeking = self._seeking.get(place)
        if seeking is not None and seeking.wanted == wanted:
            return  # asked for already
        self._seeking[place] = _Seeking(wanted, self._clock.monotonic_s())
        logger.info("%s/%d: %d came, %d was wanted: going back", *place, came, wanted)
        await self._group.seek(place, wanted)

    def listen_anew(self) -> None:
        """It may have been us who did not hear."""
        self._undelivered = Undelivered()

    def late(self, came_s: float) -> list[Place]:
        """Partitions of which messages are there and do not come, while nothing else does: no later one tells of a gap.

        `came_s` is when the last message came, of any partition.
        """
        return self._undelivered.due(self._offsets(), self._clock.monotonic_s(), came_s)

    def ask_for(self, late: Iterable[Place]) -> None:
        """Go back in these the next time that is asked again (`ask_again`)."""
        offsets = self._offsets()
        for place in late:
            wanted, end = offsets.get(place, (NOT_RESTORED, None))
            if wanted != NOT_RESTORED and end is not None and wanted < end and place not in self._seeking:
                logger.warning("%s/%d: nothing comes though the log ends at %d: going back to %d", *place, end, wanted)
                self._seeking[place] = _Seeking(wanted, self._clock.monotonic_s() - ASKED_AGAIN_AFTER_S)

    def _offsets(self) -> dict[Place, tuple[int, int | None]]:
        """Of each partition of ours which offset comes next, and where its log ends."""
        offsets = {}
        for place in self._group.assigned():
            partition = self._partitions.get(place)
            offsets[place] = (NOT_RESTORED if partition is None else partition.next_offset, self._group.end(place))
        return offsets

    async def ask_again(self) -> None:
        """Go back once more where that has led to nothing: to the first message that is there."""
        ours = self._group.assigned()
        for place, seeking in list(self._seeking.items()):
            if self._seeking.get(place) is not seeking:
                continue  # what was wanted has come, or is another one, while others were asked about
            partition = self._partitions.get(place)
            if place not in ours or partition is None or partition.next_offset != seeking.wanted:
                del self._seeking[place]
                continue
            now_s = self._clock.monotonic_s()
            if now_s - seeking.asked_s < ASKED_AGAIN_AFTER_S:
                continue
            seeking.asked_s = now_s
            try:
                there = await self._first_offset_from(place, seeking.wanted)
            except Unavailable as error:
                logger.warning("%s/%d: what stands at %d is not known: %s", *place, seeking.wanted, error)
                continue
            if partition.next_offset != seeking.wanted:
                continue  # it has come meanwhile
            if there is not None and there > seeking.wanted:
                # The end of somebody's transaction, or what has expired: nobody can have it any more.
                logger.error("%s/%d: there are no messages %d to %d", *place, seeking.wanted, there - 1)
                self._telemetry.add(MISSING, there - seeking.wanted, topic=place[0])
                partition.next_offset = seeking.wanted = there
            await self._group.seek(place, seeking.wanted)
            if there is None:  # yet: whoever waits for it then is noticed
                self._seeking.pop(place, None)
