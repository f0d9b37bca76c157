"""The job of pipeline_job.py, traced whole by torch.profiler. The arguments are those of that one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pipeline_job
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile


def main(folder: Path, micro_batches: int, slow_rank: int, steps: int, factors: list[float]) -> None:
    n_steps = steps * len(factors)
    traces = folder / "traces"
    traces.mkdir(exist_ok=True)

    def write(profiler: Any) -> None:
        profiler.export_chrome_trace(str(traces / f"rank{dist.get_rank()}.json.gz"))

    schedule = torch.profiler.schedule(wait=0, warmup=1, active=n_steps - 1, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule, on_trace_ready=write) as profiler:

        class Stepping(torch.optim.SGD):
            """The last thing that the job does in a step is to zero the gradients."""

            def zero_grad(self, set_to_none: bool = True) -> None:
                super().zero_grad(set_to_none)
                profiler.step()

        torch.optim.SGD = Stepping  # type: ignore[misc]
        pipeline_job.main(folder, micro_batches, slow_rank, steps, factors)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), [float(one) for one in sys.argv[5:]])
