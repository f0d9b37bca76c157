"""Ranks in which a library communicates unseen: nothing that is concluded from calls holds for them."""

from __future__ import annotations

from pacehound.model.events import SWITCHED_OFF, Finding, HostSample, Instant
from pacehound.model.evidence.life import Over
from pacehound.model.evidence.machines import UnseenLibrary
from pacehound.model.identity import event_id
from streams.watching.moment import Moment
from streams.watching.watch import Heard, Said, Watch


class UnseenCalls(Watch):
    """Follows what the hosts' agents say of it, one finding per host (`blind`) until its calls are seen."""

    def __init__(self, job: str, attempt: int) -> None:
        self._job = job
        self._attempt = attempt
        self._latest: dict[str, tuple[int, dict[int, tuple[str, ...]]]] = {}
        self._findings: dict[str, Finding] = {}

    def hear(self, event: Heard, step: int | None) -> list[Finding]:
        """The processes of one host."""
        if isinstance(event, HostSample):
            unseen = {process.rank: process.unseen for process in event.processes if process.unseen}
            self._latest[event.host] = (event.time_ns, unseen)
        return []

    def on_tick(self, moment: Moment) -> list[Said]:
        """A finding where calls of a host are not seen, and a new version of it when they are or it is about others."""
        findings: list[Said] = []
        concerned = [host for host, (_, unseen) in self._latest.items() if unseen or host in self._findings]
        for host in sorted(concerned):
            time_ns, unseen = self._latest[host]
            known, ranks = self._findings.get(host), tuple(sorted(unseen))
            if known is None and ranks:
                names = sorted({name for some in unseen.values() for name in some} - {SWITCHED_OFF})
                finding = self._finding(host, ranks, names, Instant(step=moment.step, time_ns=time_ns), moment.now_ns)
            elif known is not None and not ranks:
                del self._findings[host]
                findings.append(known.next_version(Over(why="calls seen", host=host), relief=moment.at))
                continue
            elif known is not None and ranks != known.candidates:
                finding = known.next_version(candidates=ranks)
            else:
                continue
            self._findings[host] = finding
            findings.append(finding)
        return findings

    def _finding(self, host: str, ranks: tuple[int, ...], names: list[str], onset: Instant, now_ns: int) -> Finding:
        libraries = ", ".join(names)
        why = "linked statically, called past the hooks, or not torch's own" if names else "the end of its run says why"
        what = f"calls of {libraries} on {host}" if names else f"calls of ranks whose hooks are off on {host}"
        return Finding(
            id=event_id("blind", self._job, self._attempt, host, "calls", onset.time_ns),
            job=self._job,
            attempt=self._attempt,
            kind="blind",
            verdict="unknown",
            cause=None,
            candidates=ranks,
            onset=onset,
            detected=Instant(step=onset.step, time_ns=now_ns),
            evidence=(UnseenLibrary(host=host, libraries=tuple(names), is_off=not names),),
            unseen=(f"{what}: {why}",),
        )
