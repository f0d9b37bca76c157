"""A real job in mode `auto` whose host is slow, and whose script takes no orders: it is restarted without that host.

Its script knows nothing of Pacehound and saves checkpoints. A restart is due when the job has lost what its own last
restart has taken, so that it is restarted once by hand before. Losses are those of an undisturbed run of one process:
the same samples, added up in another order (see test_moved_micro_batches.py for the tolerance).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.rig import realjob
from pacehound.runtime.head.client import live_owner
from tests.integration import restarted_site
from tests.integration.asked_job import AskedJob

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timed,
    pytest.mark.prove,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
]
SITE = Path(restarted_site.__file__)
WITHIN_S = 300
TOLERANCE = 1e-9
RUNS = 10


class RestartedJob(AskedJob):
    """A head that acts, and a site; `mode` is that of the restart."""

    def __init__(self, folder: Path, mode: str = "auto") -> None:
        self.folder, self.store = folder, folder / "store"
        site = f"{sys.executable} {SITE}"
        settings = [f"actuators.modes=J:checkpoint_restart={mode}"]
        settings += [f"actuators.stop_command={site} stop {folder} {self.store}"]
        settings += [f"actuators.start_command={site} start {folder} {self.store} {{hosts}}"]
        self.words = [sys.executable, "-m", "pacehound", "up", "--listen", "127.0.0.1:0", "--store", str(self.store)]
        self.words += [word for one in settings for word in ("--set", one)]
        self.begin()

    def begin(self) -> None:
        """A head."""
        with (self.folder / "log").open("a") as log:
            self.head = subprocess.Popen(self.words, stdout=log, stderr=log)
        self.until(lambda: live_owner(self.store) is not None, "a head")

    def kill(self) -> None:
        """And one that follows it."""
        self.head.kill()
        self.head.wait(60)
        self.begin()

    def commands(self) -> list[str]:
        """What the site was told, in order."""
        return (self.folder / "commands").read_text().splitlines()

    def runs(self, what: str) -> int:
        """How many commands of the site have begun, or ended."""
        return len(list((self.store / "site" / "runs").glob(f"*/{what}")))

    def site(self, word: str) -> None:
        subprocess.run(
            [sys.executable, str(SITE), word, str(self.folder), str(self.store)], check=True, timeout=WITHIN_S
        )

    def losses(self) -> list[dict[str, Any]]:
        path = self.folder / "losses"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def decisions(self) -> list[dict[str, Any]]:
        found = self.rows("SELECT event FROM decisions WHERE mode != 'observe' ORDER BY time_ns")
        return [json.loads(one["event"]) for one in found]

    def until(self, done: Callable[[], bool], what: str, every_s: float = 0.3) -> None:
        def say() -> str:
            said = self.rows("SELECT action, taken, reason FROM decisions ORDER BY time_ns")
            return f"{said}; {(self.folder / 'log').read_text()[-2000:]}"

        realjob.until(what, done, WITHIN_S, every_s, say, self.head)

    def goes_on(self, steps: int) -> None:
        before = len(self.losses())
        self.until(lambda: len(self.losses()) >= before + steps, "it goes on")

    def close(self) -> None:
        (self.folder / "stop").touch()
        time.sleep(1)
        self.site("stop")
        self.head.terminate()
        self.head.wait(60)


def alone(folder: Path, steps: int) -> list[float]:
    """Losses of one process that does the same steps."""
    folder.mkdir()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "RANK": "0", "WORLD_SIZE": "1"}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    script = SITE.with_name("checkpointed_job.py")
    words = [f"--folder={folder}", "--host=x", f"--steps={steps}", "--wait-ms=0"]
    subprocess.run([sys.executable, str(script), *words], env=env, check=True, timeout=WITHIN_S)
    return [json.loads(line)["loss"] for line in (folder / "losses").read_text().splitlines()]


def assert_it_is_restarted_without_the_host(
    folder: Path, mode: str = "auto", kills: Sequence[Callable[[RestartedJob], bool]] = ()
) -> str:
    """What was seen, in a line; the head is killed as soon as each of `kills` is so, in turn."""
    job = RestartedJob(folder, mode)
    try:
        job.site("start")
        job.goes_on(60)
        job.site("stop")
        job.site("start")  # so that it is known what a restart takes
        job.goes_on(120)
        (folder / "slow").touch()
        if mode == "approve":
            job.until(lambda: any(one["until_ns"] for one in job.decisions()), "somebody is asked")
            (asked,) = [one for one in job.decisions() if one["until_ns"]]
            command = [sys.executable, "-m", "pacehound", "approve", "--store", str(job.store), "--json"]
            waiting = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)["waiting"]
            subprocess.run([*command, waiting[0]["decision"][:12]], check=True, timeout=60)
            assert not asked["taken"]
        for number, is_moment in enumerate(kills):
            job.until(lambda moment=is_moment: moment(job), f"moment {number}", every_s=0.01)  # type: ignore[misc]
            job.kill()
        job.until(lambda: any(one["action"] == "track" and one["number"] for one in job.decisions()), "it is restarted")
        job.goes_on(40)
        decisions, commands = job.decisions(), job.commands()
    finally:
        job.close()
    done = next(one for one in decisions if one["action"] == "checkpoint_restart" and one["taken"])
    over = next(one for one in decisions if one["action"] == "track" and one["number"])
    assert done["reason"].startswith(f"the job stops, and starts again without {restarted_site.SLOW}"), done
    assert done["price_s"] < 120, "its own last restart, and not the literature's twenty minutes"
    assert over["seen_gain"] > 0.3, over
    # By hand it was started, stopped and started.
    assert commands[3:] == ["stop ", f"start {restarted_site.SLOW}"], commands
    if mode == "approve":
        assert done["by"]
    found = {one["step"]: one["loss"] for one in job.losses()}
    expected = alone(folder / "alone", len(found))
    worst = max(abs(found[step] - loss) for step, loss in enumerate(expected))
    assert worst < TOLERANCE
    return f"price {done['price_s']:.1f} s, lost {done['loss_s']:.1f} s; {over['reason']}; losses differ by {worst:.1e}"


@pytest.mark.parametrize("number", range(RUNS))
def test_ten_times_a_slow_host_is_left_out_and_the_losses_are_the_same(tmp_path: Path, number: int) -> None:
    print(number, assert_it_is_restarted_without_the_host(tmp_path))


def test_in_mode_approve_it_waits_for_somebody(tmp_path: Path) -> None:
    print(assert_it_is_restarted_without_the_host(tmp_path, "approve"))


KILLS: tuple[Callable[[RestartedJob], bool], ...] = (
    lambda job: bool(list((job.store / "site" / "records").glob("[0-9a-f]*"))),  # it was ordered
    lambda job: job.runs("begun") == 1,  # the stop is run
    lambda job: job.runs("begun") == 2,  # the start is run
    lambda job: job.runs("ended") == 2,  # the new attempt is waited for
)


def test_a_head_that_is_killed_four_times_meanwhile_is_followed_by_one_that_goes_on(tmp_path: Path) -> None:
    print(assert_it_is_restarted_without_the_host(tmp_path, kills=KILLS))
