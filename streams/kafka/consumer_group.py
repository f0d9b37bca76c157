"""Who belongs to the group of the workers, as far as one of them has to know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pacehound.bus import Place


class ConsumerGroup(Protocol):
    """The consumer group, as far as this worker sees it."""

    def assigned(self) -> list[Place]:
        """The partitions that are this worker's now."""
        ...

    def generation(self) -> int:
        """Another number each time the partitions were shared out anew."""
        ...

    def end(self, place: Place) -> int | None:
        """The offset after the last message of a partition, as far as anything is known of it."""
        ...

    async def seek(self, place: Place, offset: int) -> None:
        """Let the messages of a partition come from `offset` on."""
        ...

    async def commit(self, offsets: Mapping[Place, int]) -> bool:
        """Let whoever comes after begin there; whether that has worked, which it does not while the group changes."""
        ...
