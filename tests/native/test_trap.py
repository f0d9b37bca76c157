"""The trap: a job is held as a whole at an agreed round, or goes on; never a part of it for long (Falcon 4.3)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.agent import control_block
from collector.agent.control_block import Command, Phase, TimingPhase, TimingWhy, Why
from tests.native import stub_jobs
from tests.native.hybrid_job import Layout, start
from tests.native.stub_jobs import COMPILER, NATIVE, Job, until
from tests.native.test_shim_calls import line
from tests.native.trap_controller import Controller, NoWorldCollective, Outcome, blocks_of, goes_on

NewJob = Callable[..., Job]


def test_sixteen_ranks_are_held_drained_and_released(new_job: NewJob) -> None:
    job, blocks = start(new_job, Layout(tp=2, dp=2, pp=4), kernel_us=1500)
    controller = Controller(blocks)
    delays_ms: list[float] = []
    for _ in range(5):  # a rank may be far ahead of what it had launched a moment ago, or lose its core meanwhile
        outcome = controller.attempt(10, validate_s=0.05)
        assert goes_on(blocks)
        assert Phase.HELD not in {phase for phase, _ in controller.answers()}
        if outcome.how == "validated":
            assert set(outcome.answers) == {(Phase.HELD, Why.NONE)}
            delays_ms = [held_after_ms(job, rank, outcome) for rank in range(len(blocks))]
            if max(delays_ms) < 100:
                break
    assert delays_ms, outcome
    assert max(delays_ms) < 100, delays_ms
    assert all(process.poll() is None for process in job.processes)


def held_after_ms(job: Job, rank: int, outcome: Outcome) -> float:
    """How long after it had launched the agreed round a rank was held; that round was the last call it had launched."""
    (ring,) = job.records(rank)
    world = {group.handle for group in ring.groups if group.is_world}
    last = [call for call in ring.calls if call["launch_ns"] < outcome.arrived_ns[rank]][-1]
    assert last["handle"] in world
    assert last["seq"] == outcome.round_number
    return (outcome.arrived_ns[rank] - last["launch_ns"]) / 1e6


@pytest.mark.parametrize("phase", ["gathering", "validating"])
def test_a_controller_that_is_killed_releases_everybody(new_job: NewJob, phase: str) -> None:
    job, blocks = start(new_job, Layout(tp=2, dp=2, pp=1))
    code = """
import sys, time
from pathlib import Path
from collector.agent.control_block import Command
from tests.native.trap_controller import Controller, blocks_of
controller = Controller(blocks_of(Path(sys.argv[1]), [int(pid) for pid in sys.argv[3:]]))
controller.arm(controller.next_round(20), hold_ms=60_000)
print(controller.gather(), flush=True)
if sys.argv[2] == "validating":
    controller.command(Command.VALIDATING)
print("now", flush=True)
while True:
    controller.beat()
    time.sleep(0.01)
"""
    pids = [str(process.pid) for process in job.processes]
    command = [sys.executable, "-c", code, str(job.run_dir), phase, *pids]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).resolve().parents[2])
    assert killed.stdout is not None
    try:
        assert killed.stdout.readline() == "held\n"
        assert killed.stdout.readline() == "now\n"
        held_ns = time.monotonic_ns()
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    assert goes_on(blocks)
    assert (time.monotonic_ns() - held_ns) / 1e9 < 5
    assert all((block._short[control_block.WHY // 4]) == Why.DEAD for block in blocks)


def test_a_rank_that_does_not_come_frees_the_others(new_job: NewJob) -> None:
    """One rank is stopped: the others wait at the round, and are released when time is up."""
    job, blocks = start(new_job, Layout(tp=2, dp=2, pp=1), sync_every=1)
    controller = Controller(blocks)
    controller.arm(controller.next_round(5))
    job.processes[2].send_signal(signal.SIGSTOP)
    try:
        how = controller.gather(gather_ns=500_000_000, each_look=lambda: None) if any_held(controller) else "none held"
        assert how in ("late", "none held")
        controller.command(Command.RELEASE)
    finally:
        job.processes[2].send_signal(signal.SIGCONT)
    assert goes_on(blocks)


def any_held(controller: Controller, timeout_s: float = 1.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        controller.beat()
        if any(phase == Phase.HELD for phase, _ in controller.answers()):
            return True
        time.sleep(0.002)
    return False


def test_a_hold_ends_after_a_quarter_of_the_smallest_timeout(new_job: NewJob) -> None:
    _, blocks = start(new_job, Layout(tp=2, dp=1, pp=1))
    controller = Controller(blocks, timeout_ms=2_000)
    controller.arm(controller.next_round(30), hold_ms=60_000)
    assert controller.gather() == "held"
    arrived = [block.arrived_ns for block in blocks]
    controller.command(Command.VALIDATING)
    while any(phase == Phase.HELD for phase, _ in controller.answers()):
        controller.beat()
        time.sleep(0.001)
    assert {why for _, why in controller.answers()} == {Why.LIMIT}
    for block, since_ns in zip(blocks, arrived, strict=True):
        assert 0.5 <= (block.released_ns - since_ns) / 1e9 < 1.0
    assert goes_on(blocks)


def test_what_cannot_be_kept_is_refused(new_job: NewJob) -> None:
    _, blocks = start(new_job, Layout(tp=1, dp=2, pp=1))
    controller = Controller(blocks)
    controller.arm(0)  # long gone
    assert until_answered(controller) == {(Phase.REFUSED, Why.PASSED)}
    controller.timeout_ms = 0
    controller.arm(controller.next_round(50))
    assert until_answered(controller) == {(Phase.REFUSED, Why.NO_LIMIT)}
    controller.timeout_ms = 1000
    for block in blocks:
        block.arm(77, 10**9, hold_ms=100, timeout_ms=1000, now_ns=time.monotonic_ns() - 10_000_000_000)
    controller.trap_id = 77
    assert until_answered(controller) == {(Phase.REFUSED, Why.DEAD)}
    assert goes_on(blocks)


def until_answered(controller: Controller) -> set[tuple[Phase, Why]]:
    until("all answer", lambda: all(phase != Phase.NONE for phase, _ in controller.answers()))
    return set(controller.answers())


def test_a_job_without_a_collective_of_all_ranks_is_refused(new_job: NewJob) -> None:
    job = new_job(2)
    for rank in range(2):
        job.start(rank, [f"init v{rank} 1 0", "repeat 1000000", line("all_reduce", f"v{rank}"), "sleep 1", "again"])
    blocks = blocks_of(job.run_dir, [process.pid for process in job.processes])
    controller = Controller(blocks)
    with pytest.raises(NoWorldCollective):
        controller.next_round(1, patience_s=0.2)
    controller.arm(5)
    assert until_answered(controller) == {(Phase.REFUSED, Why.NO_WORLD)}


def lonely(new_job: NewJob, after: list[str], *threads: list[str]) -> tuple[Job, Controller]:
    """One rank that waits for its trap, launches round 0, and goes on with `after`."""
    job = new_job(1)
    job.start(0, ["init w 1 0", "touch ready", "await armed", line("all_reduce", "w"), *after, "syncall"], *threads)
    until("the job is ready", (job.folder / "ready").exists)
    controller = Controller(blocks_of(job.run_dir, [job.processes[0].pid]))
    controller.arm(0)
    (job.folder / "armed").touch()
    return job, controller


def finish(job: Job, controller: Controller) -> None:
    controller.command(Command.RELEASE)
    job.wait()


def phase_of(controller: Controller) -> Phase:
    controller.beat()
    return controller.answers()[0][0]


@pytest.mark.parametrize(
    "unheld",
    [
        pytest.param(["init v 1 0", "split u w 0 0", "destroy u"], id="making a communicator"),
        pytest.param(["capture 3 1", line("all_reduce", "w", stream=3), "capture 3 0"], id="capture"),
        pytest.param(["abort w", "init w 1 0"], id="abort"),
    ],
)
def test_there_is_no_hold_in(new_job: NewJob, unheld: list[str]) -> None:
    job, controller = lonely(new_job, [*unheld, "touch through", "await on", line("all_gather", "w")])
    until("it is through", (job.folder / "through").exists)
    assert phase_of(controller) in (Phase.NONE, Phase.ARMED)
    (job.folder / "on").touch()
    if "abort w" not in unheld:
        until("it is held", lambda: phase_of(controller) == Phase.HELD)
        assert not any(call["op"] == 2 for call in job.records(0)[0].calls)
    finish(job, controller)


def test_there_is_no_hold_inside_a_group(new_job: NewJob) -> None:
    job = new_job(1)
    job.start(0, [
        "init w 1 0", "touch ready", "await armed", "group", line("all_reduce", "w"), line("all_reduce", "w"),
        line("all_gather", "w"), "end", "touch through", "group", line("all_gather", "w"), "end", "syncall",
    ])  # fmt: skip
    until("the job is ready", (job.folder / "ready").exists)
    controller = Controller(blocks_of(job.run_dir, [job.processes[0].pid]))
    controller.arm(0)
    (job.folder / "armed").touch()
    until("it is held", lambda: phase_of(controller) == Phase.HELD)
    assert (job.folder / "through").exists()  # at the start of the next group
    assert len(job.records(0)[0].calls) == 3
    until("it has drained", lambda: (controller.beat(), controller.blocks[0].drained_ns)[1])
    finish(job, controller)


def test_an_abort_in_another_thread_ends_the_hold(new_job: NewJob) -> None:
    other = ["await abort-now", "init v 1 0", "abort v"]
    job, controller = lonely(new_job, [line("all_gather", "w")], other)
    until("it is held", lambda: phase_of(controller) == Phase.HELD)
    (job.folder / "abort-now").touch()
    until("it is released", lambda: phase_of(controller) == Phase.RELEASED)
    assert controller.answers()[0][1] == Why.ABORT
    job.wait()


def test_work_that_does_not_end_is_never_said_to_have_drained(new_job: NewJob) -> None:
    """Rank 0 waits in a kernel for a call that rank 1 makes only after the round."""
    job = new_job(2)
    job.start(
        0,
        [
            "init w 2 0", "touch ready", "await armed", line("recv", "w", peer=1, stream=1), line("all_reduce", "w"),
            line("all_gather", "w"), "syncall",
        ],
    )  # fmt: skip
    job.start(
        1,
        [
            "init w 2 1", "await armed", line("all_reduce", "w"), line("send", "w", peer=0, stream=1),
            line("all_gather", "w"), "syncall",
        ],
    )  # fmt: skip
    until("the job is ready", (job.folder / "ready").exists)
    controller = Controller(blocks_of(job.run_dir, [process.pid for process in job.processes]))
    controller.arm(0)
    (job.folder / "armed").touch()
    assert controller.gather(gather_ns=300_000_000) == "late"
    assert controller.blocks[0].drained_ns == 0
    finish(job, controller)


def test_the_layout_is_that_of_the_header(tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("no C compiler")
    fields = "world_launched unnamed answers_id phase why arrived_ns drained_ns released_ns"
    fields += " trap_id round heartbeat_ns command hold_ms timeout_ms"
    fields += " timing_cap_ppm timing_id timing_until_ns timing_rounds timing_every timing_answers_id timing_phase"
    fields += " timing_why timing_every_now timed untimed event_ns"
    lines = "".join(
        f'    printf("{name.upper()} %zu\\n", offsetof(struct ph_control, {name}));\n' for name in fields.split()
    )
    (tmp_path / "probe.c").write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "control.h"\nint main(void) {{\n{lines}    return 0;\n}}\n'
    )
    stub_jobs.run([COMPILER, "-std=c11", f"-I{NATIVE}", str(tmp_path / "probe.c"), "-o", str(tmp_path / "probe")])
    printed = subprocess.run([tmp_path / "probe"], capture_output=True, text=True, check=True).stdout
    assert {name: getattr(control_block, name) for name, _ in map(str.split, printed.splitlines())} == {
        name: int(value) for name, value in map(str.split, printed.splitlines())
    }
    header = (NATIVE / "control.h").read_text()
    assert f"#define PH_CONTROL_VERSION {control_block.VERSION}u" in header
    timing = ((TimingPhase, "PH_TIMING_"), (TimingWhy, "PH_TIMING_WHY_"))
    for enum, prefix in ((Command, "PH_"), (Phase, "PH_TRAP_"), (Why, "PH_WHY_"), *timing):
        for member in enum:
            assert f"{prefix}{member.name} = {member.value}" in header
