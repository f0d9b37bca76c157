"""What is kept running beside the command: a head (unless somebody named an endpoint) and this host's agent."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pacehound.bus.otlp_headers import HEADERS_VARIABLE
from pacehound.errors import PacehoundError, Unavailable
from pacehound.launcher.attempt import WITHIN_S, ask_endpoint, ask_store, scheduled_attempt, unknown_attempt
from pacehound.launcher.command import Status
from pacehound.launcher.destination import Destination
from pacehound.launcher.handover import Handover, hand_over
from pacehound.launcher.restarting import RestartingProcess
from pacehound.launcher.run_dir import RunDir, read_notes, write_command, write_ended
from pacehound.launcher.secrets import without_secrets
from pacehound.model.events import Decision, Incident
from pacehound.model.short_job import FEWEST_ITERATIONS
from pacehound.pages.seen import seen_question
from pacehound.runtime.head.attempts import Answer
from pacehound.runtime.head.client import HeadClient
from pacehound.runtime.head.owner import announced
from pacehound.runtime.unsent import UnsentFolder, forget_old, store_name, unsent_folders
from pacehound.runtime.watched import Watched, read_watched, read_why_unseen

MAIN = Path(__file__).resolve().parents[1] / "__main__.py"
HEAD_OWNED = 3
"""Exit status of a head that found its store in other hands."""

_ATTACH_EVERY_S = 0.5
_SLOW_HEAD_S = 30.0
_BROKEN_HEAD_S = 4.0
"""So long a command that is over waits for a head that has ended by itself; one that is only slow to start, on a busy
machine, has all the time that is left for it."""
_BRIEF_S = 10.0
_UNSEEN_WITHIN_S = 0.5
"""A command that was over so soon, and in which nobody has begun to be watched, is no job: helpers that are only
starting are not waited for."""
_UNSEEN_FOR_S = 30.0
"""So long after the begin of a command it is told that nothing is seen of it, where its agent knows why: what lasts as
long is hardly one of a script's first steps."""
_AGENT_LETS_GO_S = 0.5
"""An agent that has ended holds the head no longer, as soon as the head has noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `pacehound run` was asked to do.

    Attributes
    ----------
    part
        Which part of its job the command is (pacehound/launcher/job.py).
    destination
        Where events go; `None`: to the head that owns `store`, or one started for it.
    overrides
        Settings as `key=value`, handed to the helpers.
    environ
        What the helpers inherit, less what is secret in it: that is handed over.

    """

    job: str
    host: str
    store: Path
    destination: Destination | None
    part: str = ""
    overrides: tuple[str, ...] = ()
    environ: Mapping[str, str]

    @property
    def goes_to(self) -> str:
        """The receiver, by a name under which a later run finds it again."""
        return self.destination.url if self.destination is not None else store_name(self.store)


class Watch:
    """Started before the command, looked after while it runs (`ensure_running`), ended after it.

    Nothing in here waits for long while the command runs; what fails is said once through `say`.
    """

    def __init__(self, plan: Plan, say: Callable[[str], object], now_s: float) -> None:
        self._plan = plan
        self._say = say
        self._head: RestartingProcess | None = None
        self._agent: RestartingProcess | None = None
        self._lease: socket.socket | None = None
        self._client: HeadClient | None = None
        self._is_page_told = False
        self._began_s = now_s
        self._next_attach_s = now_s
        self._slow_after_s = now_s + _SLOW_HEAD_S
        self._unseen_after_s = now_s + _UNSEEN_FOR_S
        self._lifeline, self._lifeline_end = _pipe()
        if plan.destination is None:
            plan.store.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.run_dir = RunDir(plan.job, plan.host)
        for remark in self.run_dir.remarks:
            say(remark)
        self._handed: list[int] = []
        self._unsent = self._begin_unsent()
        self._logs = plan.store
        if plan.destination is not None:
            self._logs = self._unsent.path if self._unsent is not None else self.run_dir.path
        try:
            self._start_agent(plan.destination or Destination(url=plan.goes_to), now_s)
            if plan.destination is None:
                self._attach()
                if self._lease is None:
                    self._start_head(now_s)
        except BaseException:
            self._release()
            self.run_dir.remove()
            if self._unsent is not None:
                self._unsent.remove()
            raise

    def attempt(self) -> int:
        """Which attempt of its job this run is, so that its events differ from those of an earlier run of that name.

        And from those of one that is live beside it: told of, and kept apart whatever a receiver has said.

        Takes 2 s at most. Who does not get an answer in that time gets a number that no other run has. Kafka is not
        asked, see `pacehound.launcher.attempt`.
        """
        plan = self._plan
        told = self._told_attempt()
        try:
            attempt, beside = self.run_dir.claim(told, plan.part)
        except OSError as error:  # shared memory is full
            self._say(f"other runs of job {plan.job} are not told of this one ({error})")
            return told
        if beside:
            self._say(
                f"another run of job {plan.job} is live on this host (attempt {', '.join(map(str, beside))}): this one "
                f"is attempt {attempt}, kept apart from it; give each job a name of its own (--job), or two parts of "
                "one job a host name each (--set host.name=NAME)"
            )
        return attempt

    def _told_attempt(self) -> int:
        plan = self._plan
        if plan.destination is None:
            return self._told_of_others(ask_store(self._client, plan.store, plan.job, plan.host))
        if plan.destination.is_kafka:
            return scheduled_attempt(plan.environ)
        question = f"which attempt of job {plan.job} this is"
        why = f"{plan.destination.url} has not said in {WITHIN_S:.0f} s {question}"
        try:
            found = ask_endpoint(plan.destination, plan.job, plan.host)
        except Unavailable as error:
            found, why = None, f"{error}. It was not asked {question}"
        if found is not None:
            return self._told_of_others(found)
        attempt = unknown_attempt(time.time())
        self._say(
            f"{why}: it is called attempt {attempt}, which no earlier run is; hosts of this run that were told "
            "another number are shown apart"
        )
        return attempt

    def _told_of_others(self, answer: Answer) -> int:
        if answer.live is not None:
            self._say(
                f"job {self._plan.job} runs on other hosts already (attempt {answer.live}), and its ranks have met "
                f"without this one: it is of attempt {answer.attempt}, as they are when they start again with it; "
                "another job needs another name (--job)"
            )
        return answer.attempt

    def note_command(self, pid: int) -> None:
        """The command runs: its agent may have to know when this process is gone."""
        write_command(self.run_dir.path, pid)

    def ensure_running(self, now_s: float) -> None:
        """Start again what has died, and find the head that owns the store."""
        if self._agent is not None:
            self._agent.ensure_running(now_s)
        if now_s >= self._unseen_after_s:
            self._tell_why_unseen(now_s)
        if self._plan.destination is not None:
            return
        if self._lease is not None and _is_gone(self._lease):
            self._lease.close()
            self._lease, self._client = None, None
        if self._head is not None and self._head.exit_code == HEAD_OWNED:
            self._head = None  # somebody else was quicker: their head is ours, too
        elif self._head is not None:
            self._head.ensure_running(now_s)
        if self._lease is None and now_s >= self._next_attach_s:
            self._next_attach_s = now_s + _ATTACH_EVERY_S
            self._attach()
            if self._lease is None and self._head is None:
                self._start_head(now_s)
        if self._lease is None and now_s >= self._slow_after_s:
            self._slow_after_s = float("inf")
            words = self._head.exit_words() if self._head is not None else "not started"
            self._say(f"the head has not answered yet ({words}); the command runs on")

    def _tell_why_unseen(self, now_s: float) -> None:
        """Once: at the end of a long run it is too late to know."""
        why = read_why_unseen(self.run_dir.path)
        self._unseen_after_s = float("inf") if why else now_s + _UNSEEN_FOR_S
        if why:
            self._say(f"nothing is seen of job {self._plan.job} so far: {why}")

    def end(self, status: Status, why: str, deadline_s: float, should_stop: Callable[[], bool]) -> Outcome:
        """Let agent and head finish the job's events, until `deadline_s` (monotonic) at the latest."""
        write_ended(self.run_dir.path, exit_code=status.exit_code, signal_number=status.signal_number, why=why)
        os.write(self._lifeline_end, b"\n")
        now_s = time.monotonic()
        if self._plan.destination is None and self._lease is None and not self._is_head_starting():
            deadline_s = min(deadline_s, now_s + _BROKEN_HEAD_S)
        is_brief = not self.run_dir.is_used() and now_s < self._began_s + _BRIEF_S
        agent_by_s = min(deadline_s, now_s + _UNSEEN_WITHIN_S) if is_brief else deadline_s
        agent_done = self._wait(lambda: self._agent is None or not self._agent.is_alive, agent_by_s, should_stop)
        if self._agent is None:
            agent_done = False
        if is_brief and not (agent_done and (self._plan.destination is not None or self._lease is not None)):
            return self._end_unseen(deadline_s, should_stop)
        if self._plan.destination is None and self._lease is None:
            self._wait(self._attached, deadline_s, should_stop)
        outcome = self._ask(max(0.5, deadline_s - time.monotonic()), agent_done)
        watched = read_watched(self.run_dir.path)
        outcome = replace(
            outcome,
            watched=watched,
            why_unseen=read_why_unseen(self.run_dir.path),
            iterations=self._iterations(watched),
            notes=tuple(read_notes(self.run_dir.path)),
            kept_in=self._end_unsent(watched),
        )
        ending_head = self._head_that_ends_with_us()
        self._release()
        if ending_head is not None:
            # Whoever asks next finds the store closed, not closing.
            self._wait(lambda: self._has_left(ending_head), deadline_s + 5.0, should_stop)
        if self._agent is not None:
            self._agent.stop()
        self.run_dir.remove()
        return outcome

    def _end_unseen(self, deadline_s: float, should_stop: Callable[[], bool]) -> Outcome:
        """Nobody is waited for but a head that ends with us: whoever asks next finds the store closed."""
        if self._agent is not None:
            self._agent.stop()
        outcome = Outcome(
            sent_to=self._plan.destination.url if self._plan.destination is not None else "",
            watched=read_watched(self.run_dir.path) or Watched(),
            notes=tuple(read_notes(self.run_dir.path)),
        )
        ending_head = self._head_that_ends_with_us()
        self._release()
        if ending_head is not None:
            self._wait(lambda: self._has_left(ending_head), deadline_s, should_stop)
        self.run_dir.remove()
        if self._unsent is not None:
            self._unsent.remove()
        return outcome

    def _begin_unsent(self) -> UnsentFolder | None:
        """Where the agent keeps what is not delivered: on disk, for shared memory is the job's."""
        parents = unsent_folders(self._plan.environ)
        try:
            for parent in parents:
                for dropped in forget_old(parent, time.time_ns()):
                    self._say(dropped)
            return UnsentFolder.begin(parents, self._plan.job, self._plan.goes_to, time.time_ns())
        except OSError as error:
            self._say(f"no folder on disk for what cannot be delivered ({error}): it is kept in memory, not longer")
            return None

    def _end_unsent(self, watched: Watched | None) -> Path | None:
        """Leave to a successor what was not delivered; where it lies, `None` where nothing does."""
        unsent, self._unsent = self._unsent, None
        if unsent is None:
            return None
        has_left_something = unsent.outbox.exists() if watched is None else watched.unsent > 0 and watched.is_saved
        if not has_left_something:
            unsent.remove()
            return None
        unsent.release()
        return unsent.path

    def _ask(self, timeout_s: float, agent_done: bool) -> Outcome:
        if self._plan.destination is not None:
            return Outcome(sent_to=self._plan.destination.url, is_complete=agent_done)
        if self._client is None:
            return Outcome(is_complete=False)
        try:
            settled = self._client.settle(timeout_s)
            incidents, decisions = self._client.incidents(self._plan.job)
            problems = self._client.health().problems
        except PacehoundError as error:
            self._say(f"the head does not answer: {error}")
            return Outcome(is_complete=False)
        return Outcome(
            incidents=tuple(incidents),
            decisions=tuple(decisions),
            is_complete=settled and agent_done,
            head_problems=problems,
        )

    def _iterations(self, watched: Watched | None) -> int | None:
        """How many the streams have seen, by optimizer steps or by what recurs; `None` where nobody says."""
        if self._client is None or watched is None or not watched.calls:
            return None
        if watched.iterations >= FEWEST_ITERATIONS:
            return watched.iterations
        try:
            (row,) = self._client.rows(seen_question(self._plan.job))
        except PacehoundError:
            return None
        return int(row["iterations"])

    def _wait(self, done: Callable[[], bool], deadline_s: float, should_stop: Callable[[], bool]) -> bool:
        while not done():
            if time.monotonic() >= deadline_s or should_stop():
                return False
            time.sleep(0.05)
        return True

    def _is_head_starting(self) -> bool:
        return self._head is not None and self._head.is_alive and not self._head.has_died

    def _attached(self) -> bool:
        self._attach()
        return self._lease is not None

    def _attach(self) -> None:
        owner = announced(self._plan.store)
        if owner is None:
            return
        client = HeadClient(Path(owner.socket), timeout_s=0.5)
        try:
            self._lease = client.lease(self._plan.job)
        except Unavailable:
            return
        self._client = HeadClient(Path(owner.socket), timeout_s=15.0)
        if owner.page and not self._is_page_told:
            self._is_page_told = True
            self._say(f"watching job {self._plan.job}: {owner.page}")

    def _start_head(self, now_s: float) -> None:
        handed = self._hand_over(Handover(overrides=self._plan.overrides))
        arguments = ["up", "--store", str(self._plan.store), "--until-released"]
        self._head = RestartingProcess(
            "head",
            [*_program(), *arguments, "--handover-fd", str(handed)],
            self._environ_of_helpers(),
            [handed],
            self._logs / "head.log",
            self._say,
        )
        self._head.start(now_s)

    def _start_agent(self, destination: Destination, now_s: float) -> None:
        handed = self._hand_over(
            Handover(
                overrides=self._plan.overrides,
                endpoint=destination.url,
                headers=dict(destination.headers),
                trust=destination.trust,
            )
        )
        arguments = ["agent", "--run-dir", str(self.run_dir.path), "--job", self._plan.job]
        arguments += ["--lifeline-fd", str(self._lifeline), "--handover-fd", str(handed)]
        descriptors = [self._lifeline, handed, self.run_dir.lock]
        if self._unsent is not None:
            arguments += ["--unsent", str(self._unsent.path)]
            descriptors.append(self._unsent.lock)
        self._agent = RestartingProcess(
            "agent",
            [*_program(), *arguments],
            self._environ_of_helpers(),
            descriptors,
            self._logs / "agent.log",
            self._say,
        )
        self._agent.start(now_s)

    def _hand_over(self, handover: Handover) -> int:
        self._handed.append(hand_over(handover))
        return self._handed[-1]

    def _environ_of_helpers(self) -> dict[str, str]:
        """Everybody of this user can read it for as long as the helper runs."""
        environ = without_secrets(self._plan.environ)
        environ.pop(HEADERS_VARIABLE, None)
        return environ

    def _head_that_ends_with_us(self) -> int | None:
        if self._client is None:
            return None
        last_look_s = time.monotonic() + _AGENT_LETS_GO_S
        while True:
            try:
                status = self._client.status()
            except PacehoundError:
                return None
            if not status["until_released"]:
                return None
            if status["leases"] == 1:
                return int(status["pid"])
            if time.monotonic() >= last_look_s:
                return None
            time.sleep(0.05)

    def _has_left(self, pid: int) -> bool:
        if self._head is not None:
            return not self._head.is_alive
        owner = announced(self._plan.store)
        return owner is None or owner.pid != pid

    def _release(self) -> None:
        if self._lease is not None:
            self._lease.close()
        for descriptor in self._handed:
            os.close(descriptor)
        self._handed.clear()
        self._lease = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a run, as far as it could be learnt in time."""

    incidents: tuple[Incident, ...] = ()
    decisions: tuple[Decision, ...] = ()
    sent_to: str = ""
    is_complete: bool = True
    watched: Watched | None = None
    """What its agent has said of itself."""
    why_unseen: str = ""
    """Why nothing is seen of a process of it, where its agent knows."""
    iterations: int | None = None
    """Of the job, as the streams have counted them; `None` where nobody says."""
    head_problems: tuple[str, ...] = ()
    """What is not as it should be in the head."""
    notes: tuple[str, ...] = ()
    """What the ranks could not do."""
    kept_in: Path | None = None
    """Where that lies which was not delivered."""


def _program() -> list[str]:
    # By path and with -P: whatever lies in the working directory or on PYTHONPATH, this package is the one that runs.
    return [sys.executable, "-P", str(MAIN)]


def _is_gone(lease: socket.socket) -> bool:
    lease.setblocking(False)
    try:
        while lease.recv(4096):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def _pipe() -> tuple[int, int]:
    """(end for the agent, end kept here): what the agent reads tells it to look; its end is closed when we are gone."""
    return os.pipe2(os.O_CLOEXEC)
