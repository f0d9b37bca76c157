"""The way back to the ranks: what a controller tells the agents of a job, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pacehound.model.identity import event_id
from pacehound.model.int64 import Int64

RankState = Literal["running", "armed", "held", "released", "refused", "absent"]

TrainerState = Literal["asked", "able", "unable", "armed", "confirmed", "applied", "kept", "absent"]

Refused = Literal["forged", "damaged", "foreign", "early", "expired", "replayed", "out of order", "cannot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A signed order (pacehound/model/orders.py).

    Attributes
    ----------
    order
        The bytes that were signed.
    key
        The public key that it is to be checked with, as 64 hexadecimal digits.
    signature
        Ed25519, of `order`.

    """

    job: str
    attempt: Int64
    time_ns: Int64
    order: bytes
    key: str
    signature: bytes

    def identity(self) -> str:
        """Names what was signed and how."""
        return event_id("command", self.job, self.attempt, self.key, self.order.hex(), self.signature.hex())


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAnswer:
    """Where one rank is.

    Attributes
    ----------
    launched
        Collectives that it has launched on the communicator of all ranks.
    per_s
        How many a second just now.
    held_ns
        Since when it is held, on its host's monotonic clock; 0: it is not.
    hold_limit_ms
        For how long it may stand still, so that none of its process groups gives up; 0: not said.
    why
        Why it was released, or refused, or cannot be held.

    """

    rank: Int64
    state: RankState
    launched: Int64 = 0
    per_s: float = 0.0
    held_ns: Int64 = 0
    hold_limit_ms: Int64 = 0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerAnswer:
    """What the script of one rank says of an offer (`pacehound.trainer`), or its host's agent of it.

    Attributes
    ----------
    state
        `asked`, then `able` or `unable`; `armed` when it has been told the step, `confirmed` when all have; in the end
        `applied`, or `kept`: left as it was. `absent`: nobody there takes orders.
    step
        How far it is; where it has applied it, at which step.
    per_s
        Steps a second just now; 0: not known.
    agrees_every
        So many steps lie between two at which the ranks agree by themselves; 0: they do not.
    why
        Of what is `unable`, `kept` or `absent`.
    micro_batches
        How many the rank computes in each step unless it was ordered otherwise; 0: it does not say.
    replicas, stages
        The layout in which ranks may change places; 0: it does not say.

    """

    rank: Int64
    state: TrainerState
    step: Int64 = -1
    per_s: float = 0.0
    agrees_every: Int64 = 0
    why: str = ""
    micro_batches: Int64 = 0
    replicas: Int64 = 0
    stages: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryQuestion:
    """Ranks that have lost others ask which plan to go on with (`pacehound.trainer`).

    Attributes
    ----------
    digest
        Of the question: who asks the same has the same.
    survivors
        All that are to ask it.
    ranks
        Those of this host that have.
    payload
        What is left of the job, and its costs, as JSON.
    within_ms
        So long the most impatient of them waits from now on.

    """

    digest: str
    survivors: tuple[Int64, ...]
    ranks: tuple[Int64, ...]
    payload: str
    within_ms: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRanks:
    """What a validation says of one rank, or of the link from one to another.

    Attributes
    ----------
    ranks, hosts
        One, or the two ends.
    measured
        What decided: `gemm float32` ….
    ratio
        Of its time to its peers'; `None` where it was not measured.
    time_s, peers_s
        Those two.

    """

    ranks: tuple[Int64, ...]
    hosts: tuple[str, ...]
    verdict: Literal["culprit", "cleared", "unclear"]
    measured: str
    ratio: float | None
    reason: str
    time_s: float | None = None
    peers_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a host says of an order.

    Attributes
    ----------
    order
        The order's id; empty where it could not be read.
    what
        What it was about: `hold` ….
    number
        Counts the answers of this host.
    refused
        Why nothing was done; empty where it was.
    reason
        The same in a sentence.
    world_size
        How many ranks the job has; 0: not known here.
    trap
        The hold that its ranks are in, or that was refused; 0: none.
    ranks
        The host's own, as they are now.
    ticket
        The offer that its scripts have answered, or that was refused; 0: none.
    trainers
        What they say.
    rendezvous
        Where processes on this host can be met, as ADDRESS:PORT.
    ready
        Ranks beside which a process waits for the order to measure.
    judged
        What was measured, said by the host of rank 0.
    failed
        Why nothing was measured.
    asked
        What its ranks want to know.

    """

    job: str
    attempt: Int64
    time_ns: Int64
    host: str
    number: Int64
    order: str = ""
    what: str = ""
    incident: str = ""
    refused: Refused | Literal[""] = ""
    reason: str = ""
    world_size: Int64 = 0
    trap: Int64 = 0
    ranks: tuple[RankAnswer, ...] = ()
    ticket: Int64 = 0
    trainers: tuple[TrainerAnswer, ...] = ()
    rendezvous: str = ""
    ready: tuple[Int64, ...] = ()
    judged: tuple[JudgedRanks, ...] = ()
    failed: str = ""
    asked: RecoveryQuestion | None = None

    def identity(self) -> str:
        """Names the answer of a host."""
        return event_id("command_result", self.job, self.attempt, self.host, self.number, self.order)
