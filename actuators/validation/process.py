"""The process of one rank that is measured.

Under torchrun (`python -m actuators.validation.process FILE`) rank 0 writes to FILE what all ranks have measured.
Beside a rank that trains (`… --beside FOLDER`, by the agent) it says in FOLDER when it is ready, waits at a gate until
the ranks are held, and rank 0 writes what was judged. It ends by itself when its time is over, when a peer has died,
and beside a rank when the agent has.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actuators.validation.measure import Deadline, Measurement
from actuators.validation.passes import ring_passes
from actuators.validation.thresholds import BUDGET_S, MEASURE_S, START_WITHIN_NS

REPETITIONS = 8
HOST_VARIABLE = "PACEHOUND_HOST_NAME"
"""The setting `host.name`."""

RANK_VARIABLE = "PACEHOUND_RANK"

_LOOK_EVERY_S = 0.02


def under_torchrun(result: Path) -> None:
    """Measure at once; rank 0 writes everything."""
    measured = _measured(lambda: MEASURE_S)
    if measured is not None:
        _write(result, measured)


def beside_a_rank(folder: Path) -> None:
    """Measure when the gate opens; the first one writes what was judged."""
    threading.Thread(target=_end_with_the_agent, daemon=True).start()

    def wait_at_the_gate() -> float:
        (folder / f"{_own_rank()}.ready").touch()
        until_s = time.monotonic() + START_WITHIN_NS / 1e9
        while not (folder / "gate").exists():
            if time.monotonic() >= until_s:
                sys.exit("nobody has opened the gate")
            time.sleep(_LOOK_EVERY_S)
        within_ms = int((folder / "gate").read_text())
        return within_ms / 1e3 or MEASURE_S

    measured = _measured(wait_at_the_gate)
    if measured is not None:
        import msgspec

        from actuators.validation.outcome import RankMeasured, judged_of, outcome_of

        judged = judged_of(outcome_of(msgspec.convert(measured, list[RankMeasured])))
        _write(folder / "judged.json", msgspec.to_builtins(judged))


def _measured(when_ready: Callable[[], float]) -> list[Any] | None:
    """What all ranks have measured, where this is rank 0; `when_ready` returns the seconds that there are for it."""
    began_s = time.monotonic()
    import torch
    import torch.distributed as dist

    is_gpu = torch.cuda.is_available()
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    device = f"cuda:{local_rank}" if is_gpu else "cpu"
    torch.set_num_threads(1)
    if is_gpu:
        torch.cuda.set_device(local_rank)
    within = datetime.timedelta(seconds=START_WITHIN_NS / 1e9 + BUDGET_S)
    dist.init_process_group("nccl" if is_gpu else "gloo", timeout=within)
    host = os.environ.get(HOST_VARIABLE) or socket.gethostname()
    machine = _machine() or host
    places: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(places, (host, machine, os.cpu_count() or 1, _own_rank()))
    ranks = [rank for *_, rank in places]
    within_s = when_ready()
    ready_s = time.monotonic()
    measurement = Measurement(
        dist,
        device,
        hosts=[name for name, *_ in places],
        machines=[name for _, name, *_ in places],
        processors={name: processors for _, name, processors, _ in places},
        repetitions=REPETITIONS,
        deadline_s=ready_s + within_s,
    )
    found: dict[str, Any] = {"rank": _own_rank(), "host": host, "machine": machine, "cut_short": True}
    found["device"] = torch.cuda.get_device_name(local_rank) if is_gpu else "cpu"
    with contextlib.suppress(Deadline):
        measurement.computations()
        measurement.transfers(ring_passes(dist.get_world_size()))
        found["cut_short"] = False
    found["ranks"] = measurement.ranks
    found["links"] = {
        what: [[ranks[here], ranks[there], times] for (here, there), times in one.items()]
        for what, one in measurement.links.items()
    }
    found["measured_s"] = time.monotonic() - ready_s
    found["started_s"] = ready_s - began_s
    everybodys: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everybodys, found)
    is_first = dist.get_rank() == 0
    dist.destroy_process_group()
    return everybodys if is_first else None


def _own_rank() -> int:
    """By which number it goes: that of the rank beside which it measures, where not all of them are measured."""
    return int(os.environ.get(RANK_VARIABLE) or os.environ["RANK"])


def _machine() -> str:
    """The same in all containers of one machine; empty where the system does not say it."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _write(path: Path, content: Any) -> None:
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(content), encoding="utf-8")
    scratch.replace(path)


def _end_with_the_agent() -> None:
    """Standard input is the agent's end of a pipe."""
    sys.stdin.buffer.read()
    os._exit(3)


if __name__ == "__main__":
    if sys.argv[1] == "--beside":
        beside_a_rank(Path(sys.argv[2]))
    else:
        under_torchrun(Path(sys.argv[1]))
