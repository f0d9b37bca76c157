"""What an action costs the job that it is done to, in seconds of its time, and what it helps against.

The prices are those of large jobs in the literature and, where it says nothing, assumptions that are marked so; they
are constants until the store has measured the job's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from actuators.thresholds import VALIDATION_PRICE_S
from pacehound.model.events import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that can be done.

    Attributes
    ----------
    name
        As in `Decision.action`.
    price_s
        Seconds that the job loses by it.
    effect
        What it does, for the reason of a decision.
    source
        Where the price comes from.
    needs_culprit
        It takes something away from the job, so a suspicion is not enough.

    """

    name: str
    price_s: float
    effect: str
    source: str
    needs_culprit: bool = False


IGNORE = Action(name="ignore", price_s=0.0, effect="waits for it to pass", source="Falcon 5.1, S1")
ADJUST_MICROBATCHES = Action(
    name="adjust_microbatches",
    price_s=5.0,
    effect="gives slow replicas fewer micro-batches",
    source="Falcon 5.3: 'only a few seconds' (30 s for 512 replicas, table 6)",
)
ADJUST_TOPOLOGY = Action(
    name="adjust_topology",
    price_s=60.0,
    effect="moves light traffic to slow links and gathers stragglers in few stages",
    source="Falcon 5.3: 'typically within one minute'",
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

TRACK = Action(name="track", price_s=0.0, effect="follows the job as before", source="Falcon 4: iterations alone")
PROFILE = Action(
    name="profile",
    price_s=0.0,
    effect="looks closer for a while",
    source="assumption: a look at the machine each second, a hundredth of a processor of each host",
)
VALIDATE = Action(
    name="validate",
    price_s=VALIDATION_PRICE_S,
    effect="holds the ranks and measures them",
    source="measured (actuators/thresholds.py); its budget is twice as much",
)

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

HOPELESS_AFTER_S = 300.0
"""Of hangs longer than this 97 % never recover (CCL-D, evaluation, parameters): there is no more to wait for."""
