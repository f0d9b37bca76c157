"""A command of torchrun with the measuring process in the script's place: the same hosts, ranks and rendezvous."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pacehound.errors import InvalidInput

PROCESS = "actuators.validation.process"
_ROOT = Path(__file__).resolve().parents[2]
_TORCHRUN = "torch.distributed.run"
_ABOUT_THE_SCRIPT = ("-m", "--module", "--no-python", "--no_python")


def measuring_command(command: Sequence[str], result: Path) -> list[str]:
    """What is run instead of a training command.

    Parameters
    ----------
    command
        `torchrun …` or `python -m torch.distributed.run …`, with its script.
    result
        Where rank 0 writes what all ranks have measured.

    Raises
    ------
    InvalidInput
        It is no command of torchrun, or torchrun would refuse it.

    """
    arguments = _arguments(command)
    try:
        from torch.distributed.run import get_args_parser
    except ImportError as error:
        raise InvalidInput(
            f"there is no torch beside pacehound here ({error}): install both in one environment"
        ) from error
    try:
        parsed = get_args_parser().parse_args(arguments)
    except SystemExit as error:
        raise InvalidInput(f"torchrun refuses this command: {' '.join(command)}") from error
    own = arguments[: len(arguments) - len(parsed.training_script_args) - 1]
    own = [one for one in own if one not in _ABOUT_THE_SCRIPT]
    return [sys.executable, "-m", _TORCHRUN, *own, "-m", PROCESS, str(result)]


def environment_of_measuring(environ: Mapping[str, str]) -> dict[str, str]:
    """Its environment: one thread for each rank, as torchrun sets it, and this package on the path.

    >>> environment_of_measuring({"PYTHONPATH": "/lib"})["PYTHONPATH"].endswith(":/lib")
    True
    """
    others = environ.get("PYTHONPATH", "")
    path = os.pathsep.join([str(_ROOT), *([others] if others else [])])
    return {"OMP_NUM_THREADS": "1", **environ, "PYTHONPATH": path}


def _arguments(command: Sequence[str]) -> list[str]:
    """Those of torchrun itself."""
    words = list(command)
    if words and Path(words[0]).name == "torchrun":
        return words[1:]
    if _TORCHRUN in words[:4] and words[words.index(_TORCHRUN) - 1] == "-m":
        return words[words.index(_TORCHRUN) + 1 :]
    raise InvalidInput(
        f"{' '.join(words[:3]) or 'nothing'} is no command of torchrun; write pacehound validate -- torchrun … SCRIPT, "
        "on each host as the job would be started (with srun: srun pacehound validate -- torchrun …)"
    )
