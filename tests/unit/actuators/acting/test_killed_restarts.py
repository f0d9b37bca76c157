"""A restart that was ordered survives whoever has ordered it, at every moment; no command of the site runs twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from actuators.acting.commanding import left_restarts, who_else
from actuators.attendant import Attendant, Rules
from actuators.modes import Modes
from pacehound.model.events import Command, Decision, Incident, SiteStep
from pacehound.model.topics import INCIDENTS, partition_of
from pacehound.settings import Mode
from tests.fakes.examples import some, tries
from tests.unit.actuators.acting.test_restarting import RESTARTS, Recorded, Restarted
from tests.unit.actuators.test_attendant import SIGNER, STEP_NS, Fleet, proven

MINE = {partition_of(b"j", INCIDENTS.partitions)}
MOST_STEPS = 4_000


class Killed(Exception):
    """Whoever acts is gone, in the middle of what it did."""


class Down(Restarted):
    """Its agents say nothing from the stop to the start."""

    is_down = False

    def command(self, command: Command) -> None:
        if not self.is_down:
            super().command(command)

    def stop(self) -> None:
        self.is_down = True

    def start(self) -> None:
        self.is_down = False
        super().start()


class World:
    """What outlives an attendant: the site, the job, the log, the clock. `kills` are the moments at which it is killed,
    by their number; `moments` is what has been one."""

    def __init__(self, kills: set[int] | None = None, fails: list[int] | None = None, saves: bool = True) -> None:
        self.kills, self.moments = kills or set(), list[str]()
        self.site = Recorded(fails, self._moment)
        self.site.is_slow = True
        self.log: list[Decision] = []
        self.scripts = Down(saves=saves)
        self.site.on_start, self.site.on_stop = self.scripts.start, self.scripts.stop
        self.modes = RESTARTS
        self.fleet = Fleet(rules=self._rules())
        self.fleet.agents["j"] = self.scripts
        self.incident: Incident = proven(excess_s=2_000.0)
        self.between: Callable[[], None] = lambda: None
        self._begin()

    def _rules(self) -> Rules:
        return Rules(modes=self.modes, site=lambda: self.site, noted=lambda: list(self.site.noted))

    def _begin(self) -> None:
        self.fleet.attendant = Attendant(SIGNER, self.fleet.clock, self.fleet._reach, self._rules())
        self.log += self.fleet.attendant.take_up(list(self.log), MINE)
        self.fleet.attendant.on_incident(self.incident)

    def _moment(self, what: str) -> None:
        self.moments.append(what)
        if len(self.moments) - 1 in self.kills:
            raise Killed(what)

    def _step(self) -> None:
        before = self._state()
        decisions = self.fleet.attendant.step()
        if decisions:
            self._moment(f"before it is stored: {decisions[-1].action}")
        self.log += decisions
        if decisions:
            self._moment(f"after it was stored: {decisions[-1].action}")
        self.fleet.attendant.on_settled()
        if self._state() != before:
            self._moment(f"it is {self._state()}")

    def _state(self) -> str:
        act = self.fleet.attendant._jobs["j"].act
        return act.state if act is not None else ""

    def run(self, away_s: float = 2.0) -> None:
        """Until it is over, or nothing more comes."""
        for _ in range(MOST_STEPS):
            try:
                self._step()
            except Killed:
                self.between()
                self._pass(away_s)
                self._begin()
            if self.over and not self._state():
                break
            self._pass(STEP_NS / 1e9)
        for _ in range(100):  # nothing is done about it once more
            self._step()
            self._pass(STEP_NS / 1e9)

    def _pass(self, seconds: float) -> None:
        for _ in range(round(seconds * 1e9 / STEP_NS)):
            self.fleet.clock.advance_s(STEP_NS / 1e9)
            self.scripts.advance(STEP_NS)

    @property
    def over(self) -> list[Decision]:
        found = {one.identity(): one for one in self.log if one.site is not None and one.site.step == "over"}
        return list(found.values())

    @property
    def ran(self) -> list[str]:
        return [name for name, *_ in self.site.ran_commands]


def undisturbed(**how: Any) -> World:
    world = World(**how)
    world.run()
    return world


def assert_restarted_once(world: World, why: str) -> None:
    assert world.ran == ["stop", "start"], why
    (over,) = world.over
    assert over.seen_gain is not None, f"{why}: {over.reason}"
    assert over.seen_gain == pytest.approx(0.5, abs=0.06), why
    assert left_restarts(world.log) == [], why
    assert (world.scripts.attempt, world.scripts.is_down) == (1, False)


def test_killed_at_every_moment_the_job_is_restarted_once() -> None:
    moments = undisturbed().moments
    assert len(moments) >= 24, moments
    killed = set()
    for number, what in enumerate(moments):
        world = World({number})
        world.run()
        assert_restarted_once(world, f"killed {what} ({number})")
        killed.add(what)
    assert {"before it is begun", "after it was begun", "when it is seen to be running"} <= killed


def test_killed_again_and_again_the_job_is_restarted_once() -> None:
    draw = random.Random(7)
    n = len(undisturbed().moments)
    for _ in tries(8, deep=250):
        kills = {draw.randrange(n + 10) for _ in range(draw.randrange(2, 6))}
        world = World(kills)
        world.run()
        assert_restarted_once(world, f"killed at {sorted(kills)}")


def test_a_start_that_has_failed_before_it_was_killed_is_tried_again_and_not_the_stop() -> None:
    moments = undisturbed(fails=[1]).moments
    for number, what in some(list(enumerate(moments)), 4):
        world = World({number}, fails=[1])
        world.run()
        assert world.ran == ["stop", "start", "start"], f"killed {what} ({number})"
        assert world.over[0].seen_gain == pytest.approx(0.5, abs=0.06)


def killed_when(what: str, **how: Any) -> World:
    """At the first moment of that name."""
    return World({undisturbed(**how).moments.index(what)}, **how)


def test_what_was_begun_and_cannot_be_seen_to_end_is_not_begun_again() -> None:
    world = killed_when("after it was begun")
    world.between = lambda: world.site.runs.update(dict.fromkeys(world.site.runs, "lost"))
    world.run()
    assert world.ran == ["stop"]
    (over,) = world.over
    assert over.reason.startswith("stopping has failed: the stop command was begun by somebody who was ended, and how")
    assert over.reason.endswith("it is not run again")


def test_a_start_of_which_nobody_knows_how_it_has_ended_is_judged_by_the_job() -> None:
    moments = undisturbed().moments
    second = [number for number, what in enumerate(moments) if what == "after it was begun"][1]
    world = World({second})

    def lose() -> None:
        world.site.runs[list(world.site.runs)[-1]] = "lost"

    world.between = lose
    world.run()
    assert_restarted_once(world, "the runner of the start has gone")


def test_on_another_host_it_is_not_begun_again() -> None:
    world = killed_when("after it was begun")

    def move() -> None:
        world.site.origin = type(world.site.origin)(by="c", where="elsewhere", host="h2")
        world.site.noted = []

    world.between = move
    world.run()
    assert world.ran == ["stop"]
    assert "the stop command was begun on h, by somebody who has gone" in world.over[0].reason


def test_nothing_is_run_where_it_is_too_late_or_the_mode_is_another_one() -> None:
    for why, between in (
        ("it was ordered 1000 min ago", lambda world: world.fleet.clock.advance_s(60_000)),
        ("the mode is another one", lambda world: setattr(world, "modes", Modes.of_settings(Mode.OBSERVE, ""))),
    ):
        world = killed_when("it is saving")
        world.between = lambda world=world, between=between: between(world)
        world.run()
        assert world.ran == []
        assert world.over[0].reason.startswith(f"nothing was run, and nothing is: {why}")


def test_a_job_that_was_stopped_is_started_whatever_the_mode_is_by_then() -> None:
    moments = undisturbed().moments
    world = World({moments.index("it is starting")})
    world.between = lambda: setattr(world, "modes", Modes.of_settings(Mode.OBSERVE, ""))
    world.run(away_s=20.0)
    assert world.ran == ["stop", "start"]


def test_a_job_that_somebody_has_started_meanwhile_is_not_started_again() -> None:
    world = World({undisturbed().moments.index("it is starting")})
    world.between = world.scripts.start
    world.run()
    assert world.ran == ["stop"]
    assert world.over[0].seen_gain == pytest.approx(0.5, abs=0.06)


def test_what_cannot_be_written_down_is_not_begun() -> None:
    world = World()
    is_full = [True]

    def note(decision: Decision, noted: Callable[[Decision], None] = world.site.note) -> None:
        if is_full[0]:
            raise OSError(28, "no space left on device")
        noted(decision)

    world.site.note = note  # type: ignore[method-assign]
    for _ in range(600):
        world._step()
        world._pass(STEP_NS / 1e9)
    assert world.ran == []
    is_full[0] = False
    world.run()
    assert_restarted_once(world, "there is room again")


def test_what_the_store_has_lost_is_said_again() -> None:
    world = World()
    for _ in range(MOST_STEPS):
        world._step()
        world._pass(STEP_NS / 1e9)
        if world.ran:
            break
    world.log.clear()
    world._begin()
    assert [one.action for one in world.log] == ["checkpoint_restart", "stop_job"]


# Who is the first, where several may be.


def ordered(incident: str = "i1", time_ns: int = 1) -> Decision:
    return Decision(
        job="j", attempt=0, time_ns=time_ns, incident=incident, incident_version=0, mode="auto",
        action="checkpoint_restart", reason="", price_s=1.0, loss_s=2.0, number=1, taken=True,
        site=SiteStep(step="decided", without=("h1",), n_ranks=2),
    )  # fmt: skip


def claim(of: Decision, by: str, where: str) -> Decision:
    site = SiteStep(step="stop", restart=of.identity(), by=by, where=where, host=f"host of {where}")
    return Decision(
        job="j", attempt=0, time_ns=2, incident=of.incident, incident_version=0, mode="auto", action="stop_job",
        reason="", price_s=0.0, loss_s=2.0, number=2, taken=True, site=site,
    )  # fmt: skip


def test_whoever_has_written_first_runs_it() -> None:
    one = ordered()
    first, second, same_folder = claim(one, "a", "w1"), claim(one, "b", "w2"), claim(one, "c", "w1")
    log = [one, first, second, same_folder]
    assert who_else(log, first) == ""
    assert who_else(log, second) == "somebody on host of w1 runs the stop command"
    assert who_else(log, same_folder) == "", "of one folder a run is begun once"
    assert who_else([one], first) == "what was written down does not stand in the log"
    assert first.identity() != second.identity()


def test_a_job_has_one_restart_at_a_time() -> None:
    one, other = ordered("i1"), ordered("i2", time_ns=5)
    mine = claim(other, "b", "w2")
    assert who_else([one, other, mine], mine) == "another restart of this job is under way, of incident i1"
    over = Decision(
        job="j", attempt=0, time_ns=9, incident="i1", incident_version=0, mode="auto", action="track", reason="",
        price_s=0.0, loss_s=0.0, number=9, taken=True,
        site=SiteStep(step="over", restart=one.identity(), state="ended", status=0),
    )  # fmt: skip
    assert who_else([one, over, other, mine], mine) == ""
