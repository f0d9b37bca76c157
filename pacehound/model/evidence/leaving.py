"""Processes that are stopped or gone, and in what order ranks left."""

from __future__ import annotations

from typing import ClassVar

from pacehound.model.evidence.phrases import n_ranks_words, shown_ranks, signal_name
from pacehound.model.evidence.piece import OfRanks, Piece
from pacehound.model.int64 import Int64


class Process(Piece, frozen=True, kw_only=True, tag="process"):
    """The process of a rank: stopped, running, or how it ended."""

    rank: Int64
    pid: Int64
    state: str
    exit_code: Int64 | None = None
    signal: Int64 | None = None
    detail: str = ""

    ABOUT: ClassVar = ("rank",)

    def _sentence(self) -> str:
        who = f"the process of rank {self.rank} (pid {self.pid})"
        if self.state == "stopped":
            return f"{who} is stopped (SIGSTOP or a debugger)"
        if self.state != "exited":
            return f"{who} runs"
        how = "is gone"
        if self.signal is not None:
            how = f"was killed by signal {self.signal}"
        elif self.exit_code is not None:
            how = f"left with exit code {self.exit_code}"
        return f"{who} {how}{': ' + self.detail if self.detail else ''}"


class Left(Piece, frozen=True, kw_only=True, tag="left"):
    """A rank that left before the others, one of `n_first`, and how; or so long after the first one (`after_s`)."""

    rank: Int64
    pid: Int64
    exit_code: Int64 | None = None
    signal: Int64 | None = None
    detail: str = ""
    after_s: float | None = None
    n_first: Int64 = 1

    ABOUT: ClassVar = ("rank",)

    def _sentence(self) -> str:
        who = f"rank {self.rank} (pid {self.pid})"
        how = f"left with exit code {self.exit_code}"
        if self.signal is not None:
            how = f"was killed by {signal_name(self.signal)}"
        elif self.exit_code is None:
            how = "left without a word, nobody saw how"
        if self.after_s is not None:
            return f"{who} {how}, {f'{self.after_s:.2f} s later' if self.after_s > 0 else 'first'}"
        detail = f": {self.detail}" if self.detail else ""
        place = "the first" if self.n_first == 1 else f"one of the first {self.n_first}"
        return f"{who} was {place} to leave: it {how}{detail}"


class EndedFromOutside(Piece, frozen=True, kw_only=True, tag="ended_from_outside"):
    """Why who was killed is not to blame.

    All ranks were killed within a time; or one was asked to end so long before, by a signal: the launcher did both. Of
    all ranks, with a signal: it is one by which a process ends itself, so that all have crashed alike. Of one and of so
    many ranks: these have lost their connections to a peer.
    """

    n_ranks: Int64 = 0
    within_s: float = 0.0
    first_rank: Int64 | None = None
    before_s: float = 0.0
    signal: Int64 = 0

    def _sentence(self) -> str:
        if self.first_rank is None and self.signal:
            return (
                f"all {self.n_ranks} ranks crashed within {self.within_s:g} s, by {signal_name(self.signal)}: by what "
                "all of them do"
            )
        if self.first_rank is None and self.n_ranks == 1:
            return "the only rank that was still heard of was killed: from outside, or for what befell the others"
        if self.first_rank is None:
            return f"all {self.n_ranks} ranks were killed within {self.within_s:g} s: from outside"
        if self.n_ranks:
            ended = f"rank {self.first_rank} was ended{f' by {signal_name(self.signal)}' if self.signal else ''}"
            return f"{ended}, and those who failed had lost their connections to a rank"
        return (
            f"rank {self.first_rank} was the first to end, {self.before_s:.1f} s before, by "
            f"{signal_name(self.signal)}: the launcher was ending the job, and killed who was left"
        )


class StoodBefore(Piece, frozen=True, kw_only=True, tag="stood_before"):
    """The job stood still before anybody left."""

    def _sentence(self) -> str:
        return "before the first rank left nobody had moved for a while"


class Reported(OfRanks, frozen=True, kw_only=True, tag="reported"):
    """What another tool says of some ranks, by its `detail`; or that they hang, by its `format`."""

    detail: str = ""
    format: str = ""

    ABOUT: ClassVar = ("detail", "format")

    def _sentence(self) -> str:
        if self.format:
            return f"{self.format} says of {self.n_ranks} ranks that they hang"
        return f"{shown_ranks(self.ranks, self.n_ranks)}: {self.detail}"


class JobShape(Piece, frozen=True, kw_only=True, tag="job_shape"):
    """How the ranks of a job were laid out and what a step took when one was lost: what a recovery is priced from.

    `stage_stride` is the distance of world ranks from one stage to the next. `micro_batches` are those of one pipeline
    in a step, and `gradient_bytes` what a rank of the data-parallel group that is looked at reduces in it; 0 where that
    is not known. `is_sharded`: replicas gather or scatter parameters or gradients, so ranks hold what no other has.
    """

    dp: Int64
    pp: Int64
    tp: Int64
    stage_stride: Int64
    micro_batches: Int64
    gradient_bytes: Int64
    step_time_s: float
    is_sharded: bool = False

    def _sentence(self) -> str:
        inner = f" x TP {self.tp}" if self.tp > 1 else ""
        each = f" with {self.micro_batches} micro-batches for each pipeline" if self.micro_batches else ""
        return f"by its calls the job trained with DP {self.dp} x PP {self.pp}{inner}{each}, in steps of " + (
            f"{self.step_time_s:.3g} s" if self.step_time_s else "unknown length"
        )


class Joined(Piece, frozen=True, kw_only=True, tag="joined"):
    """Hosts that could take part in a job which has lost ranks and goes on with fewer.

    `back` were lost with their ranks and are heard again; `new` have offered themselves. They are good for `n_ranks`,
    beside the `n_now` of `n_before` that train. `dp` and `pp` are the degrees of those by their calls; 0: irregular, or
    not known yet. `at_ns`: since when.
    """

    back: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    n_ranks: Int64
    n_now: Int64
    n_before: Int64
    at_ns: Int64
    dp: Int64 = 0
    pp: Int64 = 0

    def _sentence(self) -> str:
        told = [f"{', '.join(self.back)} {'are' if len(self.back) > 1 else 'is'} heard again"] if self.back else []
        told += [f"{', '.join(self.new)} {'offer' if len(self.new) > 1 else 'offers'} to take part"] if self.new else []
        return (
            f"{' and '.join(told)}: {n_ranks_words(self.n_ranks)} more could train beside the {self.n_now} of "
            f"{self.n_before} that do"
        )
