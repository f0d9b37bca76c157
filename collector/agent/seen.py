"""How much an agent has seen of its ranks, for the line at the end of a run: nothing seen is not health."""

from __future__ import annotations

import msgspec
import numpy as np

from collector.calls import rings
from collector.calls.rings import RingHeader
from pacehound.model.events import MARKER_NAMES, OPTIMIZER_STEP

_OPTIMIZER_STEP = MARKER_NAMES.index(OPTIMIZER_STEP)


class Seen(msgspec.Struct, kw_only=True):
    """Counts over the whole run; saved with the agent's state."""

    calls: int = 0
    lost_calls: int = 0
    steps: dict[str, int] = {}
    """Iterations that have ended by `ATTEMPT.RANK`, of each that made a call: by the number of its last step."""
    step_ns: dict[str, int] = {}
    """By the same, when the last of them was."""

    def take(self, header: RingHeader, records: rings.Records, lost: int) -> None:
        """These were read from a ring, and so many were not there any more."""
        self.lost_calls += lost
        if not len(records):
            return
        calls = records.view(rings.CALL)
        launches = int(np.count_nonzero(calls["kind"] == rings.LAUNCH))
        markers = records[calls["kind"] == rings.MARKER].view(rings.MARKER_BODY)
        ended = markers[(markers["marker"] == _OPTIMIZER_STEP) & (markers["ordinal"] == 0)]
        steps = len(ended)
        self.calls += launches
        if launches or steps:
            key = f"{header.attempt}.{int(calls['rank'][-1])}"
            self.steps.setdefault(key, 0)
            if steps:
                self.steps[key] = max(self.steps[key], int(ended["step"].max()) + 1)
                self.step_ns[key] = int(ended["time_ns"][-1])

    @property
    def ranks(self) -> int:
        """Different ranks, over all attempts."""
        return len({key.partition(".")[2] for key in self.steps})

    @property
    def ended_iterations(self) -> tuple[int, int | None]:
        """How many iterations have ended here: the steps of the rank that made fewest, of the latest attempt.

        And when that one has made its last; `None` where that is not known (by an agent that goes on from one that did
        not note it).
        """
        latest = max((int(key.partition(".")[0]) for key in self.steps), default=0)
        of_latest = {key: steps for key, steps in self.steps.items() if key.startswith(f"{latest}.")}
        n_ended = min(of_latest.values(), default=0)
        ends_ns = [self.step_ns.get(key) for key, steps in of_latest.items() if steps == n_ended]
        return n_ended, max((end_ns for end_ns in ends_ns if end_ns is not None), default=None)

    @property
    def iterations(self) -> int:
        """Steps of the rank that made most, over all attempts."""
        by_rank: dict[str, int] = {}
        for key, steps in self.steps.items():
            rank = key.partition(".")[2]
            by_rank[rank] = by_rank.get(rank, 0) + steps
        return max(by_rank.values(), default=0)
