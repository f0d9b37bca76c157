"""What the ranks' own process groups say that limits a hold: their smallest timeout, and how many ranks there are."""

from __future__ import annotations

import msgspec

from collector.calls import rings


class GroupLimits(msgspec.Struct):
    """By attempt; part of what an agent that starts again must know, for rings are read once."""

    timeouts_ms: dict[int, int] = {}
    world_sizes: dict[int, int] = {}

    def take(self, header: rings.RingHeader, records: rings.Records) -> None:
        """What a process has written."""
        groups = records[records.view(rings.CALL)["kind"] == rings.GROUP].view(rings.GROUP_BODY)
        for group in groups:
            timeout_ms, size = int(group["timeout_ms"]), int(group["world_size"])
            if timeout_ms > 0:
                self.timeouts_ms[header.attempt] = min(timeout_ms, self.timeouts_ms.get(header.attempt, timeout_ms))
            self.world_sizes[header.attempt] = max(size, self.world_sizes.get(header.attempt, 0))
