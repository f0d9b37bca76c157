"""The whole engine under load, in which processes are killed and stopped at random moments; and what must come of it.

A real job of two ranks under `pacehound run --endpoint kafka://…` with its agent, and simulated jobs put on Kafka; two
workers of the streams, a writer, a store behind HTTP, a broker. Whoever is killed is started again, as a supervisor
would.

At the end everything must be there: each call of the real job and of the simulated ones exactly once, each version of
each incident that follows from the log, in order, and no other.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.rig import realjob
from bench.rig.broker import Broker
from bench.rig.clickhouse import ClickHouseProcess
from bench.rig.engine import Engine
from bench.rig.from_log import Versions, from_log, said_incidents
from bench.rig.simulated_load import SimulatedLoad
from pacehound.bus.kafka_state import kafka_state
from pacehound.errors import Unavailable
from pacehound.settings import Settings
from storage.client import Store

VICTIMS = ("worker", "writer", "agent", "broker")
STOPPED_S = 12.0
REAL_RANKS = 2
REAL_JOB = "steady"
QUIET_S = 8.0
"""Nothing is on its way when nobody lags for so long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was counted at the end of a run in which everything was right."""

    faults: int
    calls: int
    real_calls: int
    incident_versions: int
    simulated_jobs: int
    jobs_as_embedded: int
    ticks: int
    longest_step_s: float
    longest_control_step_s: float
    """Of the same job, beside it and not watched."""
    held_by_us_s: float
    """The longest step less what the control was held in that time."""
    most_agent_mib: float
    most_worker_mib: float
    most_writer_mib: float
    caught_up_after_s: float
    lasted_s: float


@dataclass
class _PeakMemory:
    """The largest resident set of each kind of process so far."""

    mib: dict[str, float] = field(default_factory=dict)

    def look(self, what: str, pid: int) -> None:
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return
        now_mib = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        self.mib[what] = max(self.mib.get(what, 0.0), now_mib)


def held_alone_s(times_s: Sequence[float], control_s: Sequence[float]) -> float:
    """How much longer a step took than the longest one of the control in its time; the most over all steps.

    >>> held_alone_s([0.0, 1.0, 5.0, 6.0], [0.0, 1.5, 4.5, 6.0])
    1.0
    """
    control = list(itertools.pairwise(control_s))
    most_s, first = 0.0, 0
    for before, after in itertools.pairwise(times_s):
        while first < len(control) and control[first][1] <= before:
            first += 1
        longest_beside_s, at = 0.0, first
        while at < len(control) and control[at][0] < after:
            longest_beside_s = max(longest_beside_s, control[at][1] - control[at][0])
            at += 1
        most_s = max(most_s, after - before - longest_beside_s)
    return most_s


class FaultRun:
    """The processes, the load, and what kills and stops them.

    Parameters
    ----------
    folder
        Where everything is kept; new.
    seed
        Of the faults and of the simulated jobs.
    say
        Told what is done.
    load_ranks
        Of each simulated job.
    step_s
        How long a step of the real job, and of its control, waits.

    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        say: Callable[[str], None] = lambda line: None,
        *,
        load_ranks: int = 16,
        step_s: float = 0.05,
    ) -> None:
        self.folder = folder
        self._step_s = step_s
        self._rng = random.Random(seed)
        self._say = say
        self._peak = _PeakMemory()
        self.faults: list[str] = []
        self.broker = Broker(folder / "kafka")
        self.broker.start()
        self.store = ClickHouseProcess(folder / "store")
        self.engine = Engine(self.broker.settings("faults."), folder / "engine")
        self.load = SimulatedLoad(self.engine.settings, seed, load_ranks)
        self._writer: subprocess.Popen[bytes] | None = None
        self._job: realjob.Run | None = None
        self._control: subprocess.Popen[bytes] | None = None
        self._began_s = time.monotonic()

    def start(self) -> None:
        """Everything; returns when the real job trains."""
        for _ in range(2):
            self.engine.start_worker()
        self._writer = self._started_writer()
        job = self.folder / "job"
        job.mkdir()
        self._job = realjob.start(
            job,
            realjob.forked(self._step_s, job, ranks=REAL_RANKS, script=realjob.STEADY),
            *("--endpoint", f"kafka://{self.broker.servers}", "--job", REAL_JOB),
            settings=[f"kafka.prefix={self.engine.settings.prefix}"],
        )
        control = self.folder / "control"
        control.mkdir()
        with (control / "log").open("wb") as log:
            self._control = subprocess.Popen(
                realjob.forked(self._step_s, control, ranks=REAL_RANKS, script=realjob.STEADY),
                stdout=log,
                stderr=log,
                env=realjob.environment(),
                cwd=control,  # and in our session, as the job is: the kernel shares processors among sessions first
            )
        self.load.start()
        realjob.until("the job's first steps", lambda: len(self.step_times_s()) >= 5, 120, 0.2)
        realjob.until("the control's first steps", lambda: len(self.step_times_s("control")) >= 5, 120, 0.2)

    def step_times_s(self, job: str = "job") -> list[float]:
        """When each step of the real job, or of its control, ended, by its own log."""
        return realjob.steady_step_ends_s(self.folder / job)

    # Faults

    def inject_faults(self, n: int, between_s: tuple[float, float] = (2.0, 6.0)) -> Iterator[str]:
        """So many faults, the victims in turn, every third a stop; each time what was done."""
        for number in range(n):
            self.pass_time(self._rng.uniform(*between_s))
            self.inject(VICTIMS[number % len(VICTIMS)], stops=number % 3 == 2)
            yield self.faults[-1]

    def inject(self, victim: str, *, stops: bool) -> None:
        """Kill it with -9, or stop it for twelve seconds and let it go on."""
        pid, process = self._victim(victim)
        if stops:
            os.kill(pid, signal.SIGSTOP)
            self.pass_time(STOPPED_S)
            os.kill(pid, signal.SIGCONT)
        else:
            os.kill(pid, signal.SIGKILL)
            if process is not None:
                process.wait(30)
        self._note(f"{'stopped' if stops else 'killed'} {victim}")
        self._supervise()

    def broker_away(self, for_s: float) -> None:
        """Kill the broker, and start it again after a while."""
        self.broker.kill()
        self.pass_time(for_s, supervises=False)
        self._note(f"broker away for {for_s:.0f} s")
        self._supervise()

    def store_away(self, for_s: float) -> None:
        """Kill the store, and start it again after a while."""
        self.store.kill()
        self.pass_time(for_s, supervises=False)
        self._note(f"store away for {for_s:.0f} s")
        self._supervise()

    def workers_become(self, n: int) -> None:
        """Start workers, or end some in order, until there are so many."""
        while len(self.engine.workers) < n:
            self.engine.start_worker()
        while len(self.engine.workers) > n:
            worker = self.engine.workers.pop(self._rng.randrange(len(self.engine.workers)))
            worker.terminate()
            worker.wait(60)
        self._note(f"{n} workers")

    def pass_time(self, for_s: float, *, supervises: bool = True) -> None:
        """Let the load go on."""
        end_s = time.monotonic() + for_s
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, 0.5))
            self._watch()
            if supervises:
                self._supervise()

    def _note(self, what: str) -> None:
        self.faults.append(what)
        steps = len(self.step_times_s())
        self._say(f"{time.monotonic() - self._began_s:6.0f} s  {what}; step {steps}, job {len(self.load.rows)}")

    def _victim(self, victim: str) -> tuple[int, subprocess.Popen[bytes] | None]:
        if victim == "agent":
            assert self._job is not None
            found: list[int] = realjob.until("an agent", lambda: realjob.agents(self._run()), 30, 0.05)
            return found[0], None
        process = {
            "worker": self._rng.choice(self.engine.workers),
            "writer": self._writer,
            "broker": self.broker.process,
        }[victim]
        assert process is not None
        return process.pid, process

    def _run(self) -> realjob.Run:
        assert self._job is not None
        return self._job

    def _watch(self) -> None:
        for worker in self.engine.workers:
            self._peak.look("worker", worker.pid)
        if self._writer is not None:
            self._peak.look("writer", self._writer.pid)
        for pid in realjob.agents(self._run()):
            self._peak.look("agent", pid)

    def _supervise(self) -> None:
        """Start again whoever has ended; `pacehound run` does so for its agent."""
        assert self.broker.process is not None
        if self.broker.process.poll() is not None:
            self.broker.start()
        if not self.store.is_alive:
            self.store.start()
        if self._writer is not None and self._writer.poll() is not None:
            self._writer = self._started_writer()
        for worker in [worker for worker in self.engine.workers if worker.poll() is not None]:
            self.engine.workers.remove(worker)
            self.engine.start_worker()

    def _started_writer(self) -> subprocess.Popen[bytes]:
        return self.engine.started("writer", self.folder / "writer.log", f"store.url={self.store.url}")

    # The end

    def end(self, within_s: float = 400.0) -> Outcome:
        """Let everything come to its end, and check it.

        Raises
        ------
        AssertionError
            Something is missing, is there twice, or is not what follows from the log.

        """
        for name in ("job", "control"):
            (self.folder / name / "stop").touch()
        self._say("the last simulated job is coming to its end")
        self.load.stop()
        ended_s = time.monotonic()
        job = self._run()

        def job_has_ended() -> bool:
            self._supervise()
            return job.process.poll() is not None

        realjob.until("the end of the real job", job_has_ended, within_s, 0.5)
        assert job.process.returncode == 0, job.text()
        self._await_quiet(within_s)
        caught_up_s = time.monotonic() - QUIET_S - ended_s
        return self._checked(caught_up_s)

    def _await_quiet(self, within_s: float) -> None:
        """Until all is worked on; whoever stands still for so long has stopped, and who is only slow has not."""
        since_s = moved_s = time.monotonic()
        before: dict[str, int] = {}
        while time.monotonic() - since_s < QUIET_S:
            self._supervise()
            time.sleep(1.0)
            behind = self._behind()
            if behind != {}:
                since_s = time.monotonic()
            if behind is not None and behind != before:
                before, moved_s = behind, time.monotonic()
            assert time.monotonic() < moved_s + within_s, f"nothing is worked on for {within_s:g} s: {behind}"

    def _behind(self) -> dict[str, int] | None:
        """How many messages the workers and the writer have not confirmed; nothing while nobody can tell."""
        try:
            groups = kafka_state(self.engine.settings).groups
        except Unavailable:
            return None
        ours = [group for group in groups if group.group in ("streams", "writer")]
        if any(group.problem for group in ours) or {group.group for group in ours} != {"streams", "writer"}:
            return None
        return {f"{group.group} {group.topic}": group.lag for group in ours if group.lag}

    def _checked(self, caught_up_s: float) -> Outcome:
        kafka = self.engine.settings
        follows = from_log(kafka, Settings())
        assert not follows.differences, follows.differences
        said = said_incidents(kafka)
        assert said == follows.incidents, _unlike(list(said), list(follows.incidents))
        assert self.load.incidents, "no simulated job has had an incident: nothing was shown of them"
        with Store.connect(self.store.url) as store:
            calls = {
                str(row["job"]): int(row["n"])
                for row in store.query("SELECT job, count() AS n FROM calls GROUP BY job").to_pylist()
            }
            minutes = {
                str(row["job"]): int(row["n"])
                for row in store.query("SELECT job, sum(calls) AS n FROM call_minutes GROUP BY job").to_pylist()
            }
            stored = [
                (str(row["id"]), int(row["version"]))
                for row in store.query("SELECT id, version FROM stored_incidents FINAL").to_pylist()
            ]
            dropped = int(store.query("SELECT sum(dropped) AS n FROM batches").to_pylist()[0]["n"] or 0)
            letters = store.query("SELECT reason FROM dead_letters").to_pylist()
        # An all_reduce of each step on the world, an all_reduce and a barrier on the second group.
        real_calls = 3 * REAL_RANKS * len(self.step_times_s()) - dropped
        expected = {**self.load.rows, REAL_JOB: real_calls}
        wrong = {job: (n, calls.get(job)) for job, n in expected.items() if calls.get(job) != n}
        assert not wrong, f"calls by job (wanted, stored): {wrong}; dropped {dropped}"
        assert calls.keys() == expected.keys(), f"strange jobs: {calls.keys() - expected.keys()}"
        assert minutes == calls, "the calls per minute are not those of the calls"
        assert sorted(stored) == sorted(said), _unlike(stored, list(said))
        assert not letters, letters
        times_s, control_s = self.step_times_s(), self.step_times_s("control")
        return Outcome(
            faults=len(self.faults),
            calls=sum(calls.values()),
            real_calls=real_calls,
            incident_versions=len(said),
            simulated_jobs=len(self.load.rows),
            jobs_as_embedded=self._jobs_as_embedded(said, follows.ticks),
            ticks=sum(follows.ticks.values()),
            longest_step_s=max(after - before for before, after in itertools.pairwise(times_s)),
            longest_control_step_s=max(after - before for before, after in itertools.pairwise(control_s)),
            held_by_us_s=held_alone_s(times_s, control_s),
            most_agent_mib=self._peak.mib.get("agent", 0.0),
            most_worker_mib=self._peak.mib.get("worker", 0.0),
            most_writer_mib=self._peak.mib.get("writer", 0.0),
            caught_up_after_s=caught_up_s,
            lasted_s=time.monotonic() - self._began_s,
        )

    def _jobs_as_embedded(self, said: Versions, ticks: dict[str, int]) -> int:
        """Simulated jobs of which exactly that was said which one process says.

        A job into which a worker has written a tick may be judged otherwise: time went on without some of its hosts.
        """
        same = 0
        for job in self.load.rows:
            wanted = {key: incident for key, incident in self.load.incidents.items() if incident.job == job}
            found = {key: incident for key, incident in said.items() if incident.job == job}
            assert job in ticks or wanted == found, f"{job}: {_unlike(list(found), list(wanted))}"
            same += wanted == found
        return same

    def stop(self) -> None:
        """End whatever is left."""
        if self._control is not None and self._control.poll() is None:
            for pid in [self._control.pid, *realjob.descendants(self._control.pid)]:
                os.kill(pid, signal.SIGKILL)
            self._control.wait()
        if self._job is not None:
            for pid in realjob.agents(self._job):
                os.kill(pid, signal.SIGCONT)
            self._job.stop()
        for process in (self._writer, self.broker.process):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
        if self._writer is not None:
            self._writer.kill()
            self._writer.wait()
        self.engine.stop()
        if self.store.is_alive:
            self.store.kill()
        self.broker.stop()


def _unlike(found: list[tuple[str, int]], wanted: list[tuple[str, int]]) -> str:
    missing, strange = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    return f"missing {missing}, not wanted {strange}, {len(found)} and {len(wanted)} in all, or their contents differ"
