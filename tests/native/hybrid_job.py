"""The scripts of a job with tensor, data and pipeline parallelism whose hosts run ahead of their devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collector.agent.control_block import ControlBlock
from tests.native.stub_jobs import Job
from tests.native.trap_controller import blocks_of, goes_on

WORLD, PIPES = 0, 2  # streams


@dataclass(frozen=True)
class Layout:
    """tp varies fastest, then dp, then pp."""

    tp: int
    dp: int
    pp: int

    @property
    def ranks(self) -> int:
        return self.tp * self.dp * self.pp


def script(
    layout: Layout, rank: int, *, micro_batches: int = 2, kernel_us: int = 300, sync_every: int = 0
) -> list[str]:
    """One rank's: pairs in groups between stages, tensor-parallel and data-parallel all-reduces, one of the world."""
    tp, dp, stage = rank % layout.tp, rank // layout.tp % layout.dp, rank // (layout.tp * layout.dp)
    comms = [
        f"init world {layout.ranks} {rank}",
        f"split t world {rank // layout.tp} {tp}",
        f"split d world {stage * layout.tp + tp} {dp}",
        f"split p world {dp * layout.tp + tp} {stage}",
    ]
    lines = []
    for _ in range(micro_batches):
        for receives, sends in ((stage - 1, stage + 1), (stage + 1, stage - 1)):
            if 0 <= receives < layout.pp:
                lines += ["group", f"recv p 64 7 0 {receives} {PIPES}", "end"]
            lines += [f"kernel {WORLD} {kernel_us}", f"all_reduce t 64 7 0 0 {WORLD}"]
            if 0 <= sends < layout.pp:
                lines += ["group", f"send p 64 7 0 {sends} {PIPES}", "end"]
    lines += [f"all_reduce d 64 7 0 0 {WORLD}", f"all_reduce world 1 7 0 0 {WORLD}"]
    if sync_every:
        lines = ["repeat " + str(sync_every), *lines, "again", "syncall"]
    return [*comms, "repeat 1000000", *lines, "again"]


def start(new_job: Callable[..., Job], layout: Layout, **options: int) -> tuple[Job, list[ControlBlock]]:
    """All its ranks, at work."""
    job = new_job(layout.ranks)
    for rank in range(layout.ranks):
        job.start(rank, script(layout, rank, **options))
    blocks = blocks_of(job.run_dir, [process.pid for process in job.processes])
    assert goes_on(blocks, 30)
    return job, blocks
