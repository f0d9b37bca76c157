"""Lets aiokafka ask the broker for messages of a partition soon after it has some of others.

It has one request at a time on its way to a broker, and asks in it for partitions alone of which it has nothing left to
read. While it reads what one partition has brought, a request for all the others waits at the broker for something to
come: for 1.5 s, says Faust (0.15), and so long the messages that follow in the first one wait, too. Of a job of 2,048
hosts, which all say at once that an iteration has ended, a third came with the first request.
"""

from __future__ import annotations

from typing import Any

import aiokafka

WAIT_MS = 100
"""For so long a request waits where nothing comes (chosen: ten of them a second cost a worker and its broker nearly
nothing, and nobody waits longer for his next messages)."""


class PromptConsumer(aiokafka.AIOKafkaConsumer):  # type: ignore[misc]
    """A consumer whose requests wait for `WAIT_MS`, whatever it is told."""

    def __init__(self, *topics: str, **options: Any) -> None:
        super().__init__(*topics, **{**options, "fetch_max_wait_ms": WAIT_MS})


def fetch_promptly() -> None:
    """Let every consumer that Faust makes in this process be such a one."""
    aiokafka.AIOKafkaConsumer = PromptConsumer
