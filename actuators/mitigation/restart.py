"""S4: a checkpoint where the script can, stop, start again without the hosts that are to blame; as a plan of commands.

Works for unchanged scripts that save checkpoints. What it costs is what is written first, or the work since the last
checkpoint where nothing is, and the time to start again. Nothing is run here.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Scheduler = Literal["torchrun", "slurm", "kubernetes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPlan:
    """What would be done, step by step.

    Attributes
    ----------
    without_hosts
        Which are left out.
    steps
        What is done, and the command for it where there is one; a site may write others.
    cost_s
        What it costs the job.
    cost_source
        Of what that is made.

    """

    without_hosts: tuple[str, ...]
    steps: tuple[tuple[str, str], ...]
    cost_s: float
    cost_source: str


def plan_restart(
    hosts: Sequence[str],
    without: Sequence[str],
    *,
    scheduler: Scheduler,
    job: str,
    restart_s: float,
    checkpoint_s: float | None = None,
    since_checkpoint_s: float = 0.0,
    spares: int = 0,
) -> RestartPlan:
    """How a job would be started again.

    Parameters
    ----------
    hosts, without
        Those of the job, and those of them that are to blame.
    scheduler, job
        Who starts it, and by what name.
    restart_s
        From its stop to its first iteration.
    checkpoint_s
        To write one; `None` where the script writes none when it is asked.
    since_checkpoint_s
        Work that is done again where none is written.
    spares
        Hosts that wait to take the place of others.

    Raises
    ------
    ValueError
        Hosts that are none of the job's, or nobody left to start on.

    Examples
    --------
    >>> plan = plan_restart(["a", "b"], ["b"], scheduler="slurm", job="17", restart_s=90.0, since_checkpoint_s=30.0)
    >>> plan.cost_s, plan.steps[0][1]
    (120.0, 'scancel --signal=TERM 17')

    """
    if strange := sorted(set(without) - set(hosts)):
        raise ValueError(f"{strange[0]} is none of the {len(hosts)} hosts of job {job}; it cannot be left out")
    bad = tuple(dict.fromkeys(without))
    left = [host for host in dict.fromkeys(hosts) if host not in bad]
    if not bad or not left:
        raise ValueError(f"{len(bad)} of {len(set(hosts))} hosts are to be left out; name some, and leave some")
    n_after = len(left) + min(spares, len(bad))
    again_s = since_checkpoint_s if checkpoint_s is None else checkpoint_s
    first = [] if checkpoint_s is None else [("ask the script for a checkpoint, and wait until it is written", "")]
    what = "work since the last checkpoint" if checkpoint_s is None else "a checkpoint"
    return RestartPlan(
        without_hosts=bad,
        steps=(*first, *_steps(scheduler, job, bad, n_after)),
        cost_s=again_s + restart_s,
        cost_source=f"{what} {again_s:g} s, start {restart_s:g} s",
    )


def _steps(scheduler: Scheduler, job: str, bad: tuple[str, ...], n_after: int) -> list[tuple[str, str]]:
    name, listed = shlex.quote(job), shlex.quote(",".join(bad))
    match scheduler:
        case "slurm":
            return [
                ("stop the job", f"scancel --signal=TERM {name}"),
                ("start it elsewhere", f"sbatch --nodes={n_after} --exclude={listed} SCRIPT"),
            ]
        case "kubernetes":
            cordon = " && ".join(f"kubectl cordon {shlex.quote(host)}" for host in bad)
            return [
                ("let nothing start there", cordon),
                (
                    "stop the job's pods; its controller starts them elsewhere",
                    f"kubectl delete pods -l job-name={name}",
                ),
            ]
        case "torchrun":
            return [
                (f"stop torchrun on {', '.join(bad)}, and start it nowhere there", ""),
                ("start on the others", f"torchrun --nnodes {n_after} --rdzv-id {name} SCRIPT"),
            ]
