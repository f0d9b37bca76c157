"""The process of one rank that is measured: `python -m actuators.validation.process FILE`, under torchrun.

It measures, gives what it found to rank 0, and that one writes all of it to FILE as JSON. It ends by itself when the
budget is over, or when a peer has died: then what was measured so far is not told, for nobody is there to compare with.
"""

from __future__ import annotations

import datetime
import json
import os
import socket
import sys
import time
from typing import Any

from actuators.validation.measure import Deadline, Measurement
from actuators.validation.passes import ring_passes
from actuators.validation.thresholds import BUDGET_S

REPETITIONS = 10
HOST_VARIABLE = "PACEHOUND_HOST_NAME"
"""The setting `host.name`."""


def main(path: str) -> int:
    """Measure as one rank of a group that the environment tells of."""
    began_s = time.monotonic()
    import torch
    import torch.distributed as dist

    is_gpu = torch.cuda.is_available()
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = f"cuda:{local_rank}" if is_gpu else "cpu"
    torch.set_num_threads(1)
    if is_gpu:
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if is_gpu else "gloo", timeout=datetime.timedelta(seconds=3 * BUDGET_S))
    ready_s = time.monotonic()
    measurement = Measurement(dist, device, REPETITIONS, ready_s + BUDGET_S)
    found: dict[str, Any] = {
        "rank": dist.get_rank(),
        "host": os.environ.get(HOST_VARIABLE) or socket.gethostname(),
        "ranks": {},
        "links": {},
    }
    try:
        found["ranks"] = measurement.computations()
        links = measurement.links(ring_passes(dist.get_world_size()))
        found["links"] = {what: [[*link, times] for link, times in one.items()] for what, one in links.items()}
    except Deadline:
        found["cut_short"] = True
    found["device"] = torch.cuda.get_device_name(local_rank) if is_gpu else "cpu"
    found["measured_s"] = time.monotonic() - ready_s
    found["started_s"] = ready_s - began_s
    everybodys: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everybodys, found)
    if dist.get_rank() == 0:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(everybodys, file)
        os.replace(f"{path}.new", path)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
