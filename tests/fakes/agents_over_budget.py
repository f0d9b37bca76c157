"""A simulated job as agents above their budget send it: one rank represents its host in small calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from bench.rig.agent_records import communicator_of, records_of
from collector.calls import rows as call_rows
from collector.calls.communicators import Communicator
from collector.calls.representative_rank import choose_representatives
from pacehound.clock import ClockPair
from pacehound.model import codec
from pacehound.model.calls import CallBatch, Sees
from pacehound.model.events import Progress, Topology
from pacehound.model.routing import Event

CLOCK = ClockPair(monotonic_ns=0, unix_ns=0)
NEVER_NS = np.iinfo(np.int64).max


class AgentsOverBudget:
    """The agents of a job; `is_over_budget(host, time_ns)` says at which of their looks."""

    def __init__(self, events: Sequence[Event], is_over_budget: Callable[[str, int], bool]) -> None:
        self.sent_rows = 0
        self.all_rows = 0
        self._is_over_budget = is_over_budget
        self._known: dict[tuple[str, str], Communicator] = {}
        self._looks_ns: dict[str, list[int]] = defaultdict(list)
        self._batches: dict[tuple[str, int], list[CallBatch]] = defaultdict(list)
        self._made: dict[tuple[str, int], dict[str, list[CallBatch]]] = {}
        for event in events:
            if isinstance(event, Progress):
                self._looks_ns[event.host].append(event.time_ns)
        for host, looks_ns in self._looks_ns.items():
            self._looks_ns[host] = sorted(set(looks_ns))
        for event in events:
            if isinstance(event, CallBatch):
                self._batches[event.host, self._look_ns(event)].append(event)
        self._open = {host: self._spans(host) for host in self._looks_ns}

    def send(self, events: Iterable[Event]) -> Iterable[Event]:
        """What arrives at the other end."""
        for event in events:
            if isinstance(event, Topology):
                self._join(event)
            if isinstance(event, CallBatch):
                made = self._look(event.host, self._look_ns(event)).pop(event.communicator, [])
                for batch in made:
                    self.sent_rows += len(batch)
                    self.all_rows += batch.n_calls
                    yield from codec.decode(codec.encode(batch))
            else:
                yield event

    def _join(self, topology: Topology) -> None:
        self._known[topology.host, topology.communicator] = communicator_of(topology)

    def _look_ns(self, batch: CallBatch) -> int:
        looks_ns = self._looks_ns[batch.host]
        final_ns = int(np.maximum(batch.integers("end_ns"), batch.integers("launch_ns")).max())
        return looks_ns[min(int(np.searchsorted(looks_ns, final_ns)), len(looks_ns) - 1)]

    def _spans(self, host: str) -> tuple[np.ndarray, np.ndarray]:
        mine = [batch for (name, _), batches in self._batches.items() if name == host for batch in batches]
        launch_ns = np.concatenate([batch.integers("launch_ns") for batch in mine])
        end_ns = np.concatenate([batch.integers("end_ns") for batch in mine])
        return launch_ns, np.where(end_ns > 0, end_ns, NEVER_NS)

    def _look(self, host: str, look_ns: int) -> dict[str, list[CallBatch]]:
        if (host, look_ns) not in self._made:
            batches = self._batches[host, look_ns]
            known = [self._known[host, name] for name in sorted({batch.communicator for batch in batches})]
            number = {communicator.id: at for at, communicator in enumerate(known)}
            rows = np.concatenate([records_of(batch) for batch in batches])
            numbers = np.repeat([number[batch.communicator] for batch in batches], [len(batch) for batch in batches])
            launch_ns, end_ns = self._open[host]
            before_ns = int(launch_ns[(launch_ns <= look_ns) & (end_ns > look_ns)].min(initial=look_ns))
            chosen = (
                choose_representatives(rows, numbers, known, before_ns) if self._is_over_budget(host, look_ns) else None
            )
            job = batches[0].job
            made: dict[str, list[CallBatch]] = {}
            for batch in call_rows.batches(
                rows, numbers, known, job=job, host=host, clock=CLOCK, representatives=chosen
            ):
                assert batch.sees == Sees.ALL
                made.setdefault(batch.communicator, []).append(batch)
            self._made[host, look_ns] = made
        return self._made[host, look_ns]
