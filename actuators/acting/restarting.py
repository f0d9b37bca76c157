"""S4: a job starts again without the hosts that are to blame, from a checkpoint; pure.

The script is asked for a checkpoint where it takes such orders; then the site's own commands stop the job and start it
elsewhere (`commanding`), and it is seen by the pace of the new attempt whether that has helped. Scripts that save
checkpoints by themselves need not be changed. Whoever comes after somebody who was killed goes on. A restart cannot be
taken back: where it has not helped nothing is tried for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from actuators.acting.act import Act, Terms
from actuators.acting.commanding import COMMANDED, Commanding, LeftRestart
from actuators.acting.site import CommandName, Site
from actuators.acting.whereabouts import Whereabouts
from actuators.control.applying import ApplyProcedure
from actuators.mitigation.actions import DRAIN_HOST, RESTART_WITHOUT_RANK, Action
from actuators.mitigation.loss import gravest, loss_rate
from actuators.mitigation.thresholds import (
    APPLY_WITHIN_NS,
    AWAY_ATTEMPT_NS,
    GONE_ON_WITHIN_NS,
    KEPT_SHARE,
    RESTARTED_WITHIN_NS,
    SAVED_AFTER_STEPS,
    START_AGAIN_NS,
)
from actuators.now import Now
from pacehound.model.events import Decision, Finding, Incident, SiteStep
from pacehound.model.events.control import CommandResult
from pacehound.model.orders import What

KIND = "checkpoint"
"""The order that a script takes which writes a checkpoint when it is asked."""

DOING: dict[CommandName, str] = {"drain": "draining", "stop": "stopping", "start": "starting"}
"""The states in which commands are run."""


class Restarting(Act):
    """From the last look at where ranks are to the pace of the new attempt.

    Parameters
    ----------
    action
        `checkpoint_restart`, `restart_without_rank` or `drain_host`.
    incident, ticket, terms
        As of every `Act`.
    site
        Whose commands stop and start jobs.
    left
        Somebody who has gone has ordered it, and has come so far.
    is_allowed
        Whether one that was ordered, and of which nothing was run, may be gone on with.

    """

    first = "locating"

    def __init__(
        self,
        action: Action,
        incident: Incident,
        ticket: int,
        terms: Terms,
        site: Site,
        *,
        left: LeftRestart | None = None,
        is_allowed: bool = True,
    ) -> None:
        super().__init__(action, incident, ticket, terms)
        self._site, self._left, self._is_allowed = site, left, is_allowed
        self._where: Whereabouts | None = None
        self._saving: ApplyProcedure | None = None
        self._commands: Commanding | None = None
        self._claim: Decision | None = None
        self._restart, self._saved = "", ""
        self._without: tuple[str, ...] = ()
        self._before_s: float | None = None
        self._n_ranks = 0
        self._next_ns = self._until_ns = 0
        self._has_helped = True
        if left is not None:
            self._remember(left)

    def _remember(self, left: LeftRestart) -> None:
        """What was known to whoever has ordered it."""
        self.state, self.reason = "taking up", "somebody who has gone had ordered it"
        self._consent.go_on(left.ordered)
        self._restart = left.ordered.identity()
        self._promised, self.aim = left.ordered.promised_gain, left.ordered.aimed_at
        for decision in (left.ordered, *left.records):
            self._number = max(self._number, decision.number)
            if (site := decision.site) is not None:
                self._without = site.without or self._without
                self._n_ranks = site.n_ranks or self._n_ranks
                self._before_s = self._before_s if site.before_s is None else site.before_s
                self._saved = site.saved or self._saved

    def is_wanted(self) -> bool:
        """Whether an incident that goes on has culprits, and the site has commands for it."""
        return self._finding_now() is not None and not self._missing_command()

    @property
    def is_for_any_attempt(self) -> bool:
        """Of the new attempt only its agents know the number."""
        return self.state in ("looking", "returning")

    @property
    def last_step(self) -> SiteStep | None:
        """That it is over."""
        if not self._restart:
            return None
        return SiteStep(step="over", restart=self._restart, state="ended", status=0 if self._has_helped else 1)

    def on_settled(self, now: Now) -> None:
        """What is begun was written down before."""
        claim, self._claim = self._claim, None
        if self._commands is not None and claim is not None:
            self._commands.settled(claim, now)

    def advance(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """One step in a state of its own."""
        match self.state:
            case "locating":
                return self._locate(results, now)
            case "pacing":
                return self._measure(results, now)
            case "saving":
                return self._save(results, now)
            case "saved":
                return self._after_saving(results, now)
            case "taking up":
                return [], self._take_up(now)
            case "looking":
                return self._look(results, now)
            case "draining" | "stopping" | "starting":
                return [], self._run(now)
            case _:
                return self._return(results, now)

    def _finding_now(self) -> Finding | None:
        finding = gravest(self.incident.findings)
        is_proven = finding is not None and finding.verdict == "culprit" and finding.kind in ("slow", "hang", "exit")
        return finding if self.incident.state == "open" and is_proven else None

    def _missing_command(self) -> str:
        needed: tuple[CommandName, ...] = ("drain", "stop", "start") if self.action is DRAIN_HOST else ("stop", "start")
        return next((f"actuators.{name}_command is not set" for name in needed if not self._site.has(name)), "")

    def _locate(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        if self._where is None:
            self._where = Whereabouts(now.monotonic_ns)
        orders = self._where.step(results, now.monotonic_ns)
        if not self._where.is_over:
            return orders, []
        where, self._where = self._where, None
        finding = self._finding_now()
        if finding is None:
            self._nothing_any_more()
            return orders, []
        blamed = finding.culprits or self.aim
        if unknown := [rank for rank in blamed if rank not in where.host_of]:
            self.may_act_again = True
            return orders, self._not_taken(f"it is not known on which host rank {unknown[0]} is: {where.missing}", now)
        self._without = tuple(sorted({where.host_of[rank] for rank in blamed}))
        self._n_ranks = where.n_ranks
        if not set(where.host_of.values()) - set(self._without):
            return orders, self._not_taken(f"no host would be left without {', '.join(self._without)}", now)
        if limit := self._limit(self._n_ranks, now):
            self.may_act_again = True
            return orders, self._not_taken(limit, now)
        self._promised = 1.0 if finding.kind != "slow" else loss_rate(self.incident, finding)
        words = f"the job stops, and starts again without {', '.join(self._without)}"
        if asks := self._asked_first(words, now):
            return orders, asks
        self.terms.limits.acted(now.monotonic_ns)
        decided = SiteStep(step="decided", without=self._without, n_ranks=self._n_ranks)
        decision = self._decision(self.action, words, now, site=decided)
        self._restart = decision.identity()
        self._commands = self._commanding()
        is_slow = finding.kind == "slow"
        self._go("pacing" if is_slow else self._doing, "how fast the job goes" if is_slow else "it is stopped")
        return orders, [decision]

    def _commanding(self) -> Commanding:
        names: tuple[CommandName, ...] = ("stop", "start")
        return Commanding(
            self._restart, ("drain", *names) if self.action is DRAIN_HOST else names, self._site, self._values()
        )

    @property
    def _doing(self) -> str:
        assert self._commands is not None
        return DOING[self._commands.name]

    def _take_up(self, now: Now) -> list[Decision]:
        """Go on where somebody was who has gone."""
        left, commands = self._left, self._commanding()
        assert left is not None
        self._commands = commands
        commands.take_up([one.site for one in left.records if one.site is not None], now)
        if commands.is_untouched:
            ago_ns = now.unix_ns - max(one.time_ns for one in (left.ordered, *left.records))
            why = "" if self._is_allowed else "the mode is another one by now"
            why = why or ("" if self.incident.state == "open" else "the incident is over")
            why = why or (f"it was ordered {ago_ns / 6e10:.0f} min ago" if ago_ns > GONE_ON_WITHIN_NS else "")
            if why:
                return self._end(f"nothing was run, and nothing is: {why}", now, why)
            is_measured = any(one.site is not None and one.site.state == "begins" for one in left.records)
            is_slow = self._promised != 1.0
            self._go("pacing" if is_slow and not is_measured else self._doing, "it is gone on with")
        elif commands.outcome is None and commands.name == "start" and commands.is_before:
            self._go("looking", "whether somebody has started the job meanwhile")
        else:
            self._go(self._doing, "it is gone on with")
        return []

    def _look(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """Whether a job that was stopped runs again, while nobody has followed it."""
        if self._where is None:
            self._where = Whereabouts(now.monotonic_ns)
        news = [one for one in results if one.attempt > self.incident.attempt]
        orders = self._where.step(news, now.monotonic_ns)
        if not self._where.is_over:
            return orders, []
        where, self._where = self._where, None
        if where.host_of:
            self._until_ns = now.unix_ns + RESTARTED_WITHIN_NS
            self._go("returning", "somebody has started the job")
        else:
            self._go(self._doing, "the job does not run")
        return orders, []

    def _measure(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """How fast it goes; a job that writes a checkpoint just now makes no steps, and is waited for."""
        orders, asked = self._pace(results, now)
        if asked is None:
            return orders, []
        self._before_s = asked.pace.step_time_s if asked.pace is not None else None
        is_asked = self.action is not RESTART_WITHOUT_RANK
        self._go("saving" if is_asked else self._doing, "the script is asked for a checkpoint")
        return orders, []

    def _save(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        if self._saving is None:
            self._saving = ApplyProcedure(self._next_ticket(), KIND, "null", APPLY_WITHIN_NS, now.monotonic_ns)
        orders = self._saving.step(results, now.monotonic_ns)
        if not self._saving.is_over:
            return orders, []
        if self._saving.outcome == "applied":
            self._saved = f"a checkpoint was written at step {self._saving.at_step}"
            self._go("saved", "the checkpoint is waited for")
        else:
            self._saved = f"no checkpoint was written for it ({self._saving.reason}); it goes on from its last one"
            self._go(self._doing, self._saved)
        return orders, []

    def _after_saving(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """Whoever makes steps again has written it."""
        orders, asked = self._pace(results, now, SAVED_AFTER_STEPS)
        if asked is not None:
            self._go(self._doing, self._saved)
        return orders, []

    def _run(self, now: Now) -> list[Decision]:
        """The site's commands, one after the other."""
        commands = self._commands
        assert commands is not None
        decisions = []
        for step, words in commands.step(now):
            assert step.step in COMMANDED
            known = replace(
                step,
                without=self._without,
                n_ranks=self._n_ranks,
                before_s=self._before_s,
                saved=self._saved,
            )
            decisions.append(self._decision(COMMANDED[step.step], words, now, site=known))
            if step.state == "begins":
                self._claim = decisions[-1]
        if commands.outcome in ("done", "begun"):
            self._until_ns = now.unix_ns + RESTARTED_WITHIN_NS
            self._go("returning", commands.reason or "the new attempt is waited for")
        elif commands.outcome == "failed":
            self._did_not_help(now)
            is_down = "; the job does not run" if self.state == "starting" else ""
            decisions += self._end(f"{self.state} has failed{is_down}: {commands.reason}", now, commands.reason)
        elif self.state != self._doing:
            self._go(self._doing, decisions[-1].reason if decisions else self.reason)
        return decisions

    def _did_not_help(self, now: Now) -> None:
        self._has_helped = False
        self.terms.limits.undone(now.monotonic_ns)

    def _values(self) -> dict[str, str]:
        attempt = str(self.incident.attempt)
        hosts = ",".join(self._without)
        return {"job": self.incident.job, "hosts": hosts, "incident": self.incident.id, "attempt": attempt}

    def _return(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """The pace of the attempt after this one."""
        if now.monotonic_ns < self._next_ns:
            return [], []
        news = [one for one in results if one.attempt > self.incident.attempt]
        orders, asked = self._pace(news, now, within_ns=AWAY_ATTEMPT_NS)
        if asked is None:
            return orders, []
        took_s = (now.unix_ns - self._commands.stopped_ns) / 1e9 if self._commands is not None else 0.0
        if asked.pace is None:
            self._next_ns = now.monotonic_ns + START_AGAIN_NS
            if now.unix_ns < self._until_ns:
                return orders, []
            self._did_not_help(now)
            return orders, self._end(f"nothing is seen of the job after {took_s:.0f} s: {asked.reason}", now)
        takes_s = asked.pace.step_time_s
        seen = 1.0 if self._before_s is None else 1.0 - takes_s / self._before_s
        seen_gain = None if self._before_s is None and self._promised != 1.0 else seen
        before = "" if self._before_s is None else f", {self._before_s * 1e3:.0f} ms before"
        words = f"the job is back after {took_s:.0f} s: iterations take {takes_s * 1e3:.0f} ms{before}"
        words += f"; {self._saved}" if self._saved else ""
        if again := sorted(set(asked.pace.hosts) & set(self._without)):
            words += f"; but it runs on {again[0]} again"
        if again or (seen_gain is not None and seen_gain < KEPT_SHARE * (self._promised or 0.0)):
            self._did_not_help(now)
            words += "; it did not help"
        return orders, self._end(words, now, seen_gain=seen_gain)
