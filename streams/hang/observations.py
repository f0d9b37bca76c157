"""What is known when a hang is looked at, and what was concluded from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pacehound.model.events import CallSignature, Cause, VerdictWord
from pacehound.model.evidence import Evidence
from streams.hang.host_reports import HostReports
from streams.hang.rank_progress import ProgressTable
from streams.hang.wait_graph import WaitGraph
from streams.rounds.divergence import LastIterations


@dataclass(frozen=True, slots=True, kw_only=True)
class HangObservations:
    """Everything that is known when a hang is looked at."""

    graph: WaitGraph  # who waits for whom
    table: ProgressTable
    host_reports: HostReports
    # by communicator and sequence number, what ranks called in a round in which they met with different calls
    mismatches: Mapping[tuple[str, int], Mapping[int, CallSignature]] = field(default_factory=dict)
    iterations: LastIterations | None = None  # the last rounds, where iterations are known
    # when the hang was first said: whoever leaves later is not guilty; `None` when it has not been said
    frozen_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RootCause:
    """What was concluded, and from what."""

    verdict: VerdictWord
    cause: Cause | None
    culprits: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    evidence: tuple[Evidence, ...] = ()
    unseen: tuple[str, ...] = ()
