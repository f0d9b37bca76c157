"""Keeps the state of a head's operators, so that the next head on the same store goes on where this one was killed.

Every so often the state is encoded between two messages. It is written once everything that was concluded before is in
the store: what a state covers is never concluded again. What came after it stands in the journal and is read again by
the next head, which concludes the same from it, with the same ids (docs/adr/0024-a-head-goes-on.md).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pacehound.bus import Message
from pacehound.clock import Clock
from pacehound.errors import InvalidInput, PacehoundError
from pacehound.runtime.head.journal import Journal, last_written_ns, read_journal, remove_journal, what_can_be_read
from pacehound.runtime.head.parts import Keepable
from pacehound.runtime.head.state_file import StateFile, read_state

logger = logging.getLogger(__name__)

FIRST_S, EVERY_S, SELDOM_S = 10.0, 120.0, 600.0
"""What came within this is read again by the next head. What waits to be stored is written with it, ten inserts however
few rows there are (docs/adr/0037-fewer-flushes-of-a-quiet-job.md)."""
WORTH_S = 3.0
"""Processor time that reading again takes at least, or the state is written after `SELDOM_S` (chosen: who starts a head
again waits for that; a job whose steps take 100 ms asks 1.7 s in ten minutes)."""
MOST_SHARE = 0.02
"""Of its time that the pipeline's thread spends on writing its state: larger ones are written seldomer."""
LONGEST_AWAY_S = 900.0
"""Who was away for longer begins anew: agents have gone, and what is still open would be called silent since then."""
FOLDER = "state"


@dataclass(slots=True)
class _Pending:
    changed: dict[str, bytes] = field(repr=False)
    names: set[str] = field(repr=False)
    first: int
    stored_from: int  # the position on the bus from which on the store may still be behind


class Keeper:
    """The journal and the state of one head; all but `journal` belongs to the thread of the pipeline.

    Parameters
    ----------
    pipeline
        Whose state it is.
    folder
        Its own; made where it is not there.
    clock
        The time.
    store
        Writes messages that a former head had been told where there is nothing to go on from: who sent them has been
        answered.
    worked_s
        The processor time of the thread that asks.

    Attributes
    ----------
    journal
        Has what comes.
    again
        What a former head had been told and its state does not cover: to be put on the bus before anything else.
    has_found
        There was something to go on from.
    refused_why
        Why there is nothing to go on from, although a former head had left something; empty otherwise.

    """

    def __init__(
        self,
        pipeline: Keepable,
        folder: Path,
        clock: Clock,
        store: Callable[[Iterable[Message]], None] = lambda messages: None,
        worked_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._worked_s = worked_s
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "operators.state"
        self._file = StateFile(self._path)
        self.again: list[Message] = []
        self.refused_why = ""
        first = 0
        try:
            first = self._take_back(folder)
        except Exception as error:
            self.refused_why = str(error)
            if not isinstance(error, PacehoundError):
                # A fault of ours: each head after this one would meet it again, and none would ever begin.
                logger.exception("the state of the last head could not be taken over")
                self.refused_why = f"{type(error).__name__}: {error}"
            store(what_can_be_read(folder))
            self._file.remove()
            remove_journal(folder)
        self.has_found = first > 0 or bool(self.again)
        self.journal = Journal(folder, self.again[-1].offset + 1 if self.again else first, self._lost)
        self._is_anew = True
        """The file has not every part as it is, but for those that have changed."""
        self._covered = self._handled = first
        self._pending: _Pending | None = None
        self._not_before_s = self._seldom_s = clock.monotonic_s() + FIRST_S
        self._had_worked_s = 0.0

    @property
    def is_waiting(self) -> bool:
        """A state has been encoded, and is to be written once the store has what was concluded before it."""
        return self._pending is not None

    def handled(self, message: Message) -> None:
        """The pipeline has taken a message in."""
        if message.number >= 0:
            self._handled = message.number + 1

    def look(self, position: int) -> bool:
        """All that was concluded so far stands on the bus, before this position: encode the state if it is due.

        Whether that was done: it is written when the store has dealt with the bus up to there.
        """
        now_s = self._clock.monotonic_s()
        if self._pending is not None or self._handled == self._covered or now_s < self._not_before_s:
            return False
        worked_s = self._worked_s()
        if now_s < self._seldom_s and worked_s - self._had_worked_s < WORTH_S:
            return False
        is_anew, self._is_anew = self._is_anew, False
        changed, names = self._pipeline.changed(everything=is_anew)
        self._pending = _Pending(changed, names, self._handled, position)
        took_s = self._clock.monotonic_s() - now_s
        self._not_before_s = now_s + max(EVERY_S, took_s / MOST_SHARE)
        self._seldom_s, self._had_worked_s = now_s + SELDOM_S, worked_s
        return True

    def write(self, stored: int) -> None:
        """Write the state that waits, if the store has dealt with the bus up to what was concluded before it."""
        pending = self._pending
        if pending is None or stored < pending.stored_from:
            return
        self._pending = None
        try:
            written_ns = self._clock.now_ns()
            self._file.write(pending.changed, pending.names, first=pending.first, written_ns=written_ns)
        except OSError as error:
            logger.warning("the state of the operators is not written: %s", error)
            self._is_anew = True
            return
        self._covered = pending.first
        self.journal.cover(pending.first)

    def forget(self) -> None:
        """What this head had begun has ended: the next one begins anew."""
        self.journal.remove()
        self._file.remove()

    def _take_back(self, folder: Path) -> int:
        """The number of the first message that the state does not cover."""
        state = read_state(self._path)
        first = state.first if state is not None else 0
        again = list(read_journal(folder, first))
        if state is None and not again:
            return 0
        if not (journal_ns := last_written_ns(folder)):
            raise InvalidInput(f"{self._path} is there, and its journal is missing")
        last_ns = max(journal_ns, state.written_ns if state is not None else 0)
        if (away_s := (self._clock.now_ns() - last_ns) / 1e9) > LONGEST_AWAY_S:
            raise InvalidInput(f"the last head heard something {away_s:.0f} s ago, {LONGEST_AWAY_S:.0f} s at most")
        if state is not None:
            self._pipeline.take_back(state.parts)
        self.again = again
        return first

    def _lost(self) -> None:
        self._is_anew = True
        self._file.remove()
