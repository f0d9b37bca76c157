"""The recurring period of a communicator's calls: how many calls make an iteration."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streams.rounds.agreement import LISTED, agreeing_lags, iteration_lag
from streams.rounds.call_codes import CallCodes, CodeArray, Int64Array, mixed
from streams.rounds.thresholds import (
    AGREEMENT,
    BREAKS,
    MAX_PERIOD_CALLS,
    MIN_CALLS,
    MIN_CALLS_OF_KIND,
    MIN_CALLS_WITHOUT_BYTES,
    MISSING_CALLS,
    REPETITIONS,
    RESYNC_CALLS,
    RESYNC_IN_PLACE_CALLS,
)

State = Literal["learning", "periodic", "no period"]

_FULL = REPETITIONS * MAX_PERIOD_CALLS
_WINDOW = 165_000  # codes of two bytes; what is beyond _FULL makes room
_CHUNK = 5_000
_AHEAD = 1_024  # calls of the pattern that are laid out behind it, so that a batch is compared with one slice
_BOUNDARIES = 4096
_EVERYTHING, _KIND_ONLY = 0xFFFF, 0xFF00


class PeriodTracker:
    """Period of a stream of call tokens, found by autocorrelation of agreement, then followed at a compare per call.

    For a lag `k` the agreement is the share of equal pairs, `mean(x[t] == x[t + k])` over the `L - k` pairs there
    are. Falcon's estimator divides a sum over `L - k` terms by one over `L`, so that it reads `(L - k) / L` at the
    true period; and it takes the tokens for numbers, so that their coding decides. Agreement has neither trouble.
    It is estimated for all lags at once by FFT of the tokens' random phases (equal tokens count 1, others a cosine
    that differs from projection to projection), then counted exactly for the lags that may matter.

    The first lag with agreement >= 0.95 is often the layer (80 equal layers agree so), not the iteration. The
    period is therefore the smallest lag that agrees as well as any does, seen at least three times; `candidates`
    lists the others. A pattern that was locked inside one iteration breaks at its end; a search over all that is
    known follows when it has broken three times.

    Sequence packing and mixtures of experts move other bytes in each iteration. Where the kinds of the calls are
    given too, the bytes of a kind are dropped when they do not recur: at the period that was found, or at no lag of
    their own when none was found. The kinds whose bytes recur keep them, for they may be all that tells an
    iteration from a layer. (Sizes that have not recurred yet may still do: a period found without bytes is searched
    for again with all bytes until the window is full.)

    Once locked, each call is compared with the stored pattern. Extra calls (an evaluation, a checkpoint) are
    skipped when the pattern goes on behind them, lost ones likewise; otherwise the tracker unlocks and learns again.

    An evaluation every 50 iterations makes a cycle that recurs too, and agrees better than the iteration. Tokens
    alone cannot tell layers in an iteration from iterations in such a cycle; what is known of either decides where
    a pattern comes 40 times or more: with 24 calls or more it is no layer, and an iteration unless what is left over
    has more than three calls of kinds that are not in it (the reduction of gradients behind many micro-batches).
    With fewer calls it is an iteration only if less than half a pattern is left over, and no other kind of call.

    What it cannot tell: calls that recur at a fixed distance and hold no other difference (equal buckets). Until it
    has seen three iterations it may take a layer or a micro-batch for one. Where the optimizer's steps are seen, they
    are better.

    Parameters
    ----------
    threshold
        Smallest agreement of a period (Falcon's M).

    References
    ----------
    Falcon (arXiv 2410.12588), section 4.2.

    Examples
    --------
    >>> from streams.rounds.call_codes import token
    >>> tracker = PeriodTracker()
    >>> tracker.extend(np.tile(token([1, 2, 2, 3], [8, 8, 16, 8], -1), 30))
    >>> tracker.period, tracker.state, tracker.take_boundaries()[:3].tolist()
    (4, 'periodic', [0, 4, 8])
    """

    def __init__(self, *, threshold: float = AGREEMENT) -> None:
        if not 0.5 < threshold <= 1.0:
            raise ValueError(f"threshold must lie above 0.5 and be at most 1, got {threshold}")
        self._threshold = threshold
        self._call_codes = CallCodes()
        self._codes: CodeArray = np.zeros(1024, np.uint16)
        self._length = 0  # codes held
        self._first = 0  # index in the stream of the first one
        self._search_at = MIN_CALLS  # length at which the next search pays
        self._exhausted = False
        self._mask: CodeArray | None = None  # by kind: what of a code is compared; `None`: everything
        self._is_provisional = False  # found without bytes, which may still recur
        self._set_pattern(np.zeros(0, np.uint16))
        self._followed = 0  # index in the stream up to which the pattern has been followed
        self._phase = 0
        self._breaks = 0
        self._locks = 0
        self._candidates: tuple[int, ...] = ()
        self._boundaries: list[int] = []
        self._last_taken = -1

    @property
    def period(self) -> int | None:
        """Calls per period, or `None`."""
        return len(self._pattern) or None

    @property
    def candidates(self) -> tuple[int, ...]:
        """Lags of the last search that reached the threshold, smallest first (at most 16)."""
        return self._candidates

    @property
    def state(self) -> State:
        """`periodic`; else `learning`, or `no period` when a full window of calls has shown none."""
        if len(self._pattern):
            return "periodic"
        return "no period" if self._exhausted else "learning"

    @property
    def calls_seen(self) -> int:
        """Length of the stream so far."""
        return self._first + self._length

    @property
    def locks(self) -> int:
        """How often a period has been found; what was measured before the last time belongs to other periods."""
        return self._locks

    @property
    def pattern(self) -> CodeArray:
        """The codes of one period, shape `(period,)`: the kind's number (`CallCodes`) in the high byte."""
        return self._pattern.copy()

    @property
    def kinds_without_bytes(self) -> tuple[int, ...]:
        """Numbers of the kinds whose bytes vary, so that they are not compared."""
        return () if self._mask is None else tuple(np.flatnonzero(self._mask == _KIND_ONLY).tolist())

    def extend(self, tokens: npt.ArrayLike, kinds: npt.ArrayLike | None = None) -> None:
        """Take the next calls of the stream, in order.

        `kinds` are the tokens of the same calls without their bytes, of the same shape `(n,)`; without them bytes are
        never dropped. Give them always or never.
        """
        tokens = np.asarray(tokens, np.int64)
        if kinds is None:
            codes = (mixed(tokens.view(np.uint64)) >> np.uint64(48)).astype(np.uint16)
        else:
            codes = self._call_codes.encode(tokens, np.asarray(kinds, np.int64))
        for start in range(0, len(codes), _CHUNK):
            self._append(codes[start : start + _CHUNK])
            if len(self._pattern):
                self._follow()
            if self._length >= self._search_at and self._wants_search:
                self._search()

    def codes_of(self, tokens: Int64Array, kinds: Int64Array) -> CodeArray:
        """Codes of calls as they stand in `pattern`, shape `(n,)`."""
        return self._compared(self._call_codes.encode(tokens, kinds))

    def begin_with(self, position: int) -> None:
        """Let periods begin at another call: `position` within `pattern`, which becomes its first."""
        period = len(self._pattern)
        if not 0 <= position < period:
            raise ValueError(f"position {position} lies outside the period of {period} calls")
        self._set_pattern(np.roll(self._pattern, -position))
        self._phase = (self._phase - position) % period
        self._boundaries = [index + position for index in self._boundaries if index + position < self._followed]

    def take_boundaries(self) -> Int64Array:
        """Indices in the stream (from 0) at which periods began, since the last time this was asked.

        The time between the calls at adjacent ones is an iteration time. Which call of the iteration it is stays
        the same until the period is found anew (then they go on behind the last one taken). At most 4,096 are compared.
        """
        taken = np.array(self._boundaries, np.int64)
        self._last_taken = self._boundaries[-1] if self._boundaries else self._last_taken
        self._boundaries = []
        return taken

    def __getstate__(self) -> dict[str, Any]:
        """At most 512 KB when it is written down: without the room for more codes, and without the laid-out copy."""
        state = {**self.__dict__, "_codes": self._codes[: self._length]}
        del state["_laid_out"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_pattern(self._pattern)

    @property
    def _wants_search(self) -> bool:
        return not len(self._pattern) or self._breaks >= BREAKS or self._is_provisional

    def _set_pattern(self, pattern: CodeArray) -> None:
        self._pattern = pattern
        self._laid_out = np.resize(pattern, len(pattern) + _AHEAD) if len(pattern) else pattern

    def _append(self, codes: CodeArray) -> None:
        if self._length + len(codes) > _WINDOW:
            gone = self._length + len(codes) - _FULL
            self._codes[: self._length - gone] = self._codes[gone : self._length].copy()
            self._length -= gone
            self._first += gone
            self._search_at = max(self._search_at - gone, MIN_CALLS)
        needed = self._length + len(codes)
        if needed > len(self._codes):
            grown = np.zeros(min(max(2 * len(self._codes), needed), _WINDOW), np.uint16)
            grown[: self._length] = self._codes[: self._length]
            self._codes = grown
        self._codes[self._length : needed] = codes
        self._length = needed

    def _follow(self) -> None:
        """Compare what is new with the pattern; after a break look for the place where it goes on."""
        period = len(self._pattern)
        if self._followed < self._first:  # the window slid over a break that was never resolved
            self._unlock()
            return
        while True:
            new = self._compared(self._codes[self._followed - self._first : self._length])
            if not len(new):
                return
            differs = new != self._expected(len(new))
            matched = int(differs.argmax())
            if not differs[matched]:
                self._mark(len(new))
                return
            self._mark(matched)
            new = new[matched:]
            certain = min(period, RESYNC_CALLS) if period >= 4 else 2 * period + 2
            if len(new) < certain + MISSING_CALLS:
                return
            rejoined = _rejoin(new, self._expected(certain + MISSING_CALLS), self._pattern, certain)
            if rejoined is None:
                if len(new) > max(4 * period, 1024):
                    self._unlock()
                return
            extra, phase_moved = rejoined
            if phase_moved and self._phase + phase_moved >= period:
                # The first call of the next period may stand elsewhere: two calls have changed places.
                first = np.flatnonzero(new[:extra] == self._pattern[0])[:1] + self._followed
                self._boundaries.extend(first[first > self._last_taken].tolist())
            self._followed += extra
            self._phase = 0 if phase_moved is None else (self._phase + phase_moved) % period
            self._breaks += 1

    def _compared(self, codes: CodeArray) -> CodeArray:
        """What of the codes counts: without the bytes of the kinds whose bytes vary."""
        return codes if self._mask is None else codes & self._mask[codes >> np.uint16(8)]

    def _expected(self, n: int) -> CodeArray:
        if self._phase + n <= len(self._laid_out):
            return self._laid_out[self._phase : self._phase + n]
        return self._pattern[(self._phase + np.arange(n)) % len(self._pattern)]

    def _mark(self, matched: int) -> None:
        """The next `matched` calls are as the pattern says."""
        period = len(self._pattern)
        first = self._followed + (-self._phase) % period
        self._followed += matched
        self._phase = (self._phase + matched) % period
        if first <= self._last_taken:
            first += (self._last_taken - first) // period * period + period
        if first < self._followed:
            self._boundaries.extend(range(first, self._followed, period))
            del self._boundaries[:-_BOUNDARIES]

    def _unlock(self) -> None:
        """Forget the pattern and all before its end: the job does something else now."""
        gone = max(self._followed - self._first, 0)
        self._codes[: self._length - gone] = self._codes[gone : self._length].copy()
        self._length -= gone
        self._first += gone
        self._set_pattern(np.zeros(0, np.uint16))
        self._mask, self._is_provisional = None, False
        self._phase, self._breaks = 0, 0
        self._search_at, self._exhausted = max(MIN_CALLS, self._length), False

    def _search(self) -> None:
        # Searches at lengths that grow by half cost a constant per call, all together.
        if self._length < _FULL:
            self._search_at = min(self._length * 3 // 2, _FULL)
        else:
            self._search_at = self._length + _FULL // 2
            self._exhausted = True
        codes = self._codes[: self._length]
        has_all_sizes = self._length >= _FULL
        while len(codes) >= MIN_CALLS:
            if self._lock_best(codes, codes, is_provisional=False):
                return
            if self._is_provisional and self._breaks < BREAKS:
                break
            mask = self._sizes_that_recur(codes)
            if mask is not None:
                compared = codes & mask[codes >> np.uint16(8)]
                if self._lock_best(codes, compared, is_provisional=not has_all_sizes):
                    return
            if len(self._pattern):
                break
            codes = codes[len(codes) // 2 :]  # what disturbs it may lie in the past
        self._is_provisional = self._is_provisional and not has_all_sizes

    def _sizes_that_recur(self, codes: CodeArray) -> CodeArray | None:
        """Drops the bytes of each kind whose own sequence of bytes has no period; `None` when there is none such."""
        if not len(self._call_codes) or len(codes) < MIN_CALLS_WITHOUT_BYTES:
            return None
        kinds = codes >> np.uint16(8)
        mask = np.full(256, _EVERYTHING, np.uint16)
        for kind, count in enumerate(np.bincount(kinds, minlength=256).tolist()):
            if count >= MIN_CALLS_OF_KIND and not agreeing_lags(codes[kinds == kind], self._threshold):
                mask[kind] = _KIND_ONLY
        return mask if (mask == _KIND_ONLY).any() else None

    def _lock_best(self, codes: CodeArray, compared: CodeArray, *, is_provisional: bool) -> bool:
        """Take the best period of `compared` (codes with or without bytes), if there is any."""
        candidates = agreeing_lags(compared, self._threshold)
        if not candidates:
            return False
        self._candidates = tuple(lag for lag, _ in candidates[:LISTED])
        period = iteration_lag(candidates, compared, known=len(self._pattern), has_kinds=len(self._call_codes) > 0)
        self._breaks = 0
        if period == len(self._pattern) and is_provisional == self._is_provisional:
            return True
        mask = self._sizes_that_agree(codes, period) if len(self._call_codes) else None
        compared = codes if mask is None else codes & mask[codes >> np.uint16(8)]
        differs = np.flatnonzero(compared[:-period] != compared[period:])
        start = int(differs[-1]) + 1 if len(differs) else 0
        if len(compared) - start < 2 * period:
            # Something extra lies within the last repetitions: wait for clean ones.
            self._search_at = min(self._search_at, self._length + max(period, self._length // 8))
            return True
        self._set_pattern(compared[start : start + period].copy())
        self._mask, self._is_provisional = mask, is_provisional
        self._phase = 0
        self._locks += 1
        self._boundaries = []
        self._followed = self.calls_seen - len(codes) + start
        self._exhausted = False
        self._follow()
        return True

    def _sizes_that_agree(self, codes: CodeArray, period: int) -> CodeArray | None:
        """Drops the bytes of each kind whose bytes are others one period later; `None` when there is none such."""
        now, later = codes[:-period], codes[period:]
        kinds = now >> np.uint16(8)
        is_same_kind = kinds == later >> np.uint16(8)
        pairs = np.bincount(kinds[is_same_kind], minlength=256)
        equal = np.bincount(kinds[now == later], minlength=256)
        mask = np.where(equal < self._threshold * pairs, _KIND_ONLY, _EVERYTHING).astype(np.uint16)
        return mask if (mask == _KIND_ONLY).any() else None


def _rejoin(new: CodeArray, expected: CodeArray, pattern: CodeArray, certain: int) -> tuple[int, int | None] | None:
    """Where the stream follows the pattern again after a break, for `certain` calls at least.

    `new` came instead of `expected`, which is `certain` calls and some more; so many tell one place in the pattern from
    another. Returns how many calls to skip, and how far the phase moves meanwhile; `None` for the latter: an iteration
    begins anew.
    """
    # Lost calls, and calls that came instead of others or changed places: the pattern moves on too. The latter leave
    # the rest in its place, so that less of it will do (the next such call may come soon).
    in_place = min(certain, RESYNC_IN_PLACE_CALLS)
    for cost in range(1, MISSING_CALLS + 1):
        if (new[cost : cost + in_place] == expected[cost : cost + in_place]).all():
            return cost, cost
        if (new[:certain] == expected[cost : cost + certain]).all():
            return 0, cost
        if (new[cost : cost + certain] == expected[:certain]).all():
            return cost, 0
    extra = _resume(new, expected[:certain])
    if extra is not None:
        return extra, 0
    extra = _resume(new, np.resize(pattern, certain))
    return None if extra is None else (extra, None)


def _resume(codes: CodeArray, pattern: CodeArray) -> int | None:
    """The first offset at which `pattern` stands in `codes`."""
    starts = np.flatnonzero(codes[: len(codes) - len(pattern) + 1] == pattern[0])
    for k in range(1, len(pattern)):
        if not len(starts):
            return None
        starts = starts[codes[starts + k] == pattern[k]]
    return int(starts[0]) if len(starts) else None
