"""A head node without sockets: what arrives can be delayed, refused or lost on the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collector.agent.delivery import Outcome
from pacehound.bus.otlp import SendResult
from pacehound.errors import RejectedMessage, Unavailable
from pacehound.model.calls import CallBatch
from pacehound.model.events import Progress
from pacehound.model.routing import Event
from tests.fakes.said import said_in


class FakeReceiver:
    """Takes messages as a head node does: the same bytes twice count once."""

    def __init__(self) -> None:
        self.is_away = False
        self.refuses: set[bytes] = set()
        self.rejects: type | None = None
        self.requests: list[list[bytes]] = []
        self.messages: dict[bytes, None] = {}

    def send(self, messages: Sequence[bytes]) -> SendResult:
        if self.is_away:
            raise Unavailable("away")
        if any(message in self.refuses for message in messages):
            raise RejectedMessage("400: one of these is wrong")
        self.requests.append(list(messages))
        rejected = [message for message in messages if self._is_rejected(message)]
        for message in messages:
            if message not in rejected:
                self.messages[message] = None
        return SendResult(rejected=len(rejected))

    def _is_rejected(self, message: bytes) -> bool:
        return self.rejects is not None and any(isinstance(event, self.rejects) for event in said_in(message))

    def close(self) -> None:
        pass

    @property
    def events(self) -> list[Event]:
        return [event for message in self.messages for event in said_in(message)]

    def of(self, kind: type) -> list:  # type: ignore[type-arg]
        return [event for event in self.events if isinstance(event, kind)]

    def rows(self) -> list[dict]:  # type: ignore[type-arg]
        return [row for batch in self.of(CallBatch) for row in batch.rows.to_pylist()]


class ImmediateTasks:
    """Runs a task at once; its result is there at the next question, unless `loses_answers`."""

    def __init__(self) -> None:
        self.loses_answers = False
        self._results: list[Outcome] = []

    def is_idle(self) -> bool:
        return not self._results

    def run(self, task: Callable[[], Outcome]) -> None:
        self._results.append(task())

    def results(self) -> list[Outcome]:
        if self.loses_answers:
            return []
        found, self._results = self._results, []
        return found

    def close(self, wait_s: float = 0.0) -> None:
        pass


def promises_hold(events: Sequence[Event]) -> bool:
    """No row arrives after a progress that promised it."""
    promised: dict[str, int] = {}
    for event in events:
        if isinstance(event, Progress):
            promised[event.communicator] = event.time_ns
        elif isinstance(event, CallBatch):
            ends = event.integers("end_ns")
            if ((ends > 0) & (ends <= promised.get(event.communicator, 0))).any():
                return False
    return True
