"""A process whose calls torch's Python hooks see, on a stub device, asked to time them; prints what came of it as JSON.

Arguments: the stub library, the run folder. Each part of the answer is one request with its calls.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def main(stub: str, run_dir: Path) -> None:
    library = ctypes.CDLL(stub, mode=ctypes.RTLD_GLOBAL)
    from collector.agent.control_block import ControlBlock, TimingPhase
    from pacehound.instrument import hold, layout
    from pacehound.instrument.groups import WatchedGroup
    from pacehound.instrument.recorder import Recorder
    from pacehound.instrument.torch_calls import CallHooks, Pending, Tables
    from tests.fakes.torch_device import SCRIPT, Device, Group
    from tests.native.stub_jobs import read_ring

    device = Device(library)
    recorder = Recorder(str(run_dir), {**os.environ, "RANK": "0", "WORLD_SIZE": "1"})
    recorder.hold = hold.Hold(hold.build())
    recorder.start()
    recorder.hold.start(0)
    block = ControlBlock(run_dir / "control" / f"{os.getpid()}.control")
    tables = Tables(SimpleNamespace(), SimpleNamespace(ALLREDUCE="ALLREDUCE"))
    tables.stream_of = lambda device: device.current

    def group(name: str, device_times: Any) -> Group:
        watched = WatchedGroup(
            recorder, name, [0], generation=0, is_world=False, backend="nccl", timeout_ms=0,
            ended_by_future=frozenset(), device_times=device_times,
        )  # fmt: skip
        watched.announce(time.monotonic_ns())
        return Group(CallHooks(recorder, watched, tables, Pending()), device)

    def until(claim: Any) -> None:
        deadline_s = time.monotonic() + 10
        while not claim() and time.monotonic() < deadline_s:
            time.sleep(0.002)

    by_future, by_stream = group("future", "future"), group("stream", "stream")
    answer: dict[str, Any] = {}

    def part(name: str, calls: Any, expected: int) -> None:
        before = block.timing(0)
        calls()
        until(lambda: block.timing(0).timed - before.timed + block.timing(0).untimed - before.untimed >= expected)
        now = block.timing(0)
        answer[name] = {"timed": now.timed - before.timed, "untimed": now.untimed - before.untimed}

    by_stream.all_reduce(10)
    answer["off"] = block.timing(1).phase
    block.time_calls(1, until_ns=time.monotonic_ns() + 60 * 10**9, cap=0.1)
    until(lambda: by_stream.all_reduce(10) and block.timing(1).phase == TimingPhase.ON)
    library.stub_synchronize(SCRIPT)
    until(lambda: block.timing(1).timed > 0 or by_stream.all_reduce(10) is None)

    def waited_for() -> None:
        device.kernel(20_000)  # the rank computes before it comes to its call
        by_stream.all_reduce(5_000)

    def queued() -> None:
        for _ in range(3):
            by_future.all_reduce(30_000, async_op=True)

    def captured() -> None:
        library.stub_capture(SCRIPT, 1)
        by_stream.all_reduce(10)
        library.stub_capture(SCRIPT, 0)

    works: list[Any] = []
    part("sync", waited_for, 1)
    part("async", queued, 3)
    part("not done", lambda: by_future.all_reduce(10, async_op=True, is_done=False), 1)
    part("left out", lambda: works.append(by_stream.all_reduce(10, async_op=True)), 1)
    part("captured", captured, 0)
    answer["futures asked for"] = works[0].n_asked
    block.stop_timing()
    by_stream.all_reduce(10)
    until(lambda: block.timing(1).phase == TimingPhase.OFF)
    answer["phase"] = block.timing(1).phase
    part("after", lambda: by_stream.all_reduce(10), 0)
    rings = [read_ring(path) for path in sorted((run_dir / "rings").glob("*.ring"))]
    names = {group.handle: group.name for ring in rings for group in ring.groups}
    for name, calls in (
        ("launched", [call for ring in rings for call in ring.calls]),
        ("completed", [call for ring in rings for call in ring.completed]),
    ):
        answer[name] = [{**call, "handle": names[call["handle"]]} for call in calls]
    answer["timed flag"], answer["why"] = layout.TIMED, block.timing(1).why
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
