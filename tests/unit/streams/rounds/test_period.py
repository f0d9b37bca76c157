"""The period of a stream of calls: right lag, traps, extra calls, changes, bounds."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.rounds.call_codes import token
from streams.rounds.period import PeriodTracker
from tests.fakes.examples import examples


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


@pytest.mark.parametrize(("old_length", "new_length"), [(8, 500), (500, 8), (330, 5_000), (5_000, 330)])
def test_a_change_of_parallelism_is_found_within_a_stated_number_of_calls(old_length, new_length):
    """At most four old periods (1,024 calls at least) to be sure that it is over, and 4.5 new ones."""
    rng = np.random.default_rng(old_length)
    old, new = rng.integers(0, 9, old_length), rng.integers(0, 9, new_length) + 100
    tracker = fed(np.tile(old, 12))
    assert tracker.period == old_length
    limit = max(4 * old_length, 1024) + 2 * 125 + max(9 * new_length // 2, 256)
    needed = 0
    while tracker.period != new_length:
        tracker.extend(new[np.arange(needed, needed + 125) % new_length])
        needed += 125
        assert needed <= limit
    assert tracker.locks == 2


@pytest.mark.parametrize("warm_up", [1, 40, 3_000])
def test_calls_before_the_first_iteration_do_not_matter(warm_up):
    base = iteration(13, 20, 4, 5, 5)
    tracker = fed(np.concatenate([np.random.default_rng(14).integers(9_000, 9_100, warm_up), np.tile(base, 60)]), 125)
    assert tracker.period == len(base)
    if warm_up == 40:
        assert np.diff(tracker.take_boundaries()).tolist()[-20:] == [len(base)] * 20


@pytest.mark.parametrize("layers", [8, 80])
@pytest.mark.parametrize("n_extra", [1, 3, 50, 400])
def test_an_evaluation_every_50_iterations_makes_no_longer_period(layers, n_extra):
    """The cycle of evaluations recurs as well, and agrees better; an iteration of 24 calls or more is kept."""
    base = iteration(15, layers, 4, 5, 5)
    extra = np.random.default_rng(16).choice(base, n_extra)
    tracker = fed(np.tile(np.concatenate([np.tile(base, 50), extra]), 12), 500)
    assert tracker.period == len(base)
    gaps = np.diff(tracker.take_boundaries())
    assert (gaps == len(base)).mean() > 0.9


def calls(op, size):
    """Tokens and kinds."""
    return token(op, size, -1), token(op, 0, -1)


def fed_calls(op, size, chunk=125):
    tracker = PeriodTracker()
    tokens, kinds = calls(op, size)
    for start in range(0, len(tokens), chunk):
        tracker.extend(tokens[start : start + chunk], kinds[start : start + chunk])
    return tracker


def test_an_iteration_of_few_calls_is_kept_where_its_evaluation_adds_no_kind_of_call():
    op = [1] * 301
    size = [10, 20, 30, 40, 50, 60] * 50 + [4]
    assert fed_calls(np.tile(op, 20), np.tile(size, 20)).period == 6


def test_layers_and_micro_batches_with_the_reduction_of_gradients_behind_them_are_no_iteration():
    layer_op, layer_size = [1, 2, 1, 1], [10, 20, 10, 30]
    for tail in ([5], [5, 5, 6], [3] * 4):
        op = np.tile(np.concatenate([np.tile(layer_op, 80), tail]), 12)
        size = np.tile(np.concatenate([np.tile(layer_size, 80), np.full(len(tail), 90)]), 12)
        assert fed_calls(op, size).period == 320 + len(tail)
    micro_batch = np.random.default_rng(3).integers(10, 20, 32)
    op = np.tile(np.concatenate([np.ones(64 * 32), np.full(5, 3)]), 12).astype(int)
    size = np.tile(np.concatenate([np.tile(micro_batch, 64), np.full(5, 90)]), 12)
    assert fed_calls(op, size).period == 64 * 32 + 5


def iterations_of_experts(n, sizes, seed=1):
    """12 layers of all_reduce, all_to_all, all_to_all, and three buckets; the all_to_all move `sizes`, at random."""
    op = np.tile(np.concatenate([np.tile([1, 6, 6], 12), [3, 3, 3]]), n)
    size = np.tile(np.concatenate([np.tile([40, 0, 0], 12), [70, 80, 90]]), n)
    size[op == 6] = np.random.default_rng(seed).choice(sizes, int((op == 6).sum()))
    return op, size


@pytest.mark.parametrize("n_sizes", [2, 8, 200, 100_000])
def test_bytes_that_vary_are_dropped_and_only_they(n_sizes):
    op, size = iterations_of_experts(300, np.arange(1, n_sizes + 1) * 1024)
    tracker = fed_calls(op, size)
    assert tracker.period == 39
    assert len(tracker.kinds_without_bytes) == 1
    assert set(np.diff(tracker.take_boundaries()[-200:]).tolist()) == {39}


def test_packed_sequences_vary_all_bytes():
    op = np.tile(np.concatenate([np.tile([1, 2], 20), [3, 4]]), 100)
    size = np.random.default_rng(2).integers(1, 10**6, len(op))
    tracker = fed_calls(op, size)
    assert tracker.period == 42
    assert set(np.diff(tracker.take_boundaries()[-40:]).tolist()) == {42}


def test_bytes_of_one_call_in_many_that_vary_are_dropped():
    op, size = np.tile([1] * 99 + [6], 60), np.tile(np.arange(100), 60)
    size[op == 6] = np.random.default_rng(2).integers(1, 10**6, 60)
    tracker = fed_calls(op, size)
    assert (tracker.period, len(tracker.kinds_without_bytes)) == (100, 1)
    assert set(np.diff(tracker.take_boundaries()).tolist()) == {100}


def test_bytes_that_begin_to_vary_are_dropped_then():
    fixed_op, fixed_size = iterations_of_experts(100, [1024])
    op, size = iterations_of_experts(200, np.arange(1, 500))
    tracker = fed_calls(np.concatenate([fixed_op, op]), np.concatenate([fixed_size, size]))
    assert (tracker.period, len(tracker.kinds_without_bytes)) == (39, 1)


@pytest.mark.parametrize("length", [250, 700, 5_000])
def test_sizes_that_have_not_recurred_yet_are_not_dropped_for_good(length):
    """An iteration with many sizes, one operation: without bytes every call would be an iteration."""
    tracker = fed_calls(np.ones(6 * length, np.int64), np.tile(np.random.default_rng(1).permutation(length) + 1, 6))
    assert (tracker.period, tracker.kinds_without_bytes) == (length, ())


@pytest.mark.parametrize("lost", [1, 2, 7, 16])
def test_lost_calls_shorten_one_period_and_cost_none(lost):
    base = iteration(17, 20, 4, 6, 6)
    tracker = fed(np.tile(base, 10))
    tracker.take_boundaries()
    at = 40  # within the layers, past the place where periods begin
    tracker.extend(np.concatenate([base[:at], base[at + lost :], np.tile(base, 9)]))
    gaps = np.diff(tracker.take_boundaries()).tolist()
    assert len(gaps) >= 8
    assert sorted(set(gaps)) == [len(base) - lost, len(base)]


def test_a_call_that_is_another_once_changes_nothing():
    base = iteration(18, 20, 4, 6, 6)
    stream = np.tile(base, 30)
    stream[15 * len(base) + 33] = 99_999
    tracker = fed(stream, 125)
    assert set(np.diff(tracker.take_boundaries()).tolist()) == {len(base)}


def test_periods_may_begin_at_another_call():
    base = np.arange(10)
    tracker = fed(np.tile(base, 20), 50)
    position = int(np.flatnonzero(tracker.pattern == tracker.pattern[(tracker.pattern.argmax() + 3) % 10])[0])
    code = tracker.pattern[position]
    tracker.take_boundaries()
    tracker.begin_with(position)
    assert tracker.pattern[0] == code
    tracker.extend(np.tile(base, 5))
    boundaries = tracker.take_boundaries()
    assert set(np.diff(boundaries).tolist()) == {10}
    with pytest.raises(ValueError, match="outside"):
        tracker.begin_with(10)


def test_a_constant_stream_has_period_1():
    tracker = fed_calls(np.ones(300, np.int64), np.full(300, 8))
    assert (tracker.period, tracker.state) == (1, "periodic")
    assert len(tracker.take_boundaries()) == 300


def test_what_never_repeats_has_no_period():
    tracker = fed(np.random.default_rng(11).integers(0, 50, 160_000), chunk=20_000)
    assert (tracker.period, tracker.state) == (None, "no period")
    assert len(tracker.take_boundaries()) == 0


def test_a_few_calls_and_none_are_learning():
    tracker = PeriodTracker()
    tracker.extend(np.array([], np.int64))
    tracker.extend(np.arange(20))
    assert (tracker.period, tracker.state, tracker.calls_seen) == (None, "learning", 20)


def assert_alike(tracker, other):
    for name in ("period", "state", "calls_seen", "locks", "candidates", "kinds_without_bytes"):
        assert getattr(tracker, name) == getattr(other, name), name
    np.testing.assert_array_equal(tracker.pattern, other.pattern)
    np.testing.assert_array_equal(tracker.take_boundaries(), other.take_boundaries())


def test_one_that_was_pickled_goes_on_the_same():
    base = iteration(12, 80, 6, 5, 5)
    stream = np.tile(base, 30)
    tracker = fed(stream[:9000])
    other = pickle.loads(pickle.dumps(tracker))
    for part in (stream[9000:9300], np.arange(30), stream[:4000]):
        tracker.extend(part)
        other.extend(part)
    assert_alike(tracker, other)


def test_the_largest_state_stays_below_512_kb():
    rng = np.random.default_rng(19)
    op, size = rng.integers(1, 12, 50_000), rng.integers(1, 10**5, 50_000)
    tracker = fed_calls(np.tile(op, 4), np.tile(size, 4), 10_000)
    assert tracker.period == 50_000
    tracker.extend(*calls(np.tile(op, 1)[:14_900], np.tile(size, 1)[:14_900]))
    assert len(pickle.dumps(tracker)) < 512 * 1024
    assert_alike(pickle.loads(pickle.dumps(tracker)), tracker)
    constant = fed_calls(np.ones(200_000, np.int64), np.ones(200_000, np.int64), 10_000)
    assert len(pickle.dumps(constant)) < 512 * 1024


def test_threshold_is_checked():
    with pytest.raises(ValueError, match="threshold"):
        PeriodTracker(threshold=0.2)


def test_tokens_tell_operation_bytes_and_peer_apart():
    tokens = token([1, 2, 1, 1, 1], [64, 64, 65, 64, 64], [-1, -1, -1, 0, -1])
    assert len(set(tokens.tolist())) == 4
    assert tokens[0] == tokens[4]


@examples(16)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(1, 97))
def test_the_smallest_period_of_any_repeated_list_is_found_however_it_is_cut(base, chunk):
    smallest = next(p for p in range(1, len(base) + 1) if len(base) % p == 0 and base == base[:p] * (len(base) // p))
    repetitions = max(12, 300 // len(base))
    assert fed(np.tile(base, repetitions), chunk).period == smallest


@examples(12)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=300))
def test_any_tokens_are_survived(tokens):
    tracker = fed(np.array(tokens, np.int64), 50)
    assert tracker.calls_seen == len(tokens)
