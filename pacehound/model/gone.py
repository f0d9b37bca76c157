"""Which of the ranks that a finding names are gone, by evidence: what a recovery is decided for."""

from __future__ import annotations

from pacehound.model.events import Finding
from pacehound.model.evidence.leaving import Left, Process
from pacehound.model.evidence.machines import Gpu, HostSilent


def gone_ranks(finding: Finding) -> tuple[int, ...]:
    """Those that will not come back by themselves.

    >>> left = Left(rank=3, pid=7, signal=9)
    >>> gone_ranks(Finding(id="f", job="j", attempt=0, kind="exit", verdict="culprit", cause=None, culprits=(3,),
    ...     evidence=(left,)))
    (3,)
    """
    gone = set()
    named = {*finding.culprits, *finding.candidates} if finding.kind == "blind" else set(finding.culprits)
    for piece in finding.evidence:
        match piece:
            case Left(rank=rank):
                gone.add(rank)
            case Process(rank=rank, state="exited"):
                gone.add(rank)
            case Gpu(rank=rank, has_failed=True):
                gone.add(rank)
            case HostSilent():
                gone |= named
            case _:
                pass
    return tuple(sorted(gone & named))
