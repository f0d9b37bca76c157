"""torch's own 1F1B schedule with a device that is a stand-in: what is told of it is what the device did."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.rig import realjob
from pacehound.instrument.cuda_times import _VERIFIED_BACKENDS
from pacehound.model.operations import OPTYPES
from tests.fakes import cuda_device

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
pytestmark = [pytest.mark.integration, needs_torch]

JOB = Path(__file__).with_name("device_pipeline_job.py")
ROOT = Path(__file__).parents[2]
MICRO_BATCHES = 4
TOLERANCE_NS = 20_000
SENDS_AND_RECEIVES = (("forward-send", "backward-recv"), ("backward-send", "forward-recv"))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what each rank says."""
    folder = tmp_path_factory.mktemp("said")
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    command = realjob.forked(folder, ranks=2, script=JOB)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(params=[0, 1], ids=["first stage", "last stage"])
def said(request: pytest.FixtureRequest, answers: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((answers / f"{request.param}.json").read_text())
    answer["rank"] = request.param
    return answer


def times_of(said: dict[str, Any], name: str) -> list[tuple[int, int]]:
    return sorted((row[0], row[1]) for row in said["rows"] if OPTYPES[row[3]] == name)


def test_every_operation_of_every_micro_batch_is_told(said: dict[str, Any]) -> None:
    names = ("forward-compute", "backward-compute", *SENDS_AND_RECEIVES[said["rank"]])
    assert [len(times_of(said, name)) for name in names] == [MICRO_BATCHES] * 4
    assert said["steps"] == [1, 2]
    assert said["notes"] == []


def test_computes_are_told_without_waiting_for_transfers_and_transfers_as_long_as_they_took(
    said: dict[str, Any],
) -> None:
    """The peer is 7 ms late each time: the stream of the script stands still, and that is no part of a pass."""
    for code, name in ((0, "forward-compute"), (1, "backward-compute")):
        ran = [(begin_ns, end_ns) for optype, begin_ns, end_ns in said["truth"] if optype == code]
        for told, truth in zip(times_of(said, name), ran, strict=True):
            assert told == pytest.approx(truth, abs=TOLERANCE_NS)
    for kind, name in zip(("sends", "receives"), SENDS_AND_RECEIVES[said["rank"]], strict=True):
        ends_ns = sorted(end_ns for _, end_ns in times_of(said, name))
        assert ends_ns == pytest.approx(said[kind], abs=TOLERANCE_NS)


def test_nothing_waits_for_the_device_and_the_schedules_own_wait_is_the_only_one(said: dict[str, Any]) -> None:
    assert said["blocked"] == []
    assert said["waits"] == [1]


def test_torch_has_what_is_called_of_it_and_the_stand_in_takes_the_same() -> None:
    """Without a GPU no more than the names and parameters can be held against torch itself."""
    from torch import cuda
    from torch._C import _distributed_c10d as c10d
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group, _fsdp_state

    stand_in = cuda_device.Machine().cuda
    for theirs, ours in (
        (cuda.current_stream, stand_in.current_stream),
        (cuda.current_device, stand_in.current_device),
        (cuda.is_current_stream_capturing, stand_in.is_current_stream_capturing),
        (cuda.stream, stand_in.stream),
        (cuda.synchronize, stand_in.synchronize),
        (cuda.Event.record, cuda_device.Event.record),
        (cuda.Event.wait, cuda_device.Event.wait),
        (cuda.Event.query, cuda_device.Event.query),
        (cuda.Event.synchronize, cuda_device.Event.synchronize),
        (cuda.Stream.wait_event, cuda_device.Stream.wait_event),
        (cuda.Stream.synchronize, cuda_device.Stream.synchronize),
    ):
        assert list(inspect.signature(theirs).parameters) == list(inspect.signature(ours).parameters), theirs
    assert {"device", "priority"} <= set(inspect.signature(cuda.Stream.__new__).parameters)
    assert "enable_timing" in inspect.signature(cuda.Event.__new__).parameters
    assert all(hasattr(c10d.Work, name) for name in ("wait", "synchronize"))
    # The build of torch need not have NCCL; where it has, its groups have the names that are known.
    assert {name for name in dir(c10d) if name.startswith("ProcessGroupNCCL")} <= set(_VERIFIED_BACKENDS)
    assert hasattr(_fsdp_state.FSDPState, "_end_backward_iteration")
    assert hasattr(_fsdp_param_group.FSDPParamGroup, "wait_for_unshard")
