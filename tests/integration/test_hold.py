"""A real gloo job, its script unchanged, held as a whole at an agreed round by torch's hooks, and let go."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.rig import realjob
from collector.agent.control_block import Command, Phase, Why
from pacehound.instrument import build, hold, shim
from pacehound.instrument.launch import environment
from tests.native.trap_controller import Controller, blocks_of, goes_on

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch"),
    pytest.mark.skipif(shim.reason_not_made() is not None, reason="no C compiler"),
]
JOB = Path(__file__).with_name("held_job.py")
RANKS = 2
ENDLESS, SOME = 1_000_000, 300
AHEAD = 20

Job = tuple[subprocess.Popen[str], Controller]
StartJob = Callable[..., Job]


@pytest.fixture(params=[pytest.param("python", marks=pytest.mark.prove), "native"])
def start_job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartJob]:
    hold.build()
    if request.param == "native" and build.find() is None:
        if build.reason_unavailable() is not None:
            pytest.skip(f"no native hooks here: {build.reason_unavailable()}")
        build.build()
    started: list[subprocess.Popen[str]] = []

    def start(steps: int, folder: Path) -> Job:
        folder.mkdir()
        environ = environment(folder, "held", {**os.environ, "OMP_NUM_THREADS": "1"})
        if request.param == "python":
            environ["PACEHOUND_NATIVE"] = "0"
        process = subprocess.Popen(
            realjob.forked(folder, steps, ranks=RANKS, script=JOB), env=environ, text=True, stderr=subprocess.PIPE
        )
        started.append(process)
        return process, Controller(blocks_of(folder, pids_in(folder)))

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=30)


def pids_in(folder: Path) -> list[int]:
    paths = [folder / f"{rank}.pid" for rank in range(RANKS)]
    realjob.until("the job", lambda: all(path.exists() and path.read_text() for path in paths), 60, 0.01)
    return [int(path.read_text()) for path in paths]


def held(controller: Controller) -> None:
    """Hold all ranks; a round that some rank has passed already is chosen anew."""
    for _ in range(10):
        controller.arm(controller.next_round(AHEAD), hold_ms=60_000)
        if controller.gather() == "held":
            return
        controller.command(Command.RELEASE)
    raise AssertionError(controller.answers())


def test_all_ranks_stop_at_the_same_round_and_go_on_also_where_the_controller_says_nothing_more(
    start_job: StartJob, tmp_path: Path
) -> None:
    process, controller = start_job(ENDLESS, tmp_path / "run")
    held(controller)
    controller.command(Command.VALIDATING)
    assert len({block.world_launched for block in controller.blocks}) == 1
    before = [block.world_launched for block in controller.blocks]
    for _ in range(50):
        controller.beat()
        time.sleep(0.01)
    assert [block.world_launched for block in controller.blocks] == before, "nobody has gone on"
    controller.command(Command.RELEASE)
    assert goes_on(controller.blocks)
    held(controller)
    controller.command(Command.VALIDATING)
    silent_s = time.monotonic()
    assert goes_on(controller.blocks, timeout_s=10, rounds=1)
    assert 1.0 < time.monotonic() - silent_s < 3.0
    assert set(controller.answers()) == {(Phase.RELEASED, Why.DEAD)}
    assert process.poll() is None


@pytest.mark.prove
@pytest.mark.parametrize("start_job", ["native", "python"], indirect=True)
def test_a_job_that_was_held_computes_what_it_computes_undisturbed(start_job: StartJob, tmp_path: Path) -> None:
    import torch

    undisturbed, _ = start_job(SOME, tmp_path / "undisturbed")
    process, controller = start_job(SOME, tmp_path / "held")
    held(controller)
    controller.command(Command.RELEASE)
    assert undisturbed.wait(timeout=120) == process.wait(timeout=120) == 0
    for rank in range(RANKS):
        ours, theirs = (torch.load(tmp_path / name / f"{rank}.pt") for name in ("held", "undisturbed"))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
