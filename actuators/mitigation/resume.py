"""SIGCONT for a rank whose process is stopped: the cheapest there is, and it helps nobody else."""

from __future__ import annotations

from dataclasses import dataclass

from pacehound.model.events import Finding
from pacehound.model.evidence.leaving import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePlan:
    """Whose processes would be told to go on: rank and process id, as the evidence has them."""

    processes: tuple[tuple[int, int], ...]
    signal: str = "SIGCONT"


def plan_resume(finding: Finding) -> ResumePlan | None:
    """The stopped ones among the culprits; `None` where the evidence has none.

    >>> stopped = Process(rank=3, pid=77, state="stopped")
    >>> who = {"kind": "hang", "verdict": "culprit", "cause": "H1", "culprits": (3,)}
    >>> plan_resume(Finding(id="f", job="j", attempt=0, evidence=(stopped,), **who))
    ResumePlan(processes=((3, 77),), signal='SIGCONT')
    """
    stopped = {
        piece.rank: piece.pid
        for piece in finding.evidence
        if isinstance(piece, Process) and piece.state == "stopped" and piece.rank in finding.culprits
    }
    return ResumePlan(processes=tuple(sorted(stopped.items()))) if stopped else None
