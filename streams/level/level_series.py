"""The state of one series of step times, and what each row does to it: the compiled heart of changepoint.py."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from streams.compiled import compiled
from streams.level import bocd, drift, pattern
from streams.level.verification import (
    FAR,
    MEASURE,
    by_differences,
    highest_stray,
    level,
    locate,
    measure,
    persists,
    split,
    standard_error,
    strays,
)

FloatArray = npt.NDArray[np.float64]
ChangeKind = Literal["onset", "worse", "eased", "relief", "speedup"]
State = Literal["learning", "healthy", "slow"]

STATES: tuple[State, ...] = ("learning", "healthy", "slow")
LEARNING, HEALTHY, SLOW = 0, 1, 2
KINDS: tuple[ChangeKind, ...] = ("onset", "worse", "eased", "relief", "speedup")
NONE, _ONSET, _WORSE, _EASED, _RELIEF, _SPEEDUP = -1, 0, 1, 2, 3, 4

PROBABILITY = 0.9  # Falcon 4.2
LEVEL_SPREAD = 0.4  # where a new level may lie, in log step time, before anything of it is known
MIN_PRIOR_NOISE = 0.01  # BOCD need not split what is small against the bar of 10 %
HORIZON = 64  # an abrupt change is looked for this many rows back, and said by then or not at all
GUARD = 96  # a row joins the reference at this age: later than the horizon, or a new level would teach it
REFERENCE = 384
LONG_TERM = 3000  # rows over which the noise is averaged
RECENT = 128
MIN_AFTER = 10  # steps of a new level before it is believed: a burst of six does not look like that
MIN_AFTER_YOUNG = 16  # the same while fewer than YOUNG healthy rows are known
MIN_ROWS = 5  # however many steps a row is the mean of
AVERAGED_STEPS = 10  # steps per row from which a few rows are a level
AVERAGED_AREA = 0.65  # rows times excess, before a level of averaged rows is believed
YOUNG = 64
MIN_AFTER_UPDATE = 20  # one slow level to another: not urgent, and half of a relief looks like it
MIN_AFTER_SPEEDUP = 48  # not urgent, and a baseline taken from a fast spell makes the return look slow
RELIEF_BAR = 0.9  # of the bar of an onset, so that a level at the bar does not flap
REMAINING = 0.4  # of a slowdown, at most, once it is relieved: half of it left is another slow level
LONG_RELIEF = 24  # rows below the bar after which a relief is taken on easier terms: an incident must not stick
WINDOWS = (5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)  # tried too, for correlated noise makes BOCD split a level again
ONSET_ERRORS = 5.25  # 4.5 gave a false alarm or two in a thousand series of 10,000 correlated steps
AVERAGED_ERRORS = 4.5  # such series have hundreds of rows, not ten thousand
LARGE = math.log(1.2)  # what is beyond all that was ever seen needs no model of the noise
FAR_BEYOND = 2.5  # times the furthest that any window of that length has strayed
RELIEF_ERRORS = 3.0
LOCAL = 12  # rows before a change that say what the level was just then
LEARN_ROWS = 24  # the first reference
MAX_LEARN_ROWS = 72  # however long the warm-up
PAUSE = math.log(1.3)  # a row so far above the level may be a pause: wait for the next before it counts
TAIL = 4  # rows after a pause that may still be disturbed
ANNOUNCED_TAIL = 1  # the same where the log says when the pause was over
TAIL_EXCESS = 0.02  # what is nearer to the level than this is not disturbed
MAX_HELD = 3  # so many rows in a row are no pause

SERIES = np.dtype(
    [
        ("state", "i8"),
        ("skipped", "i8"),
        ("min_log_change", "f8"),
        ("finds_small", "i8"),
        ("prune", "f8"),
        ("steps_per_row", "f8"),
        ("seen", "i8"),
        ("row_step", "i8", (2 * RECENT,)),
        ("row_ns", "i8", (2 * RECENT,)),
        ("row_log", "f8", (2 * RECENT,)),
        ("n_rows", "i8"),
        ("reference", "f8", (2 * REFERENCE,)),
        ("n_reference", "i8"),
        ("since_measured", "i8"),
        ("measured", MEASURE),
        ("scratch", MEASURE),
        ("long_term", MEASURE),
        ("n_long_term", "i8"),
        ("slow_level", "f8"),
        ("target", "f8"),
        ("last_two", "f8", (2,)),
        ("posterior", bocd.POSTERIOR),
        ("held_step", "i8", (MAX_HELD,)),
        ("held_ns", "i8", (MAX_HELD,)),
        ("held_log", "f8", (MAX_HELD,)),
        ("n_held", "i8"),
        ("tail", "i8"),
        ("pauses", "i8"),
        ("pattern", pattern.PATTERN),
        ("old_offset", "f8", (pattern.MAX_PERIOD,)),
        ("excess", "f8"),
        ("drift", drift.DRIFT),
        # The last change, valid where `advance` says there is one.
        ("kind", "i8"),
        ("step", "i8"),
        ("time_ns", "i8"),
        ("before", "f8"),
        ("after", "f8"),
        ("baseline", "f8"),
        ("probability", "f8"),
        ("is_small", "i8"),
        ("is_ramp", "i8"),
    ]
)


@compiled
def _is_averaged(s) -> bool:  # type: ignore[no-untyped-def]
    """Each row is the mean of so many steps that a few rows are a level."""
    return bool(s.steps_per_row >= AVERAGED_STEPS)


@compiled
def _min_rows(s, steps: int) -> int:  # type: ignore[no-untyped-def]
    return int(max(math.ceil(steps / s.steps_per_row), MIN_ROWS))


@compiled
def _push_row(s, step: int, time_ns: int, log_time: float) -> None:  # type: ignore[no-untyped-def]
    if s.n_rows == 2 * RECENT:
        _forget(s, RECENT)
    s.row_step[s.n_rows], s.row_ns[s.n_rows], s.row_log[s.n_rows] = step, time_ns, log_time
    s.n_rows += 1


@compiled
def _forget(s, n: int) -> None:  # type: ignore[no-untyped-def]
    left = s.n_rows - n
    s.row_step[:left] = s.row_step[n : s.n_rows].copy()
    s.row_ns[:left] = s.row_ns[n : s.n_rows].copy()
    s.row_log[:left] = s.row_log[n : s.n_rows].copy()
    s.n_rows = left


@compiled
def _join_reference(s, n: int) -> None:  # type: ignore[no-untyped-def]
    """The oldest `n` rows are healthy."""
    for i in range(n):
        if s.n_reference == 2 * REFERENCE:
            s.reference[:REFERENCE] = s.reference[REFERENCE:].copy()
            s.n_reference = REFERENCE
        s.reference[s.n_reference] = s.row_log[i]
        s.n_reference += 1
    s.since_measured += n
    _forget(s, n)


@compiled
def _reference(s):  # type: ignore[no-untyped-def]
    return s.reference[max(s.n_reference - REFERENCE, 0) : s.n_reference]


@compiled
def _measure_reference(s) -> None:  # type: ignore[no-untyped-def]
    if s.since_measured > 0:
        measure(_reference(s), _is_averaged(s), s.measured)
        if not _is_averaged(s):
            # A few hundred correlated steps say little about their noise; what thousands said is not forgotten.
            s.n_long_term += s.since_measured
            weight = s.since_measured / min(s.n_long_term, LONG_TERM)
            s.long_term.near += (s.measured.near - s.long_term.near) * weight
            s.long_term.far += (s.measured.far - s.long_term.far) * weight
            by_differences(s.long_term)
            _at_least_long_term(s, s.measured)
        s.since_measured = 0


@compiled
def _at_least_long_term(s, m) -> None:  # type: ignore[no-untyped-def]
    """Of the two measures of the noise, the one by which levels of 16 steps scatter more."""
    long_term = s.long_term
    if s.n_long_term and standard_error(long_term.noise, long_term.correlation, s.n_long_term, 16) > standard_error(
        m.noise, m.correlation, m.n, 16
    ):
        m.noise, m.correlation = long_term.noise, long_term.correlation


@compiled
def _propose(s, log_time: float) -> None:  # type: ignore[no-untyped-def]
    """BOCD sees the median of the last three: a single pause does not restart it."""
    a, b = s.last_two[0], s.last_two[1]
    median = max(min(a, b), min(max(a, b), log_time))
    s.last_two[0], s.last_two[1] = b, log_time
    bocd.observe(s.posterior, median, s.prune)


@compiled
def _learn(s) -> None:  # type: ignore[no-untyped-def]
    if s.n_rows < LEARN_ROWS:
        return
    n = min(s.n_rows, LEARN_ROWS)
    window = s.row_log[s.n_rows - n : s.n_rows]
    is_warming_up = abs(level(window[: n // 2]) - level(window[n // 2 :])) > 0.5 * s.min_log_change
    if is_warming_up and s.n_rows < MAX_LEARN_ROWS:
        return
    measure(window, _is_averaged(s), s.scratch)
    bocd.begin(s.posterior, s.scratch.level, LEVEL_SPREAD, max(s.scratch.noise, MIN_PRIOR_NOISE))
    s.last_two[:] = window[0]
    for i in range(n):
        _propose(s, window[i])
    _forget(s, s.n_rows - n)
    for i in range(n):
        drift.push(s.drift, s.row_step[i], s.row_ns[i], s.row_log[i], s.steps_per_row)
    _join_reference(s, n)
    first = s.measured.level
    _measure_reference(s)
    s.pattern.value += first - s.measured.level
    s.state = HEALTHY


@compiled
def _say(s, kind: int, n_after: int, before: float, baseline: float, probability: float) -> int:  # type: ignore[no-untyped-def]
    first = s.n_rows - n_after
    s.kind, s.step, s.time_ns = kind, s.row_step[first], s.row_ns[first]
    s.before, s.baseline, s.probability = before, baseline, probability
    s.after = level(s.row_log[first : s.n_rows])
    s.is_small, s.is_ramp = 0, 0
    if kind != _RELIEF:
        s.slow_level = s.after
    return kind


@compiled
def _may_have_changed(s, horizon: int) -> bool:  # type: ignore[no-untyped-def]
    """Quickly: a level that persists has most of its rows beyond the middle, so beyond four tenths of the bar."""
    bar = 0.4 * s.min_log_change
    above = 0
    below = 0
    for n in range(1, horizon + 1):
        excess = s.row_log[s.n_rows - n] - s.measured.level
        if excess > bar:
            above += 1
        elif excess < -bar:
            below += 1
        if n >= MIN_ROWS and (above >= 0.6 * n or (n >= MIN_AFTER_SPEEDUP and below >= 0.6 * n)):
            return True
    return False


@compiled
def _stands_out(s, known, n_after: int, change: float) -> bool:  # type: ignore[no-untyped-def]
    """Whether a change is more than noise: by its standard errors, or far beyond all that was ever seen.

    The second way is for bursts: they look like correlation, and of little known that is believed to be strong.
    """
    m = s.scratch
    error_before = standard_error(m.noise, m.correlation, m.n, m.n)
    error_after = standard_error(m.noise, m.correlation, m.n, n_after)
    if _is_averaged(s):
        return bool(change >= AVERAGED_ERRORS * math.hypot(error_after, error_before))
    if change >= ONSET_ERRORS * max(
        math.hypot(error_after, error_before), math.hypot(strays(known, n_after), error_before)
    ):
        return True
    return bool(
        change >= LARGE and len(known) >= YOUNG and change >= FAR_BEYOND * highest_stray(known, n_after, m.level)
    )


@compiled
def _judge_healthy(s, n_after: int, probability: float) -> int:  # type: ignore[no-untyped-def]
    rows = s.row_log[: s.n_rows]
    after = level(rows[s.n_rows - n_after :])
    roughly = after - s.measured.level
    if abs(roughly) < 0.8 * s.min_log_change or (roughly < 0.0 and n_after < MIN_AFTER_SPEEDUP):
        return NONE
    # The young rows before the change belong to the reference too, or it would be 24 rows for a long time.
    known = np.concatenate((_reference(s), rows[: s.n_rows - n_after]))
    known = known[max(len(known) - REFERENCE, 0) :]
    # What is cheap and turns most of them down comes first; the noise is measured last.
    before = level(known)
    sign = 1.0 if roughly > 0.0 else -1.0
    change = sign * (after - before)
    if change < s.min_log_change or not persists(rows[s.n_rows - n_after :], 0.5 * (after + before), sign, False):
        return NONE
    m = s.scratch
    measure(known, _is_averaged(s), m)
    _at_least_long_term(s, m)
    if not _stands_out(s, known, n_after, change):
        return NONE
    located = locate(m.level, rows, n_after, _is_averaged(s))
    if sign * (level(rows[s.n_rows - located :]) - m.level) >= s.min_log_change:
        n_after = located  # else it ran on into a smaller change before this one
    near = rows[max(s.n_rows - n_after - LOCAL, 0) :]
    located = split(near, 3, n_after)
    if sign * (level(rows[s.n_rows - located :]) - m.level) >= s.min_log_change:
        n_after = located
    if sign < 0.0:
        if n_after < MIN_AFTER_SPEEDUP:
            return NONE
        kind = _say(s, _SPEEDUP, n_after, m.level, m.level, probability)
        _new_baseline(s, s.n_rows - n_after)
        return kind
    if n_after < _min_rows(s, MIN_AFTER if len(known) >= YOUNG else MIN_AFTER_YOUNG):
        return NONE
    if _is_averaged(s) and n_after * change < AVERAGED_AREA:
        return NONE
    n_before = s.n_rows - n_after
    n_local = min(n_before, LOCAL)
    s.target = m.level
    if n_local >= MIN_ROWS:
        # What the level returns to, if the healthy level itself had moved.
        local = level(rows[n_before - n_local : n_before])
        s.target = min(max(local, m.level), m.level + 0.5 * change)
    kind = _say(s, _ONSET, n_after, m.level, m.level, probability)
    _join_reference(s, s.n_rows - n_after)
    _measure_reference(s)
    drift.drop_since(s.drift, s.step)
    s.state = SLOW
    return kind


@compiled
def _new_baseline(s, n_before: int) -> None:  # type: ignore[no-untyped-def]
    """The recent rows after the first `n_before` are healthy, and all that is known of that."""
    _forget(s, n_before)
    if s.n_rows < FAR + 2:
        # Too few to measure; noise is relative, so what the old level knew of it still holds.
        reference = _reference(s)
        reference += level(s.row_log[: s.n_rows]) - s.measured.level
    else:
        s.n_reference = 0
    s.drift.n, s.drift.n_pending = 0, 0
    for i in range(s.n_rows):
        drift.push(s.drift, s.row_step[i], s.row_ns[i], s.row_log[i], s.steps_per_row)
    _join_reference(s, s.n_rows)
    _measure_reference(s)
    s.state = HEALTHY


@compiled
def _judge_small(s) -> int:  # type: ignore[no-untyped-def]
    d = s.drift
    if not drift.judge(d, s.steps_per_row):
        return NONE
    if _is_averaged(s) and d.n_after * (d.after - d.base) < AVERAGED_AREA:
        return NONE
    # Blocks hide what is in them: the rows, too, must lie beyond the middle, or it is a spell now and then.
    n_rows = min(d.n_after * drift.rows_per_block(s.steps_per_row), s.n_rows)
    if not persists(s.row_log[s.n_rows - n_rows : s.n_rows], 0.5 * (d.after + d.base), 1.0, False):
        return NONE
    s.kind, s.step, s.time_ns = _ONSET, d.onset_step, d.onset_ns
    s.before, s.after, s.baseline, s.probability = d.base, d.after, d.base, 1.0
    s.is_small, s.is_ramp = 1, d.is_ramp
    s.slow_level = d.after
    s.target = d.base
    # The reference has learnt some of the shift: its scatter is right, its level is not.
    reference = _reference(s)
    reference += d.base - s.measured.level
    s.measured.level = d.base
    drift.drop_since(d, d.onset_step)
    first = s.n_rows
    while first and s.row_step[first - 1] >= s.step:
        first -= 1
    _join_reference(s, first)
    s.since_measured = 0
    s.state = SLOW
    return _ONSET


@compiled
def _judge_slow(s, n_after: int, probability: float) -> int:  # type: ignore[no-untyped-def]
    m = s.measured
    min_rows = _min_rows(s, MIN_AFTER)
    rows = s.row_log[: s.n_rows]
    if s.n_rows - n_after < min_rows:
        return NONE
    n_after = locate(level(rows[: s.n_rows - n_after]), rows, n_after, _is_averaged(s))
    n_after = split(rows[max(s.n_rows - n_after - LOCAL, 0) :], 3, n_after)
    n_slow = s.n_rows - n_after
    if min(n_after, n_slow) < min_rows:
        return NONE
    before = level(rows[:n_slow])
    after = level(rows[n_slow:])
    excess = after - s.target
    was = before - s.target
    is_long = False
    if excess <= min(RELIEF_BAR * s.min_log_change, REMAINING * was):
        kind = _RELIEF
        is_long = n_after >= _min_rows(s, LONG_RELIEF)
        errors = RELIEF_ERRORS
        smallest = 0.25 * s.min_log_change
    elif n_after < _min_rows(s, MIN_AFTER_UPDATE):
        return NONE
    else:
        kind = _WORSE if excess > was else _EASED
        errors = ONSET_ERRORS
        smallest = s.min_log_change
    sign = 1.0 if after > before else -1.0
    change = sign * (after - before)
    if change < smallest or not persists(rows[n_slow:], 0.5 * (after + before), sign, is_long):
        return NONE
    error_before = standard_error(m.noise, m.correlation, m.n, n_slow)
    error_after = standard_error(m.noise, m.correlation, m.n, n_after)
    if change < errors * math.hypot(error_after, error_before):
        return NONE
    if not _is_averaged(s) and change < errors * math.hypot(strays(_reference(s), n_after), error_before):
        return NONE
    _say(s, kind, n_after, before, m.level, probability)
    _forget(s, n_slow)
    if kind == _RELIEF:
        s.state = HEALTHY
        s.drift.healthy_since = s.step
    return kind


@compiled
def _relieve_quietly(s, probability: float) -> int:  # type: ignore[no-untyped-def]
    """A return that was not seen when it happened (noise, or in small steps) is a relief all the same."""
    m = s.measured
    rows = s.row_log[: s.n_rows]
    excess = level(rows[s.n_rows - HORIZON :]) - s.target
    if excess > min(RELIEF_BAR * s.min_log_change, REMAINING * (s.slow_level - s.target)):
        return NONE
    n_after = locate(s.slow_level, rows, HORIZON, _is_averaged(s))
    _say(s, _RELIEF, n_after, s.slow_level, m.level, probability)
    _forget(s, s.n_rows - n_after)
    s.state = HEALTHY
    s.drift.healthy_since = s.step
    return _RELIEF


@compiled
def _take(s, step: int, time_ns: int, log_time: float) -> int:  # type: ignore[no-untyped-def]
    """An ordinary row."""
    _push_row(s, step, time_ns, log_time)
    if s.state == LEARNING:
        _learn(s)
        return NONE
    _propose(s, log_time)
    if s.state == HEALTHY:
        if s.n_rows > GUARD:
            _join_reference(s, 1)
            if s.since_measured >= 16:
                _measure_reference(s)
        if drift.push(s.drift, step, time_ns, log_time, s.steps_per_row) and s.finds_small:
            kind = _judge_small(s)
            if kind != NONE:
                return kind
    horizon = min(HORIZON, s.n_rows)
    min_rows = _min_rows(s, MIN_AFTER)
    if horizon < min_rows:
        return NONE
    probability = bocd.mass_within(s.posterior, horizon)
    if s.state == SLOW and horizon == HORIZON:
        kind = _relieve_quietly(s, probability)
        if kind != NONE:
            return kind
    if probability < PROBABILITY:
        return NONE
    if s.state == HEALTHY and not _may_have_changed(s, horizon):
        return NONE
    _measure_reference(s)
    run = bocd.most_likely_run(s.posterior)
    for i in range(len(WINDOWS) + 1):
        n_after = run if i == 0 else WINDOWS[i - 1]
        if n_after < min_rows or n_after > horizon:
            continue
        kind = _judge_slow(s, n_after, probability) if s.state == SLOW else _judge_healthy(s, n_after, probability)
        if kind != NONE:
            return kind
    return NONE


@compiled
def advance(s, step: int, time_ns: int, step_time_s: float, n_steps: float) -> int:  # type: ignore[no-untyped-def]
    """Take one row; the kind of change that it completes, or -1."""
    if not (step_time_s > 0.0 and math.isfinite(step_time_s)):
        s.skipped += 1
        return NONE
    log_time = math.log(step_time_s)
    s.seen += 1
    s.steps_per_row = n_steps if s.seen == 1 else s.steps_per_row + (n_steps - s.steps_per_row) / min(s.seen, 32)
    if s.seen == 1:
        s.measured.level = log_time  # until it is learnt
    # Relative to the level of the moment: medians over two levels would be a pattern of their own.
    at = s.slow_level if s.state == SLOW else s.measured.level
    is_time = pattern.remember(s.pattern, _index(s, step), log_time - at)
    log_time -= pattern.offset_of(s.pattern, _index(s, step))
    kind = _settle(s, step, time_ns, log_time)
    if is_time and s.state != LEARNING and s.n_held == 0:
        _look_for_pattern(s)
    return kind


@compiled
def _index(s, step: int) -> int:  # type: ignore[no-untyped-def]
    return int(step // max(round(s.steps_per_row), 1))


@compiled
def _look_for_pattern(s) -> None:  # type: ignore[no-untyped-def]
    """All that is kept of the series is put as if the pattern had always been known."""
    old_period = s.pattern.period
    s.old_offset[:] = s.pattern.offset
    has_changed = pattern.look(s.pattern)
    if not has_changed and s.pattern.period == old_period:
        return
    for i in range(s.n_rows):
        index = _index(s, s.row_step[i])
        if old_period:
            s.row_log[i] += s.old_offset[index % old_period]
        s.row_log[i] -= pattern.offset_of(s.pattern, index)
    if s.pattern.period == old_period or s.state != HEALTHY:
        return
    p = s.pattern
    first = s.row_step[0] if s.n_rows else s.step
    past = np.empty(p.n)
    n = 0
    for i in range(max(p.n - pattern.ROWS, 0), p.n):
        value = p.value[i] - pattern.offset_of(p, p.index[i])
        if p.index[i] < _index(s, first) and abs(value) < PAUSE:
            past[n] = value + s.measured.level
            n += 1
    if n < LEARN_ROWS:
        return
    s.reference[:n] = past[:n]
    s.n_reference = n
    s.n_long_term = 0
    s.since_measured = 1
    _measure_reference(s)
    bocd.begin(s.posterior, s.measured.level, LEVEL_SPREAD, max(s.measured.noise, MIN_PRIOR_NOISE))
    s.last_two[:] = s.measured.level
    for i in range(s.n_rows):
        _propose(s, s.row_log[i])


@compiled
def _settle(s, step: int, time_ns: int, log_time: float) -> int:  # type: ignore[no-untyped-def]
    """Tell pauses, and the few slow steps after one, from the rest."""
    if s.state == LEARNING:
        return _take(s, step, time_ns, log_time)
    at = s.slow_level if s.state == SLOW else s.measured.level
    excess = log_time - at
    s.excess = log_time - s.measured.level
    if s.n_held < 0 and excess <= PAUSE:
        s.n_held = 0
    if excess > PAUSE and s.n_held >= 0:
        s.tail = 0
        s.held_step[s.n_held], s.held_ns[s.n_held], s.held_log[s.n_held] = step, time_ns, log_time
        s.n_held += 1
        if s.n_held < MAX_HELD:
            return NONE
        return _release(s)
    if s.n_held > 0:
        highest = s.held_log[0]
        for i in range(1, s.n_held):
            highest = max(highest, s.held_log[i])
        if excess < 0.5 * (highest - at):
            s.n_held = 0
            s.pauses += 1
            s.tail = TAIL
        else:
            kind = _release(s)
            if kind != NONE:
                return kind
    if s.tail > 0:
        s.tail -= 1
        if excess > max(TAIL_EXCESS, min(2.0 * s.measured.noise, 2.5 * TAIL_EXCESS)):
            return NONE
        s.tail = 0
    return _take(s, step, time_ns, log_time)


@compiled
def _release(s) -> int:  # type: ignore[no-untyped-def]
    """What looked like a pause goes on: these rows are a level."""
    n = s.n_held
    s.n_held = -1
    said = NONE
    for i in range(n):
        kind = _take(s, s.held_step[i], s.held_ns[i], s.held_log[i])
        if kind != NONE:
            said = kind
    return said


@compiled
def rebaseline(s) -> None:  # type: ignore[no-untyped-def]
    if s.state == SLOW:
        _new_baseline(s, 0)


@compiled
def announce(s) -> None:  # type: ignore[no-untyped-def]
    s.tail = ANNOUNCED_TAIL


@compiled
def advance_all(records, step: int, time_ns: int, step_time_s, kinds) -> bool:  # type: ignore[no-untyped-def]
    has_any = False
    for i in range(len(records)):
        kinds[i] = advance(records[i], step, time_ns, step_time_s[i], 1.0)
        has_any = has_any or kinds[i] != NONE
    return has_any


def new_series(n: int, min_change: float, small_changes: bool, exact: bool) -> npt.NDArray[np.void]:
    records = np.zeros(n, SERIES)
    records["min_log_change"] = math.log1p(min_change)
    records["finds_small"] = small_changes
    records["prune"] = 0.0 if exact else bocd.PRUNE
    return records


def warm_up() -> None:
    """Compile, or load what was compiled before: seconds once per version, so that no job waits for it."""
    records = new_series(1, 0.1, True, False)
    advance_all(records, 0, 0, np.ones(1), np.empty(1, np.int64))
    rebaseline(records[0])
    announce(records[0])
