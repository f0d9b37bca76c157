"""The site's commands of one restart, in their order: each is written down, begun once, and followed to its end; pure.

Before a command is begun it is written down that it will be, and after it how it has ended. Its run has a name that
follows from the restart, the command and the try: two who ask for the same run get one. So whoever comes after a
process that was killed at any moment knows which command it is about, sees how that goes, and goes on from there. What
was begun and cannot be seen to have ended is not begun again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from actuators.acting.site import CommandName, Ran, Site
from actuators.mitigation.actions import Action
from actuators.mitigation.thresholds import BEGUN_WITHIN_NS, MOST_STARTS, START_AGAIN_NS
from actuators.now import Now
from pacehound.model.events import Decision, SiteStep
from pacehound.model.identity import event_id

_part = partial(Action, price_s=0.0, source="the restart has a price", removes=0.0, removes_source="a part of one")
COMMANDED: dict[CommandName, Action] = {
    "drain": _part(name="drain_hosts", effect="the site takes the hosts out of service"),
    "stop": _part(name="stop_job", effect="the site stops the job"),
    "start": _part(name="start_job", effect="the site starts the job"),
}
"""By what name each is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftRestart:
    """A restart that was ordered and is not over, as it was written down.

    Attributes
    ----------
    ordered
        The decision.
    records
        What was written down since, in the order of the log.

    """

    ordered: Decision
    records: tuple[Decision, ...] = ()


def left_restarts(decisions: Iterable[Decision]) -> list[LeftRestart]:
    """Those that are not over, in the order in which they were ordered."""
    ordered: dict[str, Decision] = {}
    records: dict[str, list[Decision]] = {}
    over: set[str] = set()
    for decision in decisions:
        site = decision.site
        if site is None:
            continue
        if not site.restart:
            ordered.setdefault(decision.identity(), decision)
        elif site.step == "over":
            over.add(site.restart)
        else:
            records.setdefault(site.restart, []).append(decision)
    return [
        LeftRestart(ordered=one, records=tuple(records.get(name, ())))
        for name, one in ordered.items()
        if name not in over
    ]


def who_else(log: Iterable[Decision], claim: Decision) -> str:
    """Why somebody else has what is claimed, by the order of the log; empty where it is the claimant's own.

    A job has one restart at a time, the one that was ordered first; and each try of a command is begun by whoever has
    written first that it will.
    """
    site = claim.site
    assert site is not None, "only a step is claimed"
    known = [one for one in log if one.job == claim.job and one.site is not None]
    for left in left_restarts(known):
        if left.ordered.identity() != site.restart:
            return f"another restart of this job is under way, of incident {left.ordered.incident[:12]}"
        break
    for one in known:
        other = one.site
        if other is not None and other.restart == site.restart and _try(other) == _try(site):
            # Of one folder a run is begun once, whoever asks for it.
            is_own = other.state == "begins" and (other.by == site.by or other.where == site.where)
            return "" if is_own else f"somebody on {other.host or 'another host'} runs the {site.step} command"
    return "what was written down does not stand in the log"


def _try(site: SiteStep) -> tuple[str, int]:
    return site.step, site.number


Stage = Literal["next", "noting", "running", "over"]


class Commanding:
    """From the first command to the end of the last, or to one that has failed.

    Parameters
    ----------
    restart
        The decision that has ordered it.
    names
        The commands.
    site
        Whose they are.
    values
        What is put into them.

    Attributes
    ----------
    name
        The command that it is about.
    outcome
        `None` while it goes on; `begun`: the last one was begun, and nobody knows how it has ended.
    reason
        Why it is over.
    stopped_ns
        When the job was to be stopped, as Unix time; 0: not yet.

    """

    def __init__(self, restart: str, names: Sequence[CommandName], site: Site, values: dict[str, str]) -> None:
        self._restart, self._names, self._site, self._values = restart, tuple(names), site, values
        self._stage: Stage = "next"
        self._index = self._number = 0
        self._begun_ns = self._next_ns = 0
        self._where, self._host = "", ""
        self._is_claimed = False
        self.outcome: Literal["done", "failed", "begun"] | None = None
        self.reason = ""
        self.stopped_ns = 0

    @property
    def name(self) -> CommandName:
        """The command that it is about."""
        return self._names[min(self._index, len(self._names) - 1)]

    @property
    def is_untouched(self) -> bool:
        """Whether none of the commands was begun."""
        return self._index == 0 and self._number == 0 and self.is_before

    @property
    def is_before(self) -> bool:
        """Whether the command that it is about was not begun in this try."""
        if self._stage == "running" and self._is_here and self._site.seen(self.run) == "never begun":
            return True
        return self._stage in ("next", "noting")

    @property
    def _is_here(self) -> bool:
        """Whether it is seen here how it goes."""
        return self._where == self._site.origin.where

    @property
    def run(self) -> str:
        """The name of the run that it is about."""
        return event_id("run of the site", self._restart, self.name, self._number)

    def take_up(self, records: Iterable[SiteStep], now: Now) -> None:
        """Go on where somebody was who has written these."""
        for one in records:
            self.stopped_ns = one.stopped_ns or self.stopped_ns
            if one.step != self.name or one.number != self._number:
                continue
            if one.state == "begins" and self._stage == "next":
                # The first who has written it begins it; whether that has happened is seen in the folder.
                self._stage, self._where, self._host, self._begun_ns = "running", one.where, one.host, 0
            elif one.state == "ended":
                self._ended(one.status, "", now)

    def settled(self, claim: Decision, now: Now) -> None:
        """What was written down last stands where everybody finds it."""
        if self._stage != "noting" or claim.site is None or _try(claim.site) != (self.name, self._number):
            return
        if why := self._site.why_not(claim):
            self._over("failed", f"the {self.name} command is not run: {why}")
            return
        self._stage, self._begun_ns, self._is_claimed = "running", now.monotonic_ns, True
        self._site.begin(self.run, self.name, self._values)

    def step(self, now: Now) -> list[tuple[SiteStep, str]]:
        """What is to be written down now, with words for people."""
        if self._stage == "next" and now.monotonic_ns >= self._next_ns:
            return self._announce(now)
        return self._look(now) if self._stage == "running" else []

    def _announce(self, now: Now) -> list[tuple[SiteStep, str]]:
        if not self._site.has(self.name):
            self._over("failed", f"actuators.{self.name}_command is not set")
            return []
        origin = self._site.origin
        self._where, self._host = origin.where, origin.host
        if self.name == "stop":
            self.stopped_ns = now.unix_ns
        self._stage, self._is_claimed = "noting", False
        words = self._site.words(self.name, self._values)
        return [(self._record("begins", by=origin.by), f"the {self.name} command is run: {words}")]

    def _look(self, now: Now) -> list[tuple[SiteStep, str]]:
        if not self._is_here:
            seen: Ran | str = "lost"
            where = f"on {self._host or 'another host'}, by somebody who has gone"
        else:
            seen, where = self._site.seen(self.run), "by somebody who was ended"
        if isinstance(seen, Ran):
            words = f"the {self.name} command has ended with {seen.status}"
            record = self._record("ended", status=seen.status)
            self._ended(seen.status, seen.said, now)
            return [(record, f"{words}: {seen.said}" if seen.said else words)]
        if seen == "never begun" and not self._is_claimed:
            return self._announce(now)
        if seen == "never begun" and now.monotonic_ns >= self._begun_ns + BEGUN_WITHIN_NS:
            self._begun_ns = now.monotonic_ns
            self._site.begin(self.run, self.name, self._values)
        if seen == "lost":
            words = f"the {self.name} command was begun {where}, and how it has ended is not known"
            record = self._record("ended")
            self._ended(None, words, now)
            return [(record, words)]
        return []

    def _ended(self, status: int | None, said: str, now: Now) -> None:
        """What follows from it."""
        is_start = self.name == "start"
        if status == 0:
            self._index, self._number, self._stage = self._index + 1, 0, "next"
            if self._index == len(self._names):
                self._over("done", "")
        elif status is None:
            # Whether a start has worked is seen by the job; of the others nothing is seen.
            words = said or f"how the {self.name} command has ended is not known"
            self._over("begun" if is_start else "failed", f"{words}; it is not run again")
        elif is_start and self._number + 1 < MOST_STARTS:
            self._number, self._stage, self._next_ns = self._number + 1, "next", now.monotonic_ns + START_AGAIN_NS
        else:
            why = f"the command failed with {status}" + (f": {said}" if said else "")
            self._over("failed", why)

    def _over(self, outcome: Literal["done", "failed", "begun"], reason: str) -> None:
        self._stage, self.outcome, self.reason = "over", outcome, reason

    def _record(self, state: Literal["begins", "ended"], *, by: str = "", status: int | None = None) -> SiteStep:
        return SiteStep(
            step=self.name,
            restart=self._restart,
            state=state,
            number=self._number,
            status=status,
            by=by,
            where=self._where,
            host=self._host,
            stopped_ns=self.stopped_ns,
        )
