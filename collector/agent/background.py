"""Things that may take long, one after the other in a thread of their own; the agent asks, it never waits."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

logger = logging.getLogger("pacehound.agent")

ResultT = TypeVar("ResultT")


class Errands(Protocol, Generic[ResultT]):
    """Runs one errand at a time."""

    def is_idle(self) -> bool:
        """Whether another one can be handed over."""
        ...

    def run(self, errand: Callable[[], ResultT]) -> None:
        """Begin one."""
        ...

    def results(self) -> list[ResultT]:
        """What has come of them since the last time; an errand that failed gives nothing."""
        ...

    def close(self) -> None:
        """Begin no more; one that is under way is not waited for."""
        ...


class ThreadErrands(Generic[ResultT]):
    """Errands in a daemon thread: one that never comes back (a driver that hangs) keeps nobody from leaving.

    Parameters
    ----------
    name
        What they are about, for the log.

    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._errands: queue.SimpleQueue[Callable[[], ResultT] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[ResultT] = queue.SimpleQueue()
        self._is_busy = threading.Event()
        self._failures: set[str] = set()
        self._thread: threading.Thread | None = None

    def is_idle(self) -> bool:
        """Whether another one can be handed over."""
        return not self._is_busy.is_set()

    def run(self, errand: Callable[[], ResultT]) -> None:
        """Begin one."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"pacehound-{self._name}", daemon=True)
            self._thread.start()
        self._is_busy.set()
        self._errands.put(errand)

    def results(self) -> list[ResultT]:
        """What has come of them since the last time."""
        found = []
        while True:
            try:
                found.append(self._results.get_nowait())
            except queue.Empty:
                return found

    def close(self) -> None:
        """Begin no more."""
        self._errands.put(None)

    def _work(self) -> None:
        while (errand := self._errands.get()) is not None:
            try:
                self._results.put(errand())
            except Exception as error:  # whatever a driver or /proc comes up with: the next errand may do
                reason = f"{type(error).__name__}: {error}"
                if reason not in self._failures and len(self._failures) < 10:
                    self._failures.add(reason)
                    logger.warning("%s cannot be read: %s", self._name, reason)
            finally:
                self._is_busy.clear()
