"""Ranks that leave: the first one that does so in disorder is evidence, the ones after it are not.

When one rank dies, its peers' calls fail and the launcher ends the rest; so evidence freezes at the first exit.
"""

from __future__ import annotations

import signal

from pacehound.events import Finding, HostSample, Instant, ProcessState, VerdictWord
from pacehound.identity import event_id

_POLITE = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Somebody ended the job, or the launcher its remaining ranks: nobody's fault."""

_OWN_FAULT = frozenset({signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
"""Signals that only strike the process that they are meant for. An abort may be a watchdog's, for a peer's fault."""


class ExitWatch:
    """Follows the processes of one job until the first of them leaves in disorder."""

    def __init__(self, job: str, attempt: int) -> None:
        self._job = job
        self._attempt = attempt
        self._frozen = False

    def on_host(self, sample: HostSample, step: int | None) -> list[Finding]:
        """The processes of one host; a finding at the first disorderly exit, and none after it."""
        if self._frozen:
            return []
        left = [process for process in sample.processes if _is_disorderly(process)]
        if not left:
            return []
        self._frozen = True
        first_ns = min(process.since_ns for process in left)
        # Of several in one sample those that left together with the first cannot be told apart from it.
        first = [process for process in left if process.since_ns - first_ns <= 50_000_000]
        ranks = tuple(sorted(process.rank for process in first))
        own_fault = [process for process in first if process.signal in _OWN_FAULT]
        verdict: VerdictWord = "unknown"
        culprits: tuple[int, ...] = ()
        if own_fault:
            verdict, culprits = "culprit", tuple(sorted(process.rank for process in own_fault))
        elif len(first) == 1:
            verdict, culprits = "suspected", ranks
        return [
            Finding(
                id=event_id("exit", self._job, self._attempt, ranks),
                job=self._job,
                attempt=self._attempt,
                kind="exit",
                verdict=verdict,
                cause=None,
                culprits=culprits,
                candidates=() if culprits else ranks,
                onset=Instant(step=step, time_ns=first_ns),
                detected=Instant(step=step, time_ns=sample.time_ns),
                lasting=True,
                pages=True,
                evidence=tuple(_sentence(process) for process in first),
                unseen=() if own_fault else ("whether a peer's mistake made it fail",),
            )
        ]


def _is_disorderly(process: ProcessState) -> bool:
    if process.state != "exited":
        return False
    if process.signal is not None:
        return process.signal not in _POLITE
    return bool(process.exit_code)


def _sentence(process: ProcessState) -> str:
    if process.signal is not None:
        how = f"was killed by {_signal_name(process.signal)}"
    else:
        how = f"left with exit code {process.exit_code}"
    detail = f": {process.detail}" if process.detail else ""
    return f"rank {process.rank} (pid {process.pid} on its host) was the first to leave: it {how}{detail}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
