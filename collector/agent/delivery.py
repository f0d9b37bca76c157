"""Sends what the outbox holds, in a thread of its own, so that a receiver that is slow or away delays nothing else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from collector.agent.background import TaskRunner
from collector.agent.outbox import Outbox
from pacehound.bus.otlp import SendResult
from pacehound.errors import BusFull, RejectedMessage, Unavailable
from pacehound.runtime.backoff import Backoff

logger = logging.getLogger("pacehound.agent")

FIRST_RETRY_S, LONGEST_RETRY_S = 0.2, 5.0
REQUEST_BYTES = 2 * 1024 * 1024


class Sender(Protocol):
    """Something that takes encoded messages, as `pacehound.bus.otlp.OtlpProducer` does."""

    def send(self, messages: Sequence[bytes]) -> SendResult:
        """Send them in order; errors as in `OtlpProducer.send`."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one request went.

    Attributes
    ----------
    last
        The number of its last message in the outbox.
    messages
        How many it carried.
    result
        `taken`, `away` (try again later) or `refused` (never).

    """

    last: int
    messages: int
    result: Literal["taken", "away", "refused"]
    rejected: int = 0
    retry_after_s: float | None = None
    reason: str = ""


def attempt(sender: Sender, last: int, messages: Sequence[bytes]) -> Outcome:
    """Send once, and say how it went; raises nothing."""
    result: Literal["away", "refused"] = "away"
    retry_after_s = None
    try:
        receipt = sender.send(messages)
    except RejectedMessage as error:
        result, reason = "refused", str(error)
    except BusFull as error:
        reason, retry_after_s = str(error), error.retry_after_s
    except Unavailable as error:
        reason = str(error)
    except Exception as error:  # whatever a library raises: the messages wait
        reason = f"{type(error).__name__}: {error}"
    else:
        return Outcome(
            last=last, messages=len(messages), result="taken", rejected=receipt.rejected, reason=receipt.message
        )
    return Outcome(last=last, messages=len(messages), result=result, reason=reason, retry_after_s=retry_after_s)


@dataclass(slots=True)
class DeliveryCounts:
    """What did not go the ordinary way, since this process started."""

    taken_messages: int = 0
    refused_messages: int = 0
    rejected_records: int = 0


class Delivery:
    """Takes messages from the outbox to the receiver (a head node, Kafka), in order, one request at a time.

    Parameters
    ----------
    outbox
        Where they wait until the receiver has acknowledged them.
    sender
        Knows the receiver.
    tasks
        Where it sends.

    Attributes
    ----------
    receiver_said
        Why the last request did not get through; empty when it did.

    """

    def __init__(self, outbox: Outbox, sender: Sender, tasks: TaskRunner[Outcome]) -> None:
        self.counts = DeliveryCounts()
        self._outbox = outbox
        self._sender = sender
        self._tasks = tasks
        self._backoff = Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
        self._not_before_ns = 0
        self._singly_to = 0
        self._again_to = 0
        self.receiver_said = ""
        self._reasons: set[str] = set()

    @property
    def is_done(self) -> bool:
        """Whether nothing waits any more."""
        return len(self._outbox) == 0

    @property
    def is_all_under_way(self) -> bool:
        """Whether nothing waits but for the answer to a request."""
        return self._outbox.is_all_taken

    def step(self, now_ns: int) -> None:
        """Hear how the last request went, and send the next one when it may go; never waits."""
        for outcome in self._tasks.results():
            self._conclude(outcome, now_ns)
        if self._tasks.is_idle() and len(self._outbox) and now_ns >= self._not_before_ns:
            last, messages = self._outbox.take(1 if self._singly_to else REQUEST_BYTES, self._again_to)
            self._tasks.run(lambda: attempt(self._sender, last, messages))

    def _conclude(self, outcome: Outcome, now_ns: int) -> None:
        self._again_to = outcome.last if outcome.result == "away" else 0
        if outcome.result == "away":
            self._outbox.release()
            # As long as the receiver asked for, if that is longer.
            self._not_before_ns = now_ns + round(max(self._backoff.next_s(), outcome.retry_after_s or 0.0) * 1e9)
            if not self.receiver_said:
                logger.warning("the receiver does not take messages, they wait: %s", outcome.reason)
            self.receiver_said = outcome.reason or "it gives no reason"
            return
        if self.receiver_said:
            logger.info("the receiver takes messages again")
            self.receiver_said = ""
        self._backoff.reset()
        self._not_before_ns = 0
        if outcome.result == "refused" and outcome.messages > 1:
            # One of them is wrong, or all together are too large: find out which.
            self._singly_to = outcome.last
            self._outbox.release()
            return
        if outcome.result == "refused":
            self.counts.refused_messages += 1
            self._say_once("a message was refused for good and is dropped", outcome.reason)
        if outcome.rejected:
            self.counts.rejected_records += outcome.rejected
            self._say_once("the receiver has rejected records", outcome.reason)
        if outcome.result == "taken":
            self.counts.taken_messages += outcome.messages
        self._outbox.acknowledge(outcome.last)
        if outcome.last >= self._singly_to:
            self._singly_to = 0

    def _say_once(self, what: str, reason: str) -> None:
        if reason not in self._reasons and len(self._reasons) < 20:
            self._reasons.add(reason)
            logger.warning("%s: %s", what, reason)


def deliver(delivery: Delivery, answered: threading.Event, should_go_on: Callable[[int], bool]) -> None:
    """Send until nothing waits any more, or `should_go_on` (given the monotonic time) says no; blocks.

    `answered` is set whenever a request has ended.
    """
    while not delivery.is_done and should_go_on(now_ns := time.monotonic_ns()):
        answered.clear()
        delivery.step(now_ns)
        answered.wait(0.05)
