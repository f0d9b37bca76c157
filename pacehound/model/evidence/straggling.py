"""What a simulation of recorded steps says of stragglers, their cause, and what would mend them."""

from __future__ import annotations

from typing import ClassVar, Literal

from pacehound.model.evidence.piece import Piece
from pacehound.model.int64 import Int64

NO_KNOWN_CAUSE = "none of these"


class Straggles(Piece, frozen=True, kw_only=True, tag="straggles"):
    """By how much stragglers lengthen the steps, in windows of recorded steps; each window's cause and its ranks.

    A `cause` that all windows share; empty where they do not. `is_over` where it is too little to mend.
    """

    slowdown: float
    first_step: Int64
    last_step: Int64
    n_windows: Int64
    cause: str = ""
    causes: tuple[tuple[str, tuple[Int64, ...]], ...] = ()
    is_over: bool = False

    ABOUT: ClassVar = ("is_over",)

    def _sentence(self) -> str:
        more = f"steps take {self.slowdown - 1:.1%} longer".replace("%", " %")
        if self.is_over:
            return f"{more} than without stragglers since step {self.first_step}: too little to mend"
        return (
            f"{more} than without stragglers, in each of {self.n_windows} windows of recorded steps "
            f"({self.first_step} to {self.last_step}); {self._cause()}"
        )

    def _cause(self) -> str:
        if self.cause:
            is_known = self.cause != NO_KNOWN_CAUSE
            return f"the cause is: {self.cause}" if is_known else "they show none of the known causes"
        told = [cause + (f" (ranks {', '.join(map(str, ranks))})" if ranks else "") for cause, ranks in self.causes]
        return f"the cause is not the same in each of them: {'; '.join(dict.fromkeys(told))}"


class Mend(Piece, frozen=True, kw_only=True, tag="mend"):
    """Something to do and by what share steps would be shorter; or the part that gives most back if it is as others."""

    what: str
    gain: float | None
    is_part: bool = False

    ABOUT: ClassVar = ("what",)

    def _sentence(self) -> str:
        if self.is_part:
            return f"what would give back most: {self.what} as the others (steps {self.gain or 0.0:.0%} shorter)"
        return f"what would mend it: {self.what}" + (f" (steps {self.gain:.0%} shorter)" if self.gain else "")


class Explains(Piece, frozen=True, kw_only=True, tag="explains"):
    """Which share of the slowdown goes without something: `M_W` and `M_S` are the paper's, the others simulated."""

    share: float
    without: Literal["M_W", "M_S", "workers", "uneven micro-batches", "stalls", "dependency"]

    ABOUT: ClassVar = ("without",)

    def _sentence(self) -> str:
        share = f"{self.share:.0%} of the slowdown goes"
        return {
            "M_W": f"M_W = {self.share:.3f}: so much of the slowdown goes if these workers are as fast as the others",
            "M_S": f"M_S = {self.share:.3f}: so much of the slowdown goes if the last stage is as fast as the average",
            "workers": f"{share} with them, once micro-batches are alike",
            "uneven micro-batches": f"{share} if all micro-batches of a worker are alike",
            "stalls": f"{share} without them",
            "dependency": f"{share} without it",
        }[self.without]


class SlowWorker(Piece, frozen=True, kw_only=True, tag="slow_worker"):
    """One worker: what it alone makes of the steps, its passes over those of its peers, how often it is the slowest."""

    dp: Int64
    stage: Int64
    rank: Int64
    slowdown: float
    forward_ratio: float
    backward_ratio: float
    slowest_share: float
    peers: Literal["the same stage of the other DP ranks", "the other stages"]

    ABOUT: ClassVar = ("dp", "stage")

    def _sentence(self) -> str:
        return (
            f"dp {self.dp} stage {self.stage} (rank {self.rank}) alone makes steps x{self.slowdown:.3f}; its forward "
            f"takes x{self.forward_ratio:.2f} and its backward x{self.backward_ratio:.2f} of {self.peers}; it is the "
            f"slowest worker in {self.slowest_share:.0%} of the steps"
        )


class Slowdowns(Piece, frozen=True, kw_only=True, tag="slowdowns"):
    """What each part of a job makes of the steps by itself: operation types, stages, or the slowest worker."""

    of: Literal["operation types", "stages", "worker"]
    slowdowns: tuple[tuple[str, float], ...]

    ABOUT: ClassVar = ("of",)

    def _sentence(self) -> str:
        if self.of == "operation types":
            return "by operation type: " + ", ".join(f"{name} x{slowdown:.3f}" for name, slowdown in self.slowdowns)
        if self.of == "stages":
            listed = ", ".join(f"{name}: x{slowdown:.3f}" for name, slowdown in self.slowdowns)
            return f"stages alone make steps {listed}"
        return "the slowest worker by itself: " + "; ".join(f"{name}, x{ratio:.3f}" for name, ratio in self.slowdowns)


class SlowWorkers(Piece, frozen=True, kw_only=True, tag="slow_workers"):
    """How many workers take `ratio` of the median of their stage, and which share of the slowdown goes with them."""

    n: Int64
    of: Int64
    ratio: float
    share: float

    def _sentence(self) -> str:
        return (
            f"{self.n} of {self.of} workers take at least x{self.ratio} of the median DP rank of their stage; "
            f"{self.share:.0%} of the slowdown goes with them"
        )


class SlowestShares(Piece, frozen=True, kw_only=True, tag="slowest_shares"):
    """Which shares of the slowdown the slowest workers and the last stage explain."""

    workers_share: float
    last_stage_share: float

    def _sentence(self) -> str:
        return (
            f"the slowest 3 % of the workers explain {self.workers_share:.0%} of the slowdown, the last stage "
            f"{self.last_stage_share:.0%}"
        )


class LastStage(Piece, frozen=True, kw_only=True, tag="last_stage"):
    """The passes of the last stage over those of the others."""

    forward_ratio: float
    backward_ratio: float

    def _sentence(self) -> str:
        return (
            f"on the median DP rank its forward takes x{self.forward_ratio:.2f} and its backward "
            f"x{self.backward_ratio:.2f} of the others'"
        )


class MicroBatches(Piece, frozen=True, kw_only=True, tag="micro_batches"):
    """How unlike micro-batches are: the longest over the median one, or the DP rank with most work over the average."""

    measure: Literal["longest", "most work"]
    ratio: float

    ABOUT: ClassVar = ("measure",)

    def _sentence(self) -> str:
        if self.measure == "longest":
            return f"the longest 5 % of the micro-batches take at least x{self.ratio:.2f} of the median one"
        return f"within a step the DP rank with most work has x{self.ratio:.2f} of the average"


class PassesCorrelate(Piece, frozen=True, kw_only=True, tag="passes_correlate"):
    """How forward and backward of a micro-batch correlate over the workers of a stage."""

    stage: Int64
    median: float
    lowest: float

    def _sentence(self) -> str:
        return (
            f"forward and backward of a micro-batch correlate with {self.median:.3f} on the workers of stage "
            f"{self.stage} (lowest {self.lowest:.3f}): what makes one long makes the other long"
        )


class Stalled(Piece, frozen=True, kw_only=True, tag="stalled"):
    """Single computes that take long: how many forward and backward, by what share at least, how long on average."""

    n_forward: Int64
    n_backward: Int64
    least_share: float
    mean_s: float

    def _sentence(self) -> str:
        return (
            f"{self.n_forward} forward and {self.n_backward} backward computes take at least {self.least_share:.0%} "
            f"more than the same worker's others, {self.mean_s * 1e3:.0f} ms on average; the other pass of the same "
            "micro-batch does not"
        )


class StallsOnWorkers(Piece, frozen=True, kw_only=True, tag="stalls_on_workers"):
    """On how many workers they are, and which share is on the one with most."""

    n_workers: Int64
    of: Int64
    most_share: float

    def _sentence(self) -> str:
        return f"they are on {self.n_workers} of {self.of} workers, {self.most_share:.0%} on the one with most"


class StallsLookLike(Piece, frozen=True, kw_only=True, tag="stalls_look_like"):
    """Which cause the shape of stalls points to, and what would confirm it."""

    cause: Literal["collection", "fragmentation", "fragmentation unseen"]

    ABOUT: ClassVar = ("cause",)

    def _sentence(self) -> str:
        return {
            "collection": "forward stalls that wander over the workers and leave the backward pass alone",
            "fragmentation": "both passes stall, each at micro-batches of its own: not sequences, and not the garbage "
            "collector",
            "fragmentation unseen": "not seen here: calls of cudaMalloc and cudaFree; look at num_alloc_retries in "
            "torch.cuda.memory_stats()",
        }[self.cause]


class BesideScatters(Piece, frozen=True, kw_only=True, tag="beside_scatters"):
    """Computes beside a reduce-scatter of their own worker, the median one over the worker's others."""

    n: Int64
    ratio: float

    def _sentence(self) -> str:
        return (
            f"{self.n} computes run beside a reduce-scatter of their own worker; the median one takes "
            f"x{self.ratio:.2f} of the same worker's others"
        )


class LostInEach(Piece, frozen=True, kw_only=True, tag="lost_in_each"):
    """What is lost in each of them on average."""

    mean_s: float

    def _sentence(self) -> str:
        return f"{self.mean_s * 1e3:.0f} ms are lost in each on average"
