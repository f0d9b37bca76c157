"""The recurring period of a communicator's calls: how many calls make an iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
CodeArray = npt.NDArray[np.uint16]
State = Literal["learning", "periodic", "no period"]

SNAPSHOT_VERSION = 1

MAX_PERIOD = 50_000
_MIN_CALLS = 64  # fewer calls repeat by chance, or inside one layer
_REPETITIONS = 3
_FULL = _REPETITIONS * MAX_PERIOD
_WINDOW = 180_000  # codes of two bytes; what is beyond _FULL makes room
_CHUNK = 10_000
_PROJECTIONS = 4
_EXAMINED = 256  # lags whose agreement is counted exactly, per search
_LISTED = 16
_RESYNC_CALLS = 64  # a pattern is found again when so many calls (or one period) follow it
_BREAKS = 3  # a pattern broken so often is perhaps a layer, not the iteration
_BOUNDARIES = 4096


def token(op: npt.ArrayLike, size_bytes: npt.ArrayLike, peer: npt.ArrayLike) -> Int64Array:
    """One number for each (operation, bytes, peer), shape `(n,)`; equal calls have equal tokens.

    Drop the bytes (pass 0) where they vary from iteration to iteration: sequence packing, mixtures of experts.

    Examples
    --------
    >>> a, b, c = token([1, 1, 2], [1024, 1024, 1024], [-1, -1, -1])
    >>> bool(a == b), bool(a == c)
    (True, False)

    """
    columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(column, np.int64)) for column in (op, size_bytes, peer)))
    mixed: npt.NDArray[np.uint64] = np.zeros(columns[0].shape, np.uint64)
    for column in columns:
        mixed = _mix(mixed ^ column.astype(np.uint64))
    return mixed.astype(np.int64)


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

    Once locked, each call is compared with the stored pattern. Extra calls (an evaluation, a checkpoint) are
    skipped when the pattern goes on behind them; otherwise the tracker unlocks and learns again.

    What it cannot tell: calls that recur at a fixed distance and hold no other difference, a layer in an iteration
    from an iteration in a cycle of evaluations. Where the optimizer's steps are seen, they are better.

    Parameters
    ----------
    threshold
        Smallest agreement of a period (Falcon's M).

    References
    ----------
    Falcon (arXiv 2410.12588), section 4.2.

    Examples
    --------
    >>> tracker = PeriodTracker()
    >>> tracker.extend(np.tile(token([1, 2, 2, 3], [8, 8, 16, 8], -1), 30))
    >>> tracker.period, tracker.state, tracker.take_boundaries()[:3].tolist()
    (4, 'periodic', [0, 4, 8])

    """

    def __init__(self, *, threshold: float = 0.95) -> None:
        if not 0.5 < threshold <= 1.0:
            raise ValueError(f"threshold must lie above 0.5 and be at most 1, got {threshold}")
        self._threshold = threshold
        self._codes: CodeArray = np.zeros(1024, np.uint16)
        self._length = 0  # codes held
        self._first = 0  # index in the stream of the first one
        self._search_at = _MIN_CALLS  # length at which the next search pays
        self._exhausted = False
        self._pattern: CodeArray = np.zeros(0, np.uint16)
        self._followed = 0  # index in the stream up to which the pattern has been followed
        self._phase = 0
        self._breaks = 0
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

    def extend(self, tokens: npt.ArrayLike) -> None:
        """Take the next calls of the stream, in order, shape `(n,)`."""
        codes = (_mix(np.asarray(tokens, np.int64).astype(np.uint64)) >> np.uint64(48)).astype(np.uint16)
        for start in range(0, len(codes), _CHUNK):
            self._append(codes[start : start + _CHUNK])
            if len(self._pattern):
                self._follow()
            if self._length >= self._search_at and (len(self._pattern) == 0 or self._breaks >= _BREAKS):
                self._search()

    def take_boundaries(self) -> Int64Array:
        """Indices in the stream (from 0) at which periods began, since the last time this was asked.

        The time between the calls at adjacent ones is an iteration time. Which call of the iteration it is stays
        the same until the period is found anew (then they go on behind the last one taken). At most 4,096 are kept.
        """
        taken = np.array(self._boundaries, np.int64)
        self._last_taken = self._boundaries[-1] if self._boundaries else self._last_taken
        self._boundaries = []
        return taken

    def snapshot(self) -> dict[str, Any]:
        """Its whole state, as numbers, lists and bytes (at most 512 KB)."""
        return {
            "version": SNAPSHOT_VERSION,
            "codes": self._codes[: self._length].astype("<u2").tobytes(),
            "pattern": self._pattern.astype("<u2").tobytes(),
            "numbers": [
                self._first,
                self._search_at,
                int(self._exhausted),
                self._followed,
                self._phase,
                self._breaks,
                self._last_taken,
            ],
            "candidates": list(self._candidates),
            "boundaries": list(self._boundaries),
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go on from a snapshot of a tracker with the same threshold; ValueError if of another version."""
        if snapshot.get("version") != SNAPSHOT_VERSION:
            raise ValueError(
                f"period snapshot has version {snapshot.get('version')!r}, this build reads {SNAPSHOT_VERSION}: "
                "replay the calls instead"
            )
        self._codes = np.frombuffer(snapshot["codes"], "<u2").astype(np.uint16)
        self._length = len(self._codes)
        self._pattern = np.frombuffer(snapshot["pattern"], "<u2").astype(np.uint16)
        self._first, self._search_at, exhausted, self._followed, *rest = snapshot["numbers"]
        self._phase, self._breaks, self._last_taken = rest
        self._exhausted = bool(exhausted)
        self._candidates = tuple(snapshot["candidates"])
        self._boundaries = list(snapshot["boundaries"])

    def _append(self, codes: CodeArray) -> None:
        if self._length + len(codes) > _WINDOW:
            gone = self._length + len(codes) - _FULL
            self._codes[: self._length - gone] = self._codes[gone : self._length].copy()
            self._length -= gone
            self._first += gone
            self._search_at = max(self._search_at - gone, _MIN_CALLS)
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
        lost = self._first - self._followed
        if lost > 0:  # the window slid over a break that was never resolved
            self._unlock()
            return
        while True:
            new = self._codes[self._followed - self._first : self._length]
            if not len(new):
                return
            expected = self._expected(len(new))
            differs = new != expected
            matched = int(differs.argmax()) if differs.any() else len(new)
            self._mark(matched)
            if matched == len(new):
                return
            new = new[matched:]
            certain = min(period, _RESYNC_CALLS) if period >= 4 else 2 * period + 2
            if len(new) < certain + 1:
                return
            skip = _resume(new, self._expected(certain))
            if skip is None:
                # Perhaps calls are missing, or the iteration was cut short: then it begins anew.
                skip = _resume(new, np.resize(self._pattern, certain))
                if skip is not None:
                    self._phase = 0
            if skip is None:
                if len(new) > max(4 * period, 1024):
                    self._unlock()
                return
            self._followed += skip
            self._breaks += 1

    def _expected(self, n: int) -> CodeArray:
        return self._pattern[(self._phase + np.arange(n)) % len(self._pattern)]

    def _mark(self, matched: int) -> None:
        """The next `matched` calls are as the pattern says."""
        period = len(self._pattern)
        first = self._followed + (-self._phase) % period
        begun = range(first, self._followed + matched, period)
        self._boundaries.extend(index for index in begun if index > self._last_taken)
        del self._boundaries[:-_BOUNDARIES]
        self._followed += matched
        self._phase = (self._phase + matched) % period

    def _unlock(self) -> None:
        """Forget the pattern and all before its end: the job does something else now."""
        gone = max(self._followed - self._first, 0)
        self._codes[: self._length - gone] = self._codes[gone : self._length].copy()
        self._length -= gone
        self._first += gone
        self._pattern = np.zeros(0, np.uint16)
        self._phase, self._breaks = 0, 0
        self._search_at, self._exhausted = max(_MIN_CALLS, self._length), False

    def _search(self) -> None:
        # Searches at lengths that grow by half cost a constant per call, all together.
        if self._length < _FULL:
            self._search_at = min(self._length * 3 // 2, _FULL)
        else:
            self._search_at = self._length + _FULL // 2
            self._exhausted = True
        codes = self._codes[: self._length]
        while len(codes) >= _MIN_CALLS:
            candidates = _lags(codes, self._threshold)
            if candidates:
                self._candidates = tuple(lag for lag, _ in candidates[:_LISTED])
                best = max(agreement for _, agreement in candidates)
                period = next(lag for lag, agreement in candidates if agreement >= best - 0.1 * (1.0 - best))
                if period != len(self._pattern):
                    self._lock(period)
                self._breaks = 0
                return
            if len(self._pattern):
                return
            codes = codes[len(codes) // 2 :]  # what disturbs it may lie in the past

    def _lock(self, period: int) -> None:
        codes = self._codes[: self._length]
        differs = np.flatnonzero(codes[:-period] != codes[period:])
        start = int(differs[-1]) + 1 if len(differs) else 0
        if self._length - start < 2 * period:  # something extra within the last repetitions: wait for a clean one
            return
        self._pattern = codes[start : start + period].copy()
        self._phase = 0
        self._boundaries = []
        self._followed = self._first + start
        self._exhausted = False
        self._follow()


def _lags(codes: CodeArray, threshold: float) -> list[tuple[int, float]]:
    """Lags with agreement of at least `threshold`, smallest first, each seen three times within `codes`."""
    longest = min(len(codes) // _REPETITIONS, MAX_PERIOD)
    estimate = _agreement_estimate(codes, longest)
    # Unequal pairs count -1 at worst, so a lag that agrees at the threshold reads no less than this.
    likely = np.flatnonzero(estimate >= 2.0 * threshold - 1.0 - 1e-6)
    if len(likely) > _EXAMINED:
        best = likely[np.argsort(-estimate[likely], kind="stable")[: _EXAMINED - _LISTED]]
        likely = np.union1d(likely[:_LISTED], best)
    found = []
    for lag in (likely + 1).tolist():
        agreement = float((codes[:-lag] == codes[lag:]).mean())
        if agreement >= threshold:
            found.append((lag, agreement))
    return found


def _agreement_estimate(codes: CodeArray, longest: int) -> npt.NDArray[np.float64]:
    """Agreement at lags 1..longest, shape `(longest,)`, by FFT over random phases, normalised for the overlap."""
    size = 1 << (len(codes) + longest).bit_length()
    total = np.zeros(longest)
    for projection in range(_PROJECTIONS):
        seed = np.uint64((projection + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
        phase = (_mix(codes.astype(np.uint64) ^ seed) >> np.uint64(11)).astype(np.float64) * (2.0 * np.pi / 2.0**53)
        spectrum = np.fft.fft(np.exp(1j * phase), size)
        total += np.fft.ifft(np.abs(spectrum) ** 2).real[1 : longest + 1]
    estimate: npt.NDArray[np.float64] = total / (_PROJECTIONS * (len(codes) - np.arange(1, longest + 1)))
    return estimate


def _resume(codes: CodeArray, pattern: CodeArray) -> int | None:
    """The first offset at which `pattern` stands in `codes`."""
    starts = np.flatnonzero(codes[: len(codes) - len(pattern) + 1] == pattern[0])
    for k in range(1, len(pattern)):
        if not len(starts):
            return None
        starts = starts[codes[starts + k] == pattern[k]]
    return int(starts[0]) if len(starts) else None


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of splitmix64: every bit of the input moves every bit of the output."""
    x = values + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed
