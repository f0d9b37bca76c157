"""Models of the sources that see a job, so that no verdict is earned with data that no cluster has.

A source decides which instants of a call appear in a row, whether the host runs ahead of its device, whether rows
come at all, and what the counters in `Progress` know.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from pacehound.model.calls import Sees
from simulator.program import CommunicatorKind

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What one kind of source can see."""

    name: str  # for people; rows carry the source `simulator`
    sees: Sees  # which instants its rows hold; the others are 0
    # how many calls the host may have launched beyond what its device has finished; 0 where the host is the device
    # (gloo), so that a call is launched when its operands are ready
    run_ahead_calls: int = 0
    # `all`: each call, once it is final. `incomplete`: only calls that never completed, when the job ends (what a
    # Flight Recorder dump is read for). `none`: counters alone
    rows: Literal["all", "incomplete", "none"] = "all"
    has_rates: bool = False  # rows hold the rates of transfers, and open calls their counts, on network connections
    # kinds of communicators whose calls are captured into a CUDA graph in the first step: later ones are not seen
    replayed: tuple[CommunicatorKind, ...] = ()
    # kinds of communicators that belong to a library whose calls are not seen at all
    unseen: tuple[CommunicatorKind, ...] = ()
    # nothing is known of a rank before its dump, which it writes in a hang, `DUMPED_AFTER` of the way to the end;
    # there is no agent beside it that knows of processes
    dumps: bool = False
    # whether `Progress` holds `last_launched`, and `last_completed` with the open calls. A source that sees no end
    # cannot tell an open call from a completed one
    counts_launched: bool = True
    counts_completed: bool = True

    def __post_init__(self) -> None:
        if self.run_ahead_calls < 0:
            raise ValueError(f"source {self.name!r} runs ahead by {self.run_ahead_calls} calls; it cannot be negative")


C10D_GLOO = Source(name="c10d hooks, gloo", sees=Sees.ALL)
DEVICE_TIMES = Source(name="device times", sees=Sees.ALL, run_ahead_calls=24, has_rates=True)
LAUNCH_ONLY = Source(name="launch only", sees=Sees.LAUNCH, run_ahead_calls=24, counts_completed=False)
FLIGHT_RECORDER = Source(name="Flight Recorder", sees=Sees.LAUNCH, run_ahead_calls=24, rows="incomplete", dumps=True)
COUNTS_ONLY = Source(name="counts only", sees=Sees.NOTHING, run_ahead_calls=24, rows="none", counts_completed=False)
GRAPH_REPLAY = replace(DEVICE_TIMES, name="graph replay", replayed=("tp", "ep"))
UNSEEN_TP = replace(DEVICE_TIMES, name="unseen library", unseen=("tp",))
UNSEEN_EP = replace(DEVICE_TIMES, name="unseen library", unseen=("ep",))

DUMPED_AFTER = 0.6
"""Share of a hang after which the watchdogs write their dumps; the job is killed at its end."""

HOST_OVERHEAD_S = 8e-6
"""CPU time between two launches of a host that does not wait."""


def launch_times(
    source: Source, arrival_s: FloatArray, end_s: FloatArray, begin_s: FloatArray, held_until_s: FloatArray | None
) -> FloatArray:
    """When the host launched each call of an iteration, for one rank or many.

    The host begins each iteration together with its device (it reads the gradient norm of the one before), then
    issues one call after the other without waiting, but never more than `run_ahead_calls` beyond what has ended:

        launch[j] = max(begin + (j + 1) o, launch[j - 1] + o, end[j - k] + o),  at most arrival[j]

    `arrival_s` and `end_s`, when the device reached and finished each call, have shape `(n_slots, ...)`, infinite where
    it never did; so have the launches, and `held_until_s`, the earliest launch because the process was stopped (`None`:
    it was not).
    """
    if source.run_ahead_calls == 0:
        return arrival_s
    n_slots = len(arrival_s)
    order = np.arange(n_slots, dtype=np.float64).reshape(-1, *[1] * (arrival_s.ndim - 1)) * HOST_OVERHEAD_S
    earliest = np.broadcast_to(begin_s + HOST_OVERHEAD_S, arrival_s.shape) + order
    k = source.run_ahead_calls
    if n_slots > k:
        earliest[k:] = np.maximum(earliest[k:], end_s[: n_slots - k] + HOST_OVERHEAD_S)
    if held_until_s is not None:
        earliest = np.maximum(earliest, held_until_s)
    launched: FloatArray = np.maximum.accumulate(earliest - order, axis=0) + order
    return np.minimum(launched, arrival_s)
