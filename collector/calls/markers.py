"""Markers of training loops (optimizer steps, checkpoints, evaluations) on their way from the rings to the bus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from collector.calls.communicator_table import CommunicatorTable
from collector.calls.communicators import Communicator
from collector.calls.pending_records import RecordColumns
from collector.calls.rings import MARKER, MARKER_BODY, RAW, Int64Array, Records
from pacehound.clock import ClockPair
from pacehound.model.events import MARKER_NAMES, OPTIMIZER_STEP, Markers

FOREVER_NS = 1 << 62

Marker = tuple[int, int, str, int]
"""Unix time, rank, name and step."""


@dataclass(slots=True)
class MarkersRead:
    """What the marker records of one look say.

    Attributes
    ----------
    by_world
        Markers by the number of the world communicator that they travel on.
    too_early
        Positions of records whose rank has not joined a world yet.
    refused
        Why a record makes no sense.

    """

    by_world: dict[int, list[Marker]] = field(default_factory=dict)
    too_early: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def read_markers(batch: RecordColumns, places: Int64Array, table: CommunicatorTable, clock: ClockPair) -> MarkersRead:
    """The markers at `places` of the records; a step of another optimizer (`IterationEnds`) marks no iteration."""
    found = MarkersRead()
    for at in places.tolist():
        marker = batch.records[at : at + 1].view(MARKER_BODY)[0]
        rank, code, step = int(marker["rank"]), int(marker["marker"]), int(marker["step"])
        time_ns = int(marker["time_ns"])
        if code >= len(MARKER_NAMES) or step < 0 or time_ns >= FOREVER_NS:
            found.refused.append(f"a marker of rank {rank} cannot be: code {code}, step {step}, time {time_ns}")
            continue
        if MARKER_NAMES[code] == OPTIMIZER_STEP and int(marker["ordinal"]) != 0:
            continue
        world = table.world(int(batch.attempts[at]), rank)
        if world is None:
            found.too_early.append(at)
            continue
        found.by_world.setdefault(world, []).append((clock.to_unix_ns(time_ns), rank, MARKER_NAMES[code], step))
    return found


def marker_records(marks: Sequence[tuple[int, str, int]]) -> Records:
    """Markers of the agent's own, as a rank would have written them: rank, name and monotonic time of each."""
    records = np.zeros(len(marks), RAW)
    bodies = records.view(MARKER_BODY)
    for body, (rank, name, time_ns) in zip(bodies, marks, strict=True):
        body["kind"], body["rank"], body["time_ns"] = MARKER, rank, time_ns
        body["marker"] = MARKER_NAMES.index(name)
    return records


def markers_event(job: str, host: str, world: Communicator, markers: Sequence[Marker]) -> Markers:
    """The markers of one world, in order of time."""
    ordered = sorted(markers)
    return Markers(
        job=job,
        attempt=world.attempt,
        host=host,
        communicator=world.id,
        ranks=tuple(rank for _, rank, _, _ in ordered),
        names=tuple(name for _, _, name, _ in ordered),
        steps=tuple(step for _, _, _, step in ordered),
        times_ns=tuple(time_ns for time_ns, _, _, _ in ordered),
    )
