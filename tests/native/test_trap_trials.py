"""A thousand attempts to hold a job, with whatever may happen meanwhile: it always goes on."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest

from collector.agent import control_block
from collector.agent.control_block import Command, ControlBlock, Phase
from tests.native.hybrid_job import Layout, start
from tests.native.stub_jobs import Job
from tests.native.trap_controller import Controller, goes_on

NewJob = Callable[..., Job]

LAYOUTS = [(2, 2, 4), (4, 4, 1), (1, 4, 4), (4, 2, 2), (2, 8, 1), (1, 16, 1), (2, 1, 8)]


def random_trial(rng: random.Random, job: Job, blocks: list[ControlBlock]) -> str:
    """One attempt in which anything may happen; what did."""
    controller = Controller(blocks, timeout_ms=rng.choice([200, 2_000, 600_000]))
    ahead, accident = (
        rng.choice([0, 1, 3, 10, 40]),
        rng.choices(
            ["none", "vanish", "stop a rank", "another trap", "release early", "short hold", "garbage"],
            [60, 3, 10, 8, 8, 8, 3],
        )[0],
    )
    controller.arm(controller.next_round(ahead), hold_ms=20 if accident == "short hold" else 10_000)
    if accident == "vanish":
        time.sleep(rng.random() * 0.1)
        return "vanished"
    if accident == "another trap":
        time.sleep(rng.random() * 0.05)
        controller.arm(
            controller.next_round(ahead, 10.0) if rng.random() < 0.2 else max(b.world_launched for b in blocks) + ahead
        )
    if accident == "release early":
        time.sleep(rng.random() * 0.05)
        controller.command(Command.RELEASE)
        return "released early"
    if accident == "garbage":
        block = rng.choice(blocks)
        for offset in range(control_block.TRAP_ID, control_block.TIMEOUT_MS, 8):
            block._long[offset // 8] = rng.getrandbits(64)
    stopped = rng.choice(job.processes) if accident == "stop a rank" else None
    if stopped is not None:
        stopped.send_signal(signal.SIGSTOP)
    how = ""
    deadline = time.monotonic() + 0.4
    while not how and time.monotonic() < deadline:
        controller.beat()
        phases = [phase for phase, _ in controller.answers()]
        if Phase.REFUSED in phases or Phase.RELEASED in phases:
            how = "refused"
        elif all(p == Phase.HELD and b.drained_ns for p, b in zip(phases, blocks, strict=True)):
            how = "held"
        time.sleep(0.001)
    if stopped is not None:
        stopped.send_signal(signal.SIGCONT)
    if how == "held":
        launched = {block.world_launched for block in blocks}
        if all(phase == Phase.HELD for phase, _ in controller.answers()):  # still: a hold of 20 ms may be over by now
            assert len(launched) == 1
        else:
            how = "held, over"
        controller.command(Command.VALIDATING)
        time.sleep(rng.random() * 0.03)
    controller.command(Command.RELEASE)
    return how or "late"


@pytest.mark.parametrize(
    "trials",
    [
        pytest.param(30, id="short"),
        pytest.param(1_000, id="long", marks=[pytest.mark.prove, pytest.mark.timeout(3_600)]),
    ],
)
def test_no_deadlock_whatever_happens(new_job: NewJob, trials: int) -> None:
    rng = random.Random(7)
    happened: Counter[str] = Counter()
    per_job = 50 if trials > 50 else trials
    for first in range(0, trials, per_job):
        layout = Layout(*rng.choice(LAYOUTS))
        job, blocks = start(new_job, layout, sync_every=rng.choice([0, 1, 3]), kernel_us=rng.choice([0, 100, 500]))
        for trial in range(first, min(first + per_job, trials)):
            happened[random_trial(rng, job, blocks)] += 1
            assert goes_on(blocks, 25), f"trial {trial} of {layout}: {happened}"
        job.stop()
        done = sum(happened.values())
        print(f"{done} trials with 16 ranks, all went on: {dict(sorted(happened.items()))}", flush=True)
    assert happened["held"] > trials // 10
