"""How long iterations take: levels, single slow steps, and what else changed with them."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pacehound.model.evidence.phrases import level_in_words, ranks_words
from pacehound.model.evidence.piece import OfRanks, Piece
from pacehound.model.int64 import Int64
from pacehound.model.short_job import not_judged

Trend = Literal["", "slower still", "less slow", "it is not over"]


class Level(Piece, frozen=True, kw_only=True, tag="level"):
    """A level of the step times and the one before it; `runs` are earlier runs that had the same change."""

    before_s: float
    after_s: float
    since_step: Int64
    trend: Trend = ""
    runs: tuple[str, ...] = ()

    ABOUT: ClassVar = ("since_step", "trend")

    def _sentence(self) -> str:
        after, before = level_in_words(self.after_s), level_in_words(self.before_s)
        magnitude = self.after_s / self.before_s - 1.0 if self.before_s else math.nan
        words = f"steps take {after} since step {self.since_step}, {before} before ({magnitude:+.1%})"
        words = f"{self.trend}: {words}" if self.trend else words
        return f"{words}; so did {', '.join(self.runs)}" if self.runs else words


class CycleLevel(Piece, frozen=True, kw_only=True, tag="cycle_level"):
    """What a step takes on average over whole cycles of so many, now and before; single ones take what they took."""

    period: Int64
    before_s: float
    after_s: float
    since_step: Int64

    ABOUT: ClassVar = ("since_step",)

    def _sentence(self) -> str:
        after, before = level_in_words(self.period * self.after_s), level_in_words(self.period * self.before_s)
        magnitude = self.after_s / self.before_s - 1.0 if self.before_s else math.nan
        return (
            f"every {self.period} steps take {after} since step {self.since_step}, {before} before ({magnitude:+.1%}): "
            "the long ones among them, for most take what they took"
        )


class Relieved(Piece, frozen=True, kw_only=True, tag="relieved"):
    """The level at the end of a slowdown, and what it is: the steps', their average, or that of earlier attempts."""

    after_s: float
    measure: Literal["level", "average", "as before", "as earlier attempts"]
    since_step: Int64 | None = None

    def _sentence(self) -> str:
        if self.measure == "as before":
            return "iterations take on average what they took before"
        if self.measure == "as earlier attempts":
            return f"steps take {self.after_s * 1e3:.4g} ms now, as in earlier attempts"
        after = level_in_words(self.after_s)
        if self.measure == "average":
            return f"iterations take {after} on average since step {self.since_step}"
        return f"steps take {after} since step {self.since_step}"


class HowItCame(Piece, frozen=True, kw_only=True, tag="how_it_came"):
    """What the shape of a change tells beside its level."""

    shape: Literal["slowly", "small", "speed-up"]

    def _sentence(self) -> str:
        return {
            "slowly": "it came slowly: no single step stands out, the older blocks of steps are all faster",
            "small": "too small for one look: told by many steps against all the older ones",
            "speed-up": "a lasting speed-up is no fault",
        }[self.shape]


class SingleSlow(Piece, frozen=True, kw_only=True, tag="single_slow"):
    """Some iterations are slow and most are not: the average, now and before; `since_step` where a slowdown faded."""

    now_s: float
    before_s: float
    since_step: Int64 | None = None

    def _sentence(self) -> str:
        now, before = level_in_words(self.now_s), level_in_words(self.before_s)
        if self.since_step is None:
            return f"they have become the rule: iterations take {now} on average, {before} before; it goes on"
        return (
            f"single iterations are slow since step {self.since_step}, most are not: they take {now} on average, "
            f"{before} before"
        )


class AsInEarlierRuns(Piece, frozen=True, kw_only=True, tag="as_in_earlier_runs"):
    """Earlier runs that had the same change at the same step."""

    runs: tuple[str, ...]

    def _sentence(self) -> str:
        return f"so did {', '.join(self.runs)} at the same step: planned"


class SlowerThanEarlier(Piece, frozen=True, kw_only=True, tag="slower_than_earlier"):
    """The pace of a whole run beside that of its last attempts, each by its name."""

    pace_s: float
    magnitude: float
    earlier: tuple[tuple[str, float], ...]

    def _sentence(self) -> str:
        told = "; ".join(f"{name}: {pace_s * 1e3:.4g} ms" for name, pace_s in self.earlier)
        return (
            f"{self.magnitude:.0%} slower than its last {len(self.earlier)} attempts on as many ranks and hosts, since "
            f"the start: a step takes {self.pace_s * 1e3:.4g} ms ({told})"
        )


class Bursts(Piece, frozen=True, kw_only=True, tag="bursts"):
    """Short stretches of slow steps, `every` so many steps where they come in a rhythm."""

    n: Int64
    since_step: Int64
    lost_share: float
    every: Int64 | None = None

    def _sentence(self) -> str:
        how = f"every {self.every} steps" if self.every else "without a rhythm"
        return (
            f"{self.n} times since step {self.since_step} one or a few steps took much longer, {how}: "
            f"{self.lost_share:.1%} of the time is lost to them; the level in between has not moved"
        )


class BurstsOver(Piece, frozen=True, kw_only=True, tag="bursts_over"):
    """Why they count no longer: none came, or they come every `period` rows."""

    last_step: Int64
    period: Int64 | None = None

    def _sentence(self) -> str:
        if self.period:
            return f"they turned out to recur every {self.period} rows: planned"
        return f"no more of them after step {self.last_step}"


class Recurring(Piece, frozen=True, kw_only=True, tag="recurring"):
    """Steps that are slow in a rhythm: `n_slow` in each `period`, `ratio` times as long as usual where that is known.

    With a period of two the ratio is that of the two; without any `n_slow` only the period is known.
    """

    period: Int64
    n_slow: Int64 = 0
    ratio: float = 0.0

    def _sentence(self) -> str:
        if not self.n_slow:
            return f"slow steps that recur every {self.period} rows of the log"
        if self.period == 2:
            return f"steps alternate: every other one takes {self.ratio:.2f} times as long"
        if self.n_slow == 1:
            return f"one step in {self.period} takes {self.ratio:.2f} times as long as the others"
        return (
            f"a pattern of {self.period} steps: {self.n_slow} of them take up to {self.ratio:.2f} times as long as "
            "the median one"
        )


class LongSteps(Piece, frozen=True, kw_only=True, tag="long_steps"):
    """Single steps of a log that took very long, each with its seconds."""

    steps: tuple[tuple[Int64, float], ...]
    usual_s: float
    lost_percent: Int64

    def _sentence(self) -> str:
        n = len(self.steps)
        told = ", ".join(f"step {step}: {seconds:.4g} s" for step, seconds in self.steps)
        return (
            f"{'one step took' if n == 1 else f'{n} steps took'} much longer than the usual {self.usual_s:.3g} s "
            f"({told}): {self.lost_percent} % of the log's time is lost in that"
        )


class ManyShort(Piece, frozen=True, kw_only=True, tag="many_short"):
    """Slowdowns too short to be told one by one: of the last ten minutes, or with `share` of the whole job."""

    n: Int64
    lost_s: float
    share: float | None = None

    def _sentence(self) -> str:
        if self.share is not None:
            return f"{self.n} short slowdowns, {self.share:.1%} of the time"
        return (
            f"{self.n} short slowdowns in ten minutes, {self.lost_s:.1f} s lost in them: none of them lasted long "
            "enough to be told by itself"
        )


class NamedOften(OfRanks, frozen=True, kw_only=True, tag="named_often"):
    """Ranks that most of the short slowdowns named."""

    def _sentence(self) -> str:
        return f"ranks {', '.join(map(str, self.ranks))} were named in most of them"


class WorkChanged(Piece, frozen=True, kw_only=True, tag="work_changed"):
    """What there is to do has become more: calls or bytes of an iteration, or a field of the job's own log."""

    what: str
    before: float
    after: float
    by_log: bool = False

    ABOUT: ClassVar = ("what",)

    def _sentence(self) -> str:
        if self.by_log:
            return f"the work has changed with it: {self.what} is {self.after:g}, it was {self.before:g}"
        return f"the work has changed: {self.after:.0f} {self.what} per iteration, {self.before:.0f} before"


class TooShort(Piece, frozen=True, kw_only=True, tag="too_short"):
    """A job had too few iterations for a slowdown to be found; none where no iteration was recognised."""

    n_iterations: Int64

    def _sentence(self) -> str:
        return not_judged(self.n_iterations)


class InStepTimes(Piece, frozen=True, kw_only=True, tag="in_step_times"):
    """In the step times of which ranks it shows: in `n_in` of `n_logs`; `is_alone` where the others are known well."""

    ranks: tuple[Int64, ...]
    n_in: Int64
    n_logs: Int64
    is_alone: bool = False

    def _sentence(self) -> str:
        if self.n_in == self.n_logs:
            return f"in the step times of all {self.n_in} ranks in the same steps: whose delay it is they do not tell"
        if self.n_in > 1:
            return f"in the step times of {ranks_words(self.ranks)}, {self.n_in} of {self.n_logs}, in the same steps"
        words = f"in the step times of rank {self.ranks[0] if self.ranks else None} alone"
        return f"{words}: the other {self.n_logs - 1} ranks' hardly changed meanwhile" if self.is_alone else words
