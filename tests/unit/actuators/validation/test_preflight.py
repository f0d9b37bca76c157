"""The measuring process stands where the script stood, under the same torchrun."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from actuators.validation.preflight import measuring_command
from pacehound.errors import InvalidInput

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
RESULT = Path("/r/measured.json")


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        (["torchrun", "--nproc-per-node", "4", "train.py"], ["--nproc-per-node", "4"]),
        (["/venv/bin/torchrun", "--standalone", "train.py", "--nproc-per-node", "9"], ["--standalone"]),
        (["python", "-m", "torch.distributed.run", "--nnodes=2", "-m", "train.main", "-x"], ["--nnodes=2"]),
        (["torchrun", "--no-python", "--nnodes=2", "./train", "--lr", "1"], ["--nnodes=2"]),
    ],
)
def test_what_is_said_to_torchrun_stays(command: list[str], kept: list[str]) -> None:
    expected = [sys.executable, "-m", "torch.distributed.run", *kept, "-m", "actuators.validation.process", str(RESULT)]
    assert measuring_command(command, RESULT) == expected


@pytest.mark.parametrize("command", [["python", "train.py"], ["srun", "torchrun", "train.py"], []])
def test_another_launcher_is_refused_with_what_to_write(command: list[str]) -> None:
    with pytest.raises(InvalidInput, match="is no command of torchrun; write pacehound validate -- torchrun"):
        measuring_command(command, RESULT)


def test_what_torchrun_would_refuse_is_refused() -> None:
    with pytest.raises(InvalidInput, match="torchrun refuses this command"):
        measuring_command(["torchrun", "--nnodes"], RESULT)
