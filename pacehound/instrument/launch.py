"""The environment of a command that is to be instrumented."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

AUTOLOAD = Path(__file__).resolve().parent / "autoload"
PTH = "pacehound.pth"
"""Beside the packages of an interpreter that has Pacehound installed: it loads the instrument without PYTHONPATH."""


def environment(run_dir: Path, job: str, base: Mapping[str, str], attempt: int = 0) -> dict[str, str]:
    """`base`, and what makes every Python process under it write its calls into `run_dir`.

    Parameters
    ----------
    run_dir
        The run folder, in shared memory where possible. The caller has made it.
    job
        The job's name, the same on all of its hosts.
    base
        The environment that the command would have had.
    attempt
        Which run of a job of this name it is; torchrun's restarts are counted on top of it.

    Examples
    --------
    >>> environment(Path("/dev/shm/r"), "j", {"PYTHONPATH": "lib"})["PYTHONPATH"].endswith("autoload:lib")
    True

    """
    others = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry != str(AUTOLOAD)]
    if others == [""]:
        others = []
    return {
        **base,
        "PYTHONPATH": os.pathsep.join([str(AUTOLOAD), *others]),
        # Where somebody replaces that one, this is what an installed Pacehound finds it by (autoload/pacehound.pth).
        "PACEHOUND_AUTOLOAD": str(AUTOLOAD / "sitecustomize.py"),
        "PACEHOUND_RUN_DIR": str(run_dir.absolute()),
        "PACEHOUND_JOB": job,
        "PACEHOUND_ATTEMPT": str(attempt),
        "PACEHOUND_LAUNCHER": str(os.getpid()),
    }
