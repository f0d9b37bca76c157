"""What a file from somebody else's tool says about the calls of a job: events, and what it cannot know."""

from __future__ import annotations

from dataclasses import dataclass

from pacehound.model.calls import CallBatch
from pacehound.model.events import HostSample, HostVitals, Markers, Progress, Topology

FileEvent = Topology | CallBatch | Progress | Markers | HostSample | HostVitals


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFile:
    """One file: a Flight Recorder dump, a RAS answer, a trace ….

    Attributes
    ----------
    path, format
        Where it is from and what it was taken for.
    ranks
        World ranks that it speaks for.
    events
        Keyed by world rank, in order of time: topology first, then rows and markers, last one `Progress` per
        communicator with how far each rank was at the end. `host` is the file's own name where the real one is
        unknown; communicators of several files are the same when their ids are.
    world_size
        Ranks of the job, where the file tells; 0 otherwise.
    cannot_know
        Sentences for people: what this kind of file leaves open.
    notes
        What was left out or repaired in reading it.
    says_hang
        Ranks that the source itself says hang, by means of its own; it need not know who is to blame.

    """

    path: str
    format: str
    ranks: tuple[int, ...]
    events: tuple[FileEvent, ...]
    world_size: int = 0
    cannot_know: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    says_hang: tuple[int, ...] = ()
