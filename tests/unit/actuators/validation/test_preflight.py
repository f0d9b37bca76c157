"""The measuring process stands where the script stood, under the same torchrun."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from actuators.validation.preflight import measuring_command
from pacehound.errors import InvalidInput

RESULT = Path("/r/measured.json")
ASKED = """
import json, sys
from pathlib import Path
from actuators.validation.preflight import measuring_command
from pacehound.errors import InvalidInput
for command in json.loads(sys.argv[1]):
    try:
        print(json.dumps(measuring_command(command, Path(sys.argv[2]))))
    except InvalidInput as error:
        print(json.dumps(str(error)))
"""
KEPT = [
    (["torchrun", "--nproc-per-node", "4", "train.py"], ["--nproc-per-node", "4"]),
    (["/venv/bin/torchrun", "--standalone", "train.py", "--nproc-per-node", "9"], ["--standalone"]),
    (["python", "-m", "torch.distributed.run", "--nnodes=2", "-m", "train.main", "-x"], ["--nnodes=2"]),
    (["torchrun", "--no-python", "--nnodes=2", "./train", "--lr", "1"], ["--nnodes=2"]),
]


@pytest.mark.skipif(find_spec("torch") is None, reason="there is no torch")
def test_what_is_said_to_torchrun_stays_and_what_it_would_refuse_is_refused() -> None:
    """In a process of its own: torch takes seconds to load, and pytest attends to its loggers in each later test."""
    commands = [*(command for command, _ in KEPT), ["torchrun", "--nnodes"]]
    done = subprocess.run(
        [sys.executable, "-c", ASKED, json.dumps(commands), str(RESULT)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    *found, refused = map(json.loads, done.stdout.splitlines())
    process = ["-m", "actuators.validation.process", str(RESULT)]
    assert found == [[sys.executable, "-m", "torch.distributed.run", *kept, *process] for _, kept in KEPT]
    assert refused.startswith("torchrun refuses this command")


@pytest.mark.parametrize("command", [["python", "train.py"], ["srun", "torchrun", "train.py"], []])
def test_another_launcher_is_refused_with_what_to_write(command: list[str]) -> None:
    with pytest.raises(InvalidInput, match="is no command of torchrun; write pacehound validate -- torchrun"):
        measuring_command(command, RESULT)
