"""The actions that there are, what each is good against, and what it costs and gives by the literature.

Prices are those of large jobs and, where the literature says nothing, assumptions that are marked so; `prices` puts
the job's own in their place where they have been measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from pacehound.model.events import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that can be done.

    Attributes
    ----------
    name
        As in `Decision.action`.
    price_s
        Seconds that the job loses by it, by the literature.
    effect
        What it does, for the reason of a decision.
    source
        Where the price comes from.
    removes, removes_give
        The share of the slowdown that it takes away, and by how much that differs from job to job.
    removes_source
        Where that comes from.
    needs_culprit
        It takes something away from the job, so a suspicion is not enough.
    reversible
        Whether it can be taken back while the job runs.

    """

    name: str
    price_s: float
    effect: str
    source: str
    removes: float = 1.0
    removes_give: float = 0.0
    removes_source: str = "it takes the fault away"
    needs_culprit: bool = False
    reversible: bool = False


def keeping(name: str, effect: str) -> Action:
    """Leaving something as it was done, for it has helped."""
    return Action(
        name=name,
        price_s=0.0,
        effect=effect,
        source="nothing is done",
        removes=0.0,
        removes_source="nothing is done",
        reversible=True,
    )


def undoing(action: Action, name: str, effect: str) -> Action:
    """Taking an action back, at its own price."""
    return Action(
        name=name,
        price_s=action.price_s,
        effect=effect,
        source=action.source,
        removes=0.0,
        removes_source="it undoes what was done",
        reversible=True,
    )


IGNORE = Action(
    name="ignore",
    price_s=0.0,
    effect="waits for it to pass",
    source="Falcon 5.1, S1",
    removes=0.0,
    removes_source="nothing is done",
    reversible=True,
)
ADJUST_MICROBATCHES = Action(
    name="adjust_microbatches",
    price_s=5.0,
    effect="gives slow replicas fewer micro-batches",
    source="Falcon 5.3: 'only a few seconds' (30 s for 512 replicas, table 6)",
    removes=0.66,
    removes_give=0.17,
    removes_source="Falcon 7.3: 55 %, 78 % and 65 % with 2, 4 and 8 replicas, 83 % at best",
    reversible=True,
)
ADJUST_TOPOLOGY = Action(
    name="adjust_topology",
    price_s=60.0,
    effect="moves light traffic to slow links and gathers stragglers in few stages",
    source="Falcon 5.3: 'typically within one minute'",
    removes=0.40,
    removes_give=0.22,
    removes_source="Falcon 7.3: 54 % with 4 stages, 25 % with 8, 62 % at best",
    reversible=True,
)
CHECKPOINT_RESTART = Action(
    name="checkpoint_restart",
    price_s=1200.0,
    effect="restarts from a checkpoint on healthy hosts",
    source="Falcon 7.4: 'tens of minutes'",
    needs_culprit=True,
)
RESUME_RANK = Action(
    name="resume_rank",
    price_s=1.0,
    effect="lets a stopped process go on (SIGCONT; nothing happens to one that runs)",
    source="assumption: one signal",
    needs_culprit=True,
    reversible=True,
)
RESTART_WITHOUT_RANK = Action(
    name="restart_without_rank",
    price_s=600.0,
    effect="restarts the job from its last checkpoint without the rank",
    source="assumption: half of Falcon's 'tens of minutes', for nothing is dumped first",
    needs_culprit=True,
)
DRAIN_HOST = Action(
    name="drain_host",
    price_s=1200.0,
    effect="takes the host out of service and restarts the job on a spare one",
    source="Falcon 7.4: 'tens of minutes', as for checkpoint_restart",
    needs_culprit=True,
)

PLANNED_COLLECTION = Action(
    name="planned_collection",
    price_s=1.0,
    effect="collects garbage at the same step on all ranks",
    source="assumption: one order",
    removes_source="what-if 5.4: 12.6 % with 128 replicas",
    reversible=True,
)
BALANCE_SEQUENCES = Action(
    name="balance_sequences",
    price_s=1200.0,
    effect="gives all ranks sequences of the same work, by a data loader that divides them",
    source="assumption: as checkpoint_restart, for the script is changed",
    removes_source="what-if 5.3: 24 % more throughput in one job",
)

# What nobody is to blame for: the patterns of the what-if paper that something can be done about.
AGAINST_PATTERNS: dict[str, tuple[Action, ...]] = {
    "garbage collection": (PLANNED_COLLECTION,),
    "sequence length": (BALANCE_SEQUENCES,),
}

# Falcon table 3: micro-batches have no effect on slow communication. S3 is both at once (CCL-D 4.2.2).
# H2, calls that do not match, is a fault of the program: it comes back after any restart, so nothing is offered.
HELPS: dict[Cause, tuple[Action, ...]] = {
    "S1": (ADJUST_MICROBATCHES, ADJUST_TOPOLOGY, CHECKPOINT_RESTART),
    "S2": (ADJUST_TOPOLOGY, CHECKPOINT_RESTART),
    "S3": (ADJUST_MICROBATCHES, ADJUST_TOPOLOGY, CHECKPOINT_RESTART),
    "H1": (RESUME_RANK, RESTART_WITHOUT_RANK, DRAIN_HOST),
    "H2": (),
    "H3": (RESTART_WITHOUT_RANK, DRAIN_HOST),
}
AFTER_EXIT = (RESTART_WITHOUT_RANK, DRAIN_HOST)
