"""A restart leaves out the hosts to blame, after a checkpoint where it can; the new attempt's pace is its effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from actuators.acting.site import CommandName, Origin, Ran, Seen
from actuators.attendant import Rules
from actuators.modes import Modes
from actuators.site_commands import SiteCommands
from actuators.site_folder import SiteFolder
from pacehound.bus.signing import Keys
from pacehound.errors import InvalidSetting
from pacehound.model.events import Decision, Incident
from pacehound.settings import ActuatorSettings, Mode
from simulator.obedient_agents import ObedientAgents
from simulator.running_job import RunningJob
from tests.unit.actuators.test_attendant import SIGNER, Fleet, proven

RESTARTS = Modes.of_settings(Mode.OBSERVE, "j:checkpoint_restart=auto")


class Recorded:
    """A site that notes what is run; `fails` are the exit statuses of starts, in their order.

    What it has run outlives whoever has asked for it; `hook` is called at each moment at which that one can be killed.
    """

    def __init__(self, fails: list[int] | None = None, hook: Callable[[str], None] = lambda _: None) -> None:
        self.ran_commands: list[tuple[str, str, str]] = []
        self.fails, self.on_start, self.hook = fails or [], lambda: None, hook
        self.on_stop: Callable[[], None] = lambda: None
        self.runs: dict[str, Seen] = {}
        self._ends: dict[str, Ran] = {}
        self.noted: list[Decision] = []
        self.origin = Origin(by="b", where="w", host="h")
        self.refuses = ""
        self.is_slow = False

    def has(self, name: CommandName) -> bool:
        return name != "drain"

    def note(self, decision: Decision) -> None:
        self.hook("before it is noted")
        self.noted.append(decision)
        self.hook("after it was noted")

    def why_not(self, claim: Decision) -> str:
        return self.refuses

    def words(self, name: CommandName, values: Mapping[str, str]) -> str:
        return name

    def begin(self, run: str, name: CommandName, values: Mapping[str, str]) -> None:
        self.hook("before it is begun")
        if run not in self.runs:
            self.ran_commands.append((name, values["job"], values["hosts"]))
            status = self.fails.pop(0) if name == "start" and self.fails else 0
            if name == "stop":
                self.on_stop()
            if name == "start" and not status:
                self.on_start()
            self._ends[run] = Ran(status=status, said="no room" if status else "")
            self.runs[run] = "running" if self.is_slow else self._ends[run]
        self.hook("after it was begun")

    def seen(self, run: str) -> Seen:
        found = self.runs.get(run, "never begun")
        self.hook(f"when it is seen to be {found}")
        if found == "running":
            self.runs[run] = self._ends[run]
        return found


class Restarted(ObedientAgents):
    """Two ranks on two hosts; after the start both are on host 0, in the next attempt, and none is slow."""

    def __init__(self, *, saves: bool = True, hosts: Sequence[Sequence[int]] = ((0,), (1,))) -> None:
        kinds = ("microbatches", "checkpoint") if saves else ("microbatches",)
        super().__init__("j", RunningJob(slowness=[1.0, 2.0]), Keys([SIGNER.key]), hosts, kinds)

    @property
    def saved(self) -> int:
        """How many checkpoints were written because somebody asked."""
        return [kind for kind, _ in self.scripts.applied.values()].count("checkpoint")

    def start(self) -> None:
        self.attempt, self.hosts, self.job.slowness = 1, [(0, 1)], [1.0, 1.0]


def restarted(site: Recorded, scripts: Restarted, *, one: Incident | None = None, for_s: float = 200.0) -> Fleet:
    fleet = Fleet(rules=Rules(modes=RESTARTS, site=lambda: site))
    fleet.agents["j"] = scripts
    site.on_start = scripts.start
    fleet.attendant.on_incident(one or proven(excess_s=2_000.0))
    fleet.run(for_s)
    return fleet


def test_it_stops_and_starts_without_the_host_and_its_pace_is_the_effect() -> None:
    site, scripts = Recorded(), Restarted()
    fleet = restarted(site, scripts)
    assert site.ran_commands == [("stop", "j", "h1"), ("start", "j", "h1")]
    assert scripts.saved >= 1
    done, *commanded, over = fleet.decisions
    assert [one.action for one in commanded] == ["stop_job", "stop_job", "start_job", "start_job"]
    assert (done.action, done.taken, done.aimed_at) == ("checkpoint_restart", True, (1,))
    assert done.reason.startswith("the job stops, and starts again without h1")
    assert over.seen_gain == pytest.approx(0.5, abs=0.05)
    assert "a checkpoint was written at step" in over.reason
    assert fleet.open_ways == 0


def test_a_script_that_writes_no_checkpoint_when_asked_goes_on_from_its_last_one() -> None:
    site = Recorded()
    fleet = restarted(site, Restarted(saves=False))
    assert [name for name, *_ in site.ran_commands] == ["stop", "start"]
    assert "it goes on from its last one" in fleet.decisions[-1].reason


def test_a_start_that_fails_is_tried_again_and_one_that_always_fails_is_said() -> None:
    site = Recorded([1])
    assert restarted(site, Restarted()).decisions[-1].seen_gain is not None
    site = Recorded([1, 1, 1])
    last = restarted(site, Restarted()).decisions[-1]
    assert last.reason == "starting has failed; the job does not run: the command failed with 1: no room"
    assert [name for name, *_ in site.ran_commands] == ["stop", "start", "start", "start"]


def test_nothing_is_stopped_before_it_is_due_nor_where_no_host_would_be_left() -> None:
    site = Recorded()
    assert restarted(site, Restarted(), one=proven(excess_s=1_000.0), for_s=20).decisions == []

    (decision,) = restarted(site, Restarted(hosts=((0, 1),))).decisions
    assert (decision.taken, decision.limit) == (False, "no host would be left without h0")
    assert site.ran_commands == []


def test_a_site_without_commands_is_offered_no_restart() -> None:
    fleet = Fleet(rules=Rules(modes=RESTARTS))
    fleet.attendant.on_incident(proven(excess_s=2_000.0))
    fleet.run(30)
    assert (fleet.decisions, fleet.commands) == ([], [])


def ran(site: SiteCommands, run: str) -> Ran:
    for _ in range(10_000_000):
        if isinstance(found := site.seen(run), Ran):
            return found
    raise AssertionError


def test_a_command_is_run_without_a_shell_and_a_word_stays_a_word(tmp_path: Path) -> None:
    settings = ActuatorSettings(stop_command="echo 'a b' {job} -x={hosts}", start_command="/no/such/command {job}")
    site = SiteCommands(settings, SiteFolder(tmp_path / "site"))
    assert (site.has("stop"), site.has("drain")) == (True, False)
    values = {"job": "j; rm -rf {hosts}", "hosts": "h1,h2"}
    site.begin("1", "stop", values)
    assert ran(site, "1") == Ran(status=0, said="a b j; rm -rf {hosts} -x=h1,h2")
    assert site.words("stop", values).startswith("echo 'a b' 'j; rm")
    site.begin("2", "start", {"job": "j"})
    assert ran(site, "2") == Ran(status=127, said="/no/such/command: No such file or directory")
    with pytest.raises(InvalidSetting, match="stop_command"):
        SiteCommands(ActuatorSettings(stop_command="echo 'a"))
