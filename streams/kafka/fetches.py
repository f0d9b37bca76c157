"""How a worker asks the broker for messages: soon after others have come, and for little of each partition.

aiokafka has one request at a time on its way to a broker, and asks in it for partitions alone of which it has nothing
left to read. While it reads what one partition has brought, a request for all the others waits at the broker for
something to come: for 1.5 s, says Faust (0.15), and so long the messages that follow in the first one wait, too. Of a
job of 2,048 hosts, which all say at once that an iteration has ended, a third came with the first request.

What comes with a request is read to its end before the next is. Where a worker is behind, a partition that brings all
it has would be read to its end, too, before others are begun: but the shards of a large job lie on many partitions, and
stage two keeps what has come of some until it has come of all.
"""

from __future__ import annotations

from typing import Any

import aiokafka

WAIT_MS = 100
"""For so long a request waits where nothing comes (chosen: ten of them a second cost a worker and its broker nearly
nothing, and nobody waits longer for his next messages)."""

PARTITION_BYTES = 256 * 1024
"""So much of a partition comes with a request, or the one batch that is larger: four full batches of an agent before
compression (chosen on a backlog of 4,096 ranks, docs/adr/0039-a-backlog-in-step.md)."""


class PromptConsumer(aiokafka.AIOKafkaConsumer):  # type: ignore[misc]
    """A consumer whose requests wait for `WAIT_MS`, whatever it is told."""

    def __init__(self, *topics: str, **options: Any) -> None:
        super().__init__(*topics, **{**options, "fetch_max_wait_ms": WAIT_MS})


def fetch_promptly() -> None:
    """Let every consumer that Faust makes in this process be such a one."""
    aiokafka.AIOKafkaConsumer = PromptConsumer
