"""Hosts that fall silent while their job goes on: their ranks cannot be seen, which is not the same as a hang."""

from __future__ import annotations

from pacehound.model.events import Finding, Instant
from pacehound.model.evidence.life import GivenUp, Over
from pacehound.model.evidence.machines import HostSilent
from pacehound.model.identity import event_id
from streams.hang.thresholds import REPORT_AFTER_NS
from streams.rounds.giving_up import GIVEN_UP
from streams.watching.moment import Moment
from streams.watching.watch import Said, Watch


class SilenceWatch(Watch):
    """Follows which hosts of a job are heard."""

    def __init__(self, job: str, attempt: int) -> None:
        self._job = job
        self._attempt = attempt
        self._findings: dict[str, Finding] = {}

    def on_tick(self, moment: Moment) -> list[Said]:
        """A finding when a host has been silent for too long, and a new version of it when it speaks again.

        Those that are given up stay as silent as they are.
        """
        findings: list[Said] = []
        for host in sorted(self._findings.keys() & moment.given_up):
            findings.append(self._findings.pop(host).next_version(GivenUp(host=host, why=GIVEN_UP)))
        for host in sorted(self._findings.keys() - moment.silent_since_ns.keys()):
            findings.append(self._findings.pop(host).next_version(Over(why="heard", host=host), relief=moment.at))
        for host, since_ns in sorted(moment.silent_since_ns.items()):
            if host in self._findings or moment.now_ns - since_ns < REPORT_AFTER_NS:
                continue
            self._findings[host] = Finding(
                id=event_id("blind", self._job, self._attempt, host, since_ns),
                job=self._job,
                attempt=self._attempt,
                kind="blind",
                verdict="unknown",
                cause=None,
                candidates=moment.ranks_of.get(host, ()),
                onset=Instant(step=moment.step, time_ns=since_ns),
                detected=moment.at,
                evidence=(HostSilent(hosts=(host,), for_s=(moment.now_ns - since_ns) / 1e9),),
                unseen=(f"what the ranks of {host} do: its agent, its network or the machine is gone",),
            )
            findings.append(self._findings[host])
        return findings
