"""Runs what may take long in a thread of its own: the agent hands a task over, and never waits for it."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

logger = logging.getLogger("pacehound.agent")

ResultT = TypeVar("ResultT")


class TaskRunner(Protocol, Generic[ResultT]):
    """Runs one task at a time."""

    def is_idle(self) -> bool:
        """Whether a task may be handed over: none is under way, and the result of the last one was taken."""
        ...

    def run(self, task: Callable[[], ResultT]) -> None:
        """Begin one."""
        ...

    def results(self) -> list[ResultT]:
        """What came of tasks since the last time; one that raised gives nothing."""
        ...

    def close(self, wait_s: float = 0.0) -> None:
        """Begin no more, and wait so long for the one that is under way."""
        ...


class ThreadTaskRunner(Generic[ResultT]):
    """Runs tasks in a daemon thread: one that never returns (a driver that hangs) does not keep the agent from leaving.

    Parameters
    ----------
    name
        What the tasks are about, for the log.
    at_end
        Called in the thread when no task is left.
    when_done
        Called in the thread after each task.

    Attributes
    ----------
    finished
        Set whenever a task has ended.

    """

    def __init__(
        self, name: str, at_end: Callable[[], None] = lambda: None, when_done: Callable[[], None] = lambda: None
    ) -> None:
        self._name, self._at_end, self._when_done = name, at_end, when_done
        self._tasks: queue.SimpleQueue[Callable[[], ResultT] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[ResultT] = queue.SimpleQueue()
        self._is_busy = threading.Event()
        self._failures: set[str] = set()
        self._thread: threading.Thread | None = None
        self.finished = threading.Event()

    def is_idle(self) -> bool:
        """Whether a task may be handed over."""
        return not self._is_busy.is_set() and self._results.empty()

    def run(self, task: Callable[[], ResultT]) -> None:
        """Begin one."""
        self._is_busy.set()
        self._tasks.put(task)
        self._start()

    def results(self) -> list[ResultT]:
        """What came of tasks since the last time."""
        found = []
        while not self._results.empty():
            found.append(self._results.get_nowait())
        return found

    def close(self, wait_s: float = 0.0) -> None:
        """Begin no more."""
        self._tasks.put(None)
        self._start().join(timeout=wait_s)

    def _start(self) -> threading.Thread:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"pacehound-{self._name}", daemon=True)
            self._thread.start()
        return self._thread

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                self._results.put(task())
            except Exception as error:  # whatever a driver or /proc comes up with: the next task may succeed
                reason = f"{type(error).__name__}: {error}"
                if reason not in self._failures and len(self._failures) < 10:
                    self._failures.add(reason)
                    logger.warning("%s cannot be read: %s", self._name, reason)
            finally:
                self._is_busy.clear()
                self.finished.set()
                self._when_done()
        self._at_end()
