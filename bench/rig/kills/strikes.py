"""One kill at one step of a protocol, and what came of it."""

from __future__ import annotations

import json
import queue
import random
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from actuators.validation.thresholds import BUDGET_S
from bench.rig import realjob
from bench.rig.kills.field import RANKS, Field
from bench.rig.loopback import kill

Protocol = Literal["hold", "validation", "order"]
Victim = Literal["controller", "head", "agent", "worker", "rank"]

STEPS: dict[Protocol, dict[str, float]] = {
    "hold": {"locating": 0.8, "gathering": 1.5, "held": 2.0, "over": 0.2},
    "validation": {"starting": 2.0, "holding": 2.0, "measuring": 1.5, "over": 0.2},
    "order": {"asking": 0.5, "arming": 0.2, "confirming": 0.1, "waiting": 7.0},
}
"""Of each protocol, and within how many seconds of its beginning somebody is killed: about as long as it lasts."""

HELD_S: dict[Victim, float] = {"controller": 2.0, "head": 2.0, "agent": 10.0, "worker": 10.0, "rank": 10.0}
"""So long ranks may stand still after a death, as docs/commands.md says; where a rank has died the others end, or go
on."""

SLACK_S = 1.0
"""Over that, for processes that wait for a processor."""

ENDS_WITHIN_S = 30.0
"""A job that has lost a rank: as long as torchrun takes without us."""

REACHED_WITHIN_S = 60.0
GOES_ON_WITHIN_S = 60.0
GOES_ON_STEPS = 25
TRIES = 4


@dataclass(frozen=True, slots=True)
class Kill:
    """Who is to be killed at which step."""

    protocol: Protocol
    step: str
    victim: Victim
    seed: int


@dataclass(frozen=True, slots=True)
class Struck:
    """What came of it.

    Attributes
    ----------
    step
        That was under way at the kill: it may have changed since the one that was waited for.
    stood_still_s
        The longest time between two steps of a rank after the kill; of a job that has ended, until it had.
    at_most_s
        What was promised of it.
    wrong
        What is not as promised; empty: all is.

    """

    kill: Kill
    step: str
    stood_still_s: float
    became: str
    at_most_s: float = 0.0
    wrong: str = ""


class _Controller:
    """A process of `bench.rig.kills.controller`, and what it has said."""

    def __init__(self, store: Path, job: str, protocol: Protocol) -> None:
        command = [sys.executable, "-m", "bench.rig.kills.controller", str(store), job, protocol]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=realjob.REPOSITORY
        )
        self.said: list[dict[str, Any]] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def reaches(self, step: str) -> bool:
        """Whether it comes to a step before it is over."""
        deadline_s = time.monotonic() + REACHED_WITHIN_S
        while self.step() not in (step, "over") and (left_s := deadline_s - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=left_s)
            except queue.Empty:
                break
            if line is None:
                break
            self.said.append(json.loads(line))
        return self.step() == step

    def step(self) -> str:
        """Where it is, as it has said."""
        while not self._lines.empty():
            if (line := self._lines.get()) is not None:
                self.said.append(json.loads(line))
        return str(self.said[-1]["state"]) if self.said else ""

    def ends(self) -> None:
        """By itself, or it is killed."""
        try:
            self.process.wait(REACHED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def at_step(self) -> int:
        """The step of the script at which an order was to be applied; -1: none was chosen."""
        self.step()
        return max((int(one["at_step"]) for one in self.said), default=-1)

    def last_words(self) -> str:
        """Why it was over."""
        self.step()
        return str(self.said[-1]["reason"]) if self.said else "it has said nothing"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def strike(field: Field, one: Kill) -> Struck:
    """Begin the protocol, kill somebody at the step, and look what comes of it; where it is over before, once more."""
    words = ""
    for number in range(TRIES):
        chance = random.Random(f"{one} {number}")
        controller = _Controller(field.hosts.store, field.hosts.job, one.protocol)
        try:
            if controller.reaches(one.step):
                time.sleep(chance.uniform(0.0, STEPS[one.protocol][one.step]))
                pid = _pid_of(field, controller, one.victim, chance)
                if pid and (one.step == "over" or controller.step() != "over"):
                    return _strike(field, one, controller, pid)
            words = controller.last_words()
            controller.ends()
        finally:
            controller.process.kill()
            controller.process.wait()
        time.sleep(chance.uniform(1.0, 3.0))
    return Struck(one, one.step, 0.0, "", wrong=f"it has not come to this step in {TRIES} tries: {words}")


def _pid_of(field: Field, controller: _Controller, victim: Victim, chance: random.Random) -> int:
    match victim:
        case "controller":
            return controller.process.pid
        case "head":
            return field.hosts.head_pid
        case "agent":
            return field.hosts.agent(chance.choice(sorted(field.hosts.runs)))
        case "worker":
            return chance.choice([*field.measuring(), 0])
    return field.pid(chance.randrange(RANKS))


def _strike(field: Field, one: Kill, controller: _Controller, pid: int) -> Struck:
    ranks = {rank: field.pid(rank) for rank in range(RANKS)}
    before = {rank: len(field.applied(rank)) for rank in ranks}
    step, at_s = controller.step(), time.monotonic()
    kill(pid)
    alive = [rank for rank, its in ranks.items() if its != pid]
    ends = field.together and one.victim == "rank"
    wrong = _ends(field) if ends else _goes_on(field, alive)
    stood_still_s = time.monotonic() - at_s if ends else max(field.stood_still_s(rank, at_s) for rank in alive)
    if not ends:
        controller.ends()
        applied_at = controller.at_step()
        realjob.until("the step of the order", lambda: field.has_passed(applied_at + 5), GOES_ON_WITHIN_S, 0.1)
        # Until all is over: somebody may have been held, or have gone on, late.
        stood_still_s = max(field.stood_still_s(rank, at_s) for rank in alive)
    at_most_s = HELD_S[one.victim]
    if controller.last_words() == "measured":  # whoever was killed has kept nobody from the measurement
        at_most_s = max(at_most_s, BUDGET_S)
    if not wrong and not ends and stood_still_s > at_most_s + SLACK_S:
        wrong = f"a rank stood still for {stood_still_s:.1f} s"
    new = {tuple(field.applied(rank)[before[rank] :]) for rank in alive}
    if len(new) != 1 and not ends:
        wrong = wrong or f"not all ranks have applied the same: {sorted(new)}"
    if not field.computes_what_it_should():
        wrong = wrong or "the ranks have not added up what an undisturbed job adds up"
    became = "ended" if ends else ("applied" if any(new) else controller.last_words())
    _made_good(field, one.victim, ends=ends)
    return Struck(one, step, stood_still_s, became, at_most_s, wrong)


def _ends(field: Field) -> str:
    """Why a job that has lost a rank has not ended as it would have, else nothing."""
    deadline_s = time.monotonic() + ENDS_WITHIN_S
    while not field.has_ended():
        if time.monotonic() > deadline_s:
            return f"the job has not ended within {ENDS_WITHIN_S:g} s"
        time.sleep(0.05)
    return ""


def _goes_on(field: Field, ranks: list[int]) -> str:
    """Why a job has not gone on, else nothing."""
    goals = {rank: int(field.steps(rank)["step"][-1]) + GOES_ON_STEPS for rank in ranks}
    deadline_s = time.monotonic() + GOES_ON_WITHIN_S
    while not all(field.steps(rank)["step"][-1] >= goal for rank, goal in goals.items()):
        if time.monotonic() > deadline_s:
            return f"not {GOES_ON_STEPS} steps within {GOES_ON_WITHIN_S:g} s"
        time.sleep(0.05)
    return ""


def _made_good(field: Field, victim: Victim, *, ends: bool) -> None:
    """For the next one."""
    if victim == "head":
        field.hosts.start_head()
    elif victim == "agent":
        realjob.until("agents again", lambda: all(map(field.hosts.agent, field.hosts.runs)), 60, 0.1)
    elif ends:
        field.begin()
    realjob.until("nobody measures any more", lambda: not field.measuring(), 60, 0.2)
