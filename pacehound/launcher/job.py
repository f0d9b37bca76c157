"""What a job is called, so that the agents of several hosts agree without being told."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import PurePath

# Schedulers and launchers that give every host of a job the same id, the most telling first.
SCHEDULER_VARIABLES = (
    "TORCHELASTIC_RUN_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "COBALT_JOBID",
    "AWS_BATCH_JOB_ID",
    "PET_RDZV_ID",
)
_PARTS = ("PET_NODE_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_NO_ID = ("", "none")  # torchrun's own default for --rdzv-id is the word "none"


def job_name(explicit: str | None, environ: Mapping[str, str], command: Sequence[str], now_s: float, salt: str) -> str:
    """`explicit`, else the scheduler's id, else torchrun's `--rdzv-id`, else a name made here.

    A Slurm step has a number of its own: two steps of one allocation are two jobs.

    Examples
    --------
    >>> job_name(None, {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0"}, ["python", "train.py"], 0.0, "ab12")
    '4711.0'
    >>> job_name(None, {}, ["torchrun", "--rdzv-id=7", "train.py"], 0.0, "ab12")
    '7'
    >>> job_name(None, {}, ["torchrun", "examples/train.py"], 0.0, "ab12")
    'train-19700101-000000-ab12'

    """
    if given := given_name(explicit, environ, command):
        return given
    started = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_s))
    return f"{_stem(command)}-{started}-{salt}"


def given_name(explicit: str | None, environ: Mapping[str, str], command: Sequence[str]) -> str:
    """The name that somebody gave the job; empty where one has to be made up.

    >>> given_name(None, {"SLURM_JOB_ID": "4711"}, ["python"]), given_name(None, {}, ["python"])
    ('4711', '')
    """
    if explicit:
        return explicit
    if slurm := environ.get("SLURM_JOB_ID", ""):
        step = environ.get("SLURM_STEP_ID", "")
        return f"{slurm}.{step}" if step.isdecimal() else slurm
    for found in (environ.get(SCHEDULER_VARIABLES[0], ""), _rendezvous_id(command)):
        if found.lower() not in _NO_ID:
            return found
    for variable in SCHEDULER_VARIABLES[1:]:
        if environ.get(variable, "").lower() not in _NO_ID:
            return environ[variable]
    return ""


def part_of_job(environ: Mapping[str, str], command: Sequence[str]) -> str:
    """Which part of its job a run is, where a launcher has begun several of them; they may share a host.

    >>> part_of_job({"SLURM_PROCID": "3"}, ["python"]), part_of_job({}, ["torchrun", "--node-rank=1", "train.py"])
    ('3', '1')
    """
    given = _value_of(command, ("--node-rank", "--node_rank"))
    return given or next((environ[name] for name in _PARTS if environ.get(name)), "")


def _rendezvous_id(command: Sequence[str]) -> str:
    return _value_of(command, ("--rdzv-id", "--rdzv_id"))


def _value_of(command: Sequence[str], options: tuple[str, ...]) -> str:
    for index, argument in enumerate(command):
        name, separator, value = argument.partition("=")
        if name in options:
            if separator:
                return value
            if index + 1 < len(command):
                return command[index + 1]
    return ""


def _stem(command: Sequence[str]) -> str:
    script = next((argument for argument in command if argument.endswith(".py")), command[0] if command else "job")
    return PurePath(script).stem or "job"
