"""The period of a stream of calls: right lag, traps, extra calls, changes, bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.period import PeriodTracker, token


def iteration(seed, layers, calls_per_layer, before, after):
    rng = np.random.default_rng(seed)
    layer = 100 + rng.integers(0, 6, calls_per_layer)
    return np.concatenate([1000 + np.arange(before), np.tile(layer, layers), 2000 + np.arange(after)])


def fed(stream, chunk=512):
    tracker = PeriodTracker()
    for start in range(0, len(stream), chunk):
        tracker.extend(stream[start : start + chunk])
    return tracker


@pytest.mark.parametrize(
    ("length", "repetitions"), [(1, 80), (2, 40), (4, 20), (7, 12), (64, 4), (330, 4), (5_000, 4), (50_000, 4)]
)
def test_a_period_is_found_exactly(length, repetitions):
    rng = np.random.default_rng(length)
    base = rng.integers(0, 20, length)
    base[0] = 77
    tracker = fed(np.tile(base, repetitions), chunk=4096)
    assert (tracker.period, tracker.state) == (length, "periodic")


@pytest.mark.parametrize("layers", [10, 80])
def test_the_iteration_is_found_not_the_layer(layers):
    """80 equal layers agree above 0.95 at the layer's lag; it stays a candidate."""
    base = iteration(1, layers, 4, 5, 5)
    tracker = fed(np.tile(base, 12))
    assert tracker.period == len(base)
    if layers == 80:
        assert 4 in tracker.candidates


def test_micro_batches_inside_iterations():
    base = np.concatenate([np.tile(iteration(2, 24, 4, 2, 2), 8), [9, 9, 8]])
    assert fed(np.tile(base, 10)).period == len(base)


def test_numeric_codes_do_not_matter():
    base = np.random.default_rng(5).integers(0, 9, 37)
    names = np.random.default_rng(6).integers(-(2**62), 2**62, 9)
    assert fed(np.tile(base, 20)).period == fed(np.tile(names[base], 20)).period == 37


def test_boundaries_lie_one_period_apart_and_continue_over_calls_of_extend():
    base = iteration(3, 6, 4, 3, 3)
    stream = np.tile(base, 40)
    tracker = PeriodTracker()
    taken = []
    for start in range(0, len(stream), 17):
        tracker.extend(stream[start : start + 17])
        taken += tracker.take_boundaries().tolist()
    tail = np.array(taken[-30:])
    assert set(np.diff(tail).tolist()) == {len(base)}
    assert taken == sorted(set(taken))
    assert len({int(stream[i]) for i in tail}) == 1


def test_extra_calls_are_skipped_and_the_period_stays():
    base = iteration(4, 80, 4, 5, 5)
    rng = np.random.default_rng(7)
    tracker = fed(np.tile(base, 8))
    tracker.take_boundaries()
    for n_extra in (1, 3, 400):
        tracker.extend(np.concatenate([np.tile(base, 5), rng.integers(5000, 5050, n_extra), np.tile(base, 6)]))
        assert tracker.period == len(base)
    gaps = np.diff(tracker.take_boundaries())
    assert (gaps == len(base)).sum() == 29
    assert sorted(gaps[gaps != len(base)].tolist()) == [len(base) + n for n in (1, 3, 400)]


def test_calls_missing_from_an_iteration_are_survived():
    base = iteration(8, 20, 4, 5, 5)
    tracker = fed(np.concatenate([np.tile(base, 6), base[:40], np.tile(base, 6)]))
    assert tracker.period == len(base)
    assert tracker.take_boundaries()[-1] == 11 * len(base) + 40


def test_a_change_of_parallelism_is_found():
    old, new = iteration(9, 40, 6, 4, 4), iteration(10, 20, 5, 3, 3) + 10_000
    tracker = fed(np.tile(old, 10))
    assert tracker.period == len(old)
    tracker.extend(np.tile(new, 30))
    assert tracker.period == len(new)


def test_what_never_repeats_has_no_period():
    tracker = fed(np.random.default_rng(11).integers(0, 50, 200_000), chunk=20_000)
    assert (tracker.period, tracker.state) == (None, "no period")
    assert len(tracker.take_boundaries()) == 0


def test_a_few_calls_and_none_are_learning():
    tracker = PeriodTracker()
    tracker.extend(np.array([], np.int64))
    tracker.extend(np.arange(20))
    assert (tracker.period, tracker.state, tracker.calls_seen) == (None, "learning", 20)


def test_snapshot_goes_on_the_same_and_is_bounded():
    base = iteration(12, 80, 6, 5, 5)
    stream = np.tile(base, 30)
    tracker = fed(stream[:9000])
    other = PeriodTracker()
    other.restore(tracker.snapshot())
    for part in (stream[9000:9300], np.arange(30), stream[:4000]):
        tracker.extend(part)
        other.extend(part)
    assert tracker.snapshot() == other.snapshot()
    full = fed(np.tile(np.random.default_rng(1).integers(0, 50, 50_000), 6), chunk=10_000).snapshot()
    assert len(full["codes"]) + len(full["pattern"]) + 8 * len(full["boundaries"]) < 512 * 1024
    with pytest.raises(ValueError, match="version"):
        other.restore({"version": 0})


def test_threshold_is_checked():
    with pytest.raises(ValueError, match="threshold"):
        PeriodTracker(threshold=0.2)


def test_tokens_tell_operation_bytes_and_peer_apart():
    tokens = token([1, 2, 1, 1, 1], [64, 64, 65, 64, 64], [-1, -1, -1, 0, -1])
    assert len(set(tokens.tolist())) == 4
    assert tokens[0] == tokens[4]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(1, 97))
def test_the_smallest_period_of_any_repeated_list_is_found_however_it_is_cut(base, chunk):
    smallest = next(p for p in range(1, len(base) + 1) if len(base) % p == 0 and base == base[:p] * (len(base) // p))
    repetitions = max(12, 300 // len(base))
    assert fed(np.tile(base, repetitions), chunk).period == smallest


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=300))
def test_any_tokens_are_survived(tokens):
    tracker = fed(np.array(tokens, np.int64), 50)
    assert tracker.calls_seen == len(tokens)
