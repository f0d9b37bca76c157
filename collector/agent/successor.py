"""Sends what earlier runs could not: an agent does it for those that sent where it sends, and `pacehound flush`.

Not a process that lingers after its run: whoever ends a job (a scheduler, a container) ends what lingers. What stands
on disk is still there for the next one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from collector.agent.background import ThreadTaskRunner
from collector.agent.delivery import Delivery, Outcome, Sender, deliver
from collector.agent.outbox import Outbox
from pacehound.runtime.unsent import Left, UnsentFolder, left_behind

logger = logging.getLogger("pacehound.agent")

_NO_LIMIT = 1 << 62
"""What is there is sent; nothing is added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flushed:
    """What became of one run's rest.

    Attributes
    ----------
    messages
        How many there were.
    unsent
        How many still wait.
    refused
        How many the receiver will never take.
    reason
        Why they wait.

    """

    left: Left
    messages: int
    unsent: int
    refused: int
    reason: str = ""


def flush(
    folder: UnsentFolder,
    sender: Sender,
    is_stopped: Callable[[], bool] = lambda: False,
    patience_s: float = float("inf"),
) -> Flushed:
    """Send what one folder holds and remove it; let it go when told to stop, or when nothing goes on for so long."""
    outbox = Outbox(folder.outbox if folder.outbox.exists() else None, _NO_LIMIT)
    tasks: ThreadTaskRunner[Outcome] = ThreadTaskRunner("flush", at_end=sender.close)
    delivery = Delivery(outbox, sender, tasks)
    messages = unsent = len(outbox)
    since_ns = time.monotonic_ns()

    def should_go_on(now_ns: int) -> bool:
        nonlocal unsent, since_ns
        if len(outbox) != unsent:
            unsent, since_ns = len(outbox), now_ns
        return not is_stopped() and now_ns - since_ns < patience_s * 1e9

    try:
        deliver(delivery, tasks.finished, should_go_on)
    finally:
        tasks.close(wait_s=1.0)
        outbox.close()
    if delivery.is_done:
        folder.remove()
    else:
        folder.release()
    return Flushed(
        left=folder.left,
        messages=messages,
        unsent=len(outbox),
        refused=delivery.counts.refused_messages + delivery.counts.rejected_records,
        reason=outbox.counts.last_file_error if outbox.was_damaged else delivery.receiver_said,
    )


class Successor:
    """Does it beside an agent, in a thread of its own, until the agent ends; the receiver may be away for as long.

    Parameters
    ----------
    goes_to
        The receiver's name, as in `Left`.
    open_sender
        Knows it.

    """

    def __init__(self, goes_to: str, open_sender: Callable[[], Sender]) -> None:
        self._goes_to = goes_to
        self._open_sender = open_sender
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, parent: Path) -> None:
        """Begin with what lies in `parent`."""
        self._thread = threading.Thread(target=self._work, args=(parent,), name="pacehound-successor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """What is not sent by now stays for the next one."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=2.0)

    def _work(self, parent: Path) -> None:
        try:
            for folder in left_behind(parent):
                if folder.left.goes_to != self._goes_to or self._stopped.is_set():
                    folder.release()
                    continue
                flushed = flush(folder, self._open_sender(), is_stopped=self._stopped.is_set)
                logger.info(
                    "of %d messages that job %s had left, %d wait and %d were refused",
                    flushed.messages,
                    flushed.left.job,
                    flushed.unsent,
                    flushed.refused,
                )
        except Exception:  # the run that is watched now must not suffer from an earlier one
            logger.exception("what earlier runs had left is not sent")
