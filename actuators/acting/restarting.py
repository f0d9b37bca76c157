"""S4: a job starts again without the hosts that are to blame, from a checkpoint; pure.

The script is asked for a checkpoint where it takes such orders; then the site's own commands stop the job and start it
elsewhere, and it is seen by the pace of the new attempt whether that has helped. Scripts that save checkpoints by
themselves need not be changed. A restart cannot be taken back: where it has not helped nothing is tried for a while.
"""

from __future__ import annotations

from collections.abc import Sequence

from actuators.acting.act import Act, Terms
from actuators.acting.site import CommandName, Ran, Site
from actuators.acting.whereabouts import Whereabouts
from actuators.control.applying import ApplyProcedure
from actuators.mitigation.actions import DRAIN_HOST, RESTART_WITHOUT_RANK, Action
from actuators.mitigation.loss import gravest, loss_rate
from actuators.mitigation.thresholds import (
    APPLY_WITHIN_NS,
    AWAY_ATTEMPT_NS,
    KEPT_SHARE,
    MOST_STARTS,
    RESTARTED_WITHIN_NS,
    SAVED_AFTER_STEPS,
    START_AGAIN_NS,
)
from actuators.now import Now
from pacehound.model.events import Decision, Finding, Incident
from pacehound.model.events.control import CommandResult
from pacehound.model.orders import What

KIND = "checkpoint"
"""The order that a script takes which writes a checkpoint when it is asked."""


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

    """

    first = "locating"

    def __init__(self, action: Action, incident: Incident, ticket: int, terms: Terms, site: Site) -> None:
        super().__init__(action, incident, ticket, terms)
        self._site = site
        self._where: Whereabouts | None = None
        self._saving: ApplyProcedure | None = None
        self._without: tuple[str, ...] = ()
        self._before_s: float | None = None
        self._saved = ""
        self._n_ranks = self._starts = 0
        self._stopped_ns = self._next_ns = self._until_ns = 0

    def is_wanted(self) -> bool:
        """Whether an incident that goes on has culprits, and the site has commands for it."""
        return self._finding_now() is not None and not self._missing_command()

    @property
    def is_for_any_attempt(self) -> bool:
        """Of the new attempt only its agents know the number."""
        return self.state == "returning"

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
        is_slow = finding.kind == "slow"
        self._go("pacing" if is_slow else self._first_command, "how fast the job goes" if is_slow else "it is stopped")
        return orders, [self._decision(self.action, words, now)]

    @property
    def _first_command(self) -> str:
        return "draining" if self.action is DRAIN_HOST else "stopping"

    def _measure(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """How fast it goes; a job that writes a checkpoint just now makes no steps, and is waited for."""
        orders, asked = self._pace(results, now)
        if asked is None:
            return orders, []
        self._before_s = asked.pace.step_time_s if asked.pace is not None else None
        is_asked = self.action is not RESTART_WITHOUT_RANK
        self._go("saving" if is_asked else self._first_command, "the script is asked for a checkpoint")
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
            self._go(self._first_command, self._saved)
        return orders, []

    def _after_saving(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """Whoever makes steps again has written it."""
        orders, asked = self._pace(results, now, SAVED_AFTER_STEPS)
        if asked is not None:
            self._go(self._first_command, self._saved)
        return orders, []

    def _run(self, now: Now) -> list[Decision]:
        """The site's commands, one after the other; a start that fails is tried again."""
        if now.monotonic_ns < self._next_ns:
            return []
        if self._until_ns == 0:
            names: dict[str, CommandName] = {"draining": "drain", "stopping": "stop", "starting": "start"}
            if self.state == "stopping":
                self._stopped_ns = now.monotonic_ns
            said = self._site.begin(names[self.state], self._values())
            self.reason, self._until_ns = said, now.monotonic_ns
            return []
        ran = self._site.ran()
        if ran is None:
            return []
        self._until_ns = 0
        return self._after(ran, now)

    def _values(self) -> dict[str, str]:
        attempt = str(self.incident.attempt)
        hosts = ",".join(self._without)
        return {"job": self.incident.job, "hosts": hosts, "incident": self.incident.id, "attempt": attempt}

    def _after(self, ran: Ran, now: Now) -> list[Decision]:
        if ran.status == 0 and self.state == "starting":
            self._until_ns = now.monotonic_ns + RESTARTED_WITHIN_NS
            self._go("returning", "the new attempt is waited for")
        elif ran.status == 0:
            self._go("stopping" if self.state == "draining" else "starting", ran.said)
        elif self.state == "starting" and self._starts + 1 < MOST_STARTS:
            self._starts += 1
            self._next_ns = now.monotonic_ns + START_AGAIN_NS
        else:
            self.terms.limits.undone(now.monotonic_ns)
            is_down = "; the job does not run" if self.state == "starting" else ""
            why = f"the command failed with {ran.status}: {ran.said}"
            return self._end(f"{self.state} has failed{is_down}: {why}", now, why)
        return []

    def _return(self, results: Sequence[CommandResult], now: Now) -> tuple[list[What], list[Decision]]:
        """The pace of the attempt after this one."""
        if now.monotonic_ns < self._next_ns:
            return [], []
        news = [one for one in results if one.attempt > self.incident.attempt]
        orders, asked = self._pace(news, now, within_ns=AWAY_ATTEMPT_NS)
        if asked is None:
            return orders, []
        took_s = (now.monotonic_ns - self._stopped_ns) / 1e9
        if asked.pace is None:
            self._next_ns = now.monotonic_ns + START_AGAIN_NS
            if now.monotonic_ns < self._until_ns:
                return orders, []
            self.terms.limits.undone(now.monotonic_ns)
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
            self.terms.limits.undone(now.monotonic_ns)
            words += "; it did not help"
        return orders, self._end(words, now, seen_gain=seen_gain)
