"""Clipped and rounded gradients: no example is longer than K, and sums do not depend on order or parts."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hockeystick.errors import InvalidInputError
from hockeystick.training.exact_sums import (
    BLOCK,
    LANES,
    MOST_STEPS,
    RUN,
    add_clipped,
    add_scaled,
    exact_sum,
    factors,
    layer_steps,
    margin,
    scale_of,
    squared_norms,
    steps_within,
)

STEPS = st.sampled_from([1, 2, 1000, 2**20, 2**26 + 1, MOST_STEPS]) | st.integers(1, MOST_STEPS)
NORMS = st.sampled_from([2.0**-100, 1e-3, 1.0, 1.5, 1e6, 1e38]) | st.floats(1e-6, 1e6)
ENDS = [0.0, -0.0, 1e-45, -1e-45, 2.0**-126, 1e38, -1e38, 1.0, -1.0, 3e-39, float("inf"), float("nan")]
FLOAT32 = st.sampled_from(ENDS) | st.floats(width=32) | st.floats(-2.0, 2.0, width=32)
FLOAT64 = st.sampled_from([*ENDS, 1e-308, 5e-324, 1e200, -1e308, 1.0 - 2.0**-53]) | st.floats()


@st.composite
def gradients(draw, fewest=1):
    """The gradients of some examples, arrays of float32 and float64 for several parameters."""
    number = draw(st.integers(fewest, 6))
    arrays = []
    for _ in range(draw(st.integers(1, 3))):
        dtype, numbers = draw(st.sampled_from([(np.float32, FLOAT32), (np.float64, FLOAT64)]))
        size = draw(st.integers(1, 5))
        values = draw(st.lists(numbers, min_size=number * size, max_size=number * size))
        arrays.append(np.array(values, dtype=dtype).reshape(number, size))
    return arrays


def integers_of(arrays, example, clip_norm, steps):
    """The integers of one example, as Python's."""
    totals = exact_sum([array[example : example + 1] for array in arrays], clip_norm, steps)
    return [int(number) for total in totals for number in total.reshape(-1)]


def numbers_of(arrays, example):
    return [number for array in arrays for number in array[example].reshape(-1).tolist()]


def is_counted(numbers):
    """Whether a gradient is finite, and its squares are within float64."""
    return bool(np.isfinite(np.square(np.array(numbers, dtype=np.float64)).sum()))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(arrays=gradients(), clip_norm=NORMS, steps=STEPS)
@settings(max_examples=300)
def test_no_example_is_longer_than_the_norm_and_no_number_grows(arrays, clip_norm, steps):
    for example in range(len(arrays[0])):
        whole, numbers = integers_of(arrays, example, clip_norm, steps), numbers_of(arrays, example)
        assert sum(q * q for q in whole) <= steps * steps
        if not is_counted(numbers):
            assert whole == [0] * len(whole)
            continue
        scaled = [Fraction(number) * steps / Fraction(clip_norm) for number in numbers]
        for q, exact in zip(whole, scaled, strict=True):
            assert abs(q) <= abs(exact) * (1 + Fraction(1, 2**51))
            assert q * exact >= 0
        length = max(sum(exact * exact for exact in scaled), Fraction(steps * steps))
        for q, exact in zip(whole, scaled, strict=True):  # and none is shorter than rounding makes it
            assert (abs(q) + 1) ** 2 * length >= (exact * steps) ** 2 * (1 - Fraction(1, 2**40))


@given(arrays=gradients(fewest=2), steps=STEPS, data=st.data())
@settings(max_examples=100)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_order_and_parts_change_nothing(arrays, steps, data):
    number = len(arrays[0])
    order = data.draw(st.permutations(range(number)))
    cuts = sorted({0, number, *data.draw(st.lists(st.integers(1, number - 1)))})
    whole = exact_sum(arrays, 1.5, steps)
    parts = [exact_sum([array[order][first:last] for array in arrays], 1.5, steps) for first, last in pairwise(cuts)]
    for at, total in enumerate(whole):
        assert np.array_equal(total, sum(part[at] for part in parts))


def test_the_parameters_of_an_example_are_clipped_together():
    rows = [np.array([[3.0]], np.float32), np.array([[[4.0, 0.0]]], np.float64)]
    first, second = exact_sum(rows, clip_norm=1.0, steps=1000)
    assert (first.tolist(), second.tolist()) == ([599], [[799, 0]])
    assert exact_sum(rows[0], clip_norm=2.0, steps=1000)[0].tolist() == [999]
    assert exact_sum(np.array([[0.5, -0.5]]), clip_norm=2.0, steps=1000)[0].tolist() == [250, -250]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_short_gradients_on_the_grid_stay_as_they_are(dtype):
    """Nothing is lost of multiples of a grid step, as with 8 bits in a norm that is a power of two."""
    whole = np.random.default_rng(0).integers(-20, 21, (50, 3, 4))
    total = exact_sum((whole / 128.0).astype(dtype), clip_norm=2.0, steps=256)[0]
    assert np.array_equal(total, whole.sum(axis=0))


def test_truncation_is_towards_zero():
    assert exact_sum(np.array([[0.9, -0.9, -1.5, 2.5]]), clip_norm=4.0, steps=4)[0].tolist() == [0, 0, -1, 2]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e200])
def test_what_is_not_finite_counts_as_zero_and_takes_nobody_along(value):
    rows = np.array([[0.5, 0.25], [value, 0.25], [0.5, 0.25]])
    assert exact_sum(rows, 1.0, 8)[0].tolist() == [8, 4]
    first, second = exact_sum([rows[:, :1], rows[:, 1:].astype(np.float32)], 1.0, 8)
    assert (first.tolist(), second.tolist()) == ([8], [4])


@pytest.mark.parametrize("numbers", [1, 7, LANES - 1, LANES, LANES + 1, 3 * LANES + 5, 2 * RUN + 5000])
@pytest.mark.parametrize("steps", [2**20, MOST_STEPS])
def test_long_gradients_fill_the_norm_and_no_more(numbers, steps):
    rows = np.random.default_rng(numbers).normal(size=(3, numbers)).astype(np.float32) * 10.0
    for example in range(3):
        q = exact_sum(rows[example : example + 1], 0.01, steps)[0].astype(object)
        length = int((q * q).sum())
        assert length <= steps * steps
        assert length**0.5 >= steps - 0.6 * numbers**0.5 - 1.0


@pytest.mark.parametrize("numbers", [1, 2, 1000, LANES + 3, 5 * LANES])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_squared_norms_are_short_by_no_more_than_is_said(numbers, dtype):
    rows = np.random.default_rng(0).normal(size=(2, numbers)).astype(dtype)
    rows[1] = 1.1  # all alike
    for row, square in zip(rows, squared_norms(rows), strict=True):
        exact = sum(Fraction(number) ** 2 for number in row.tolist())
        assert Fraction(square) >= exact * (1 - Fraction(numbers, 2**53))
        assert Fraction(square) <= exact * (1 + Fraction(numbers, 2**53))


@given(numbers=st.lists(st.floats(2.0**-100, 2.0**100, width=32), min_size=1, max_size=40), steps=STEPS)
@settings(max_examples=200)
def test_factors_leave_room_for_rounding(numbers, steps):
    """N F is below K by what the products may be rounded up, in exact arithmetic."""
    row = np.array([numbers], np.float32)
    [factor] = factors(squared_norms(row), row.size, np.inf, steps)
    length = sum(Fraction(number) ** 2 for number in row[0].tolist())
    assert Fraction(factor) ** 2 * length <= (steps * (1 - Fraction(1, 2**53))) ** 2


def test_the_margin_is_exact():
    for numbers in (1, 1000, 2**40):
        assert Fraction(margin(numbers)) == 1 - Fraction(numbers + 8, 2**53)
    with pytest.raises(InvalidInputError, match="at most 2\\^40 numbers"):
        margin(2**40 + 1)


@pytest.mark.parametrize("steps", [5, 2**20, MOST_STEPS])
def test_integers_that_are_too_long_are_made_anew_with_less(steps):
    """With factors that a fault made too large, by a little and by a lot, and one that is right."""
    rows = np.array([[1.0, 2.0**-28], [3.0, 4.0], [0.5, 0.0], [3.0, 4.0]])
    scales = np.array([float(steps), 1e3 * steps, float(steps), steps / 5.0])
    total = np.zeros(2, np.int64)
    taken = add_scaled([rows], [total], scales, steps)
    q = np.trunc(rows * taken[:, None]).astype(object)
    assert all(int((one * one).sum()) <= steps * steps for one in q)
    assert np.array_equal(total, q.sum(axis=0))
    assert taken[2] == scales[2]
    assert taken[1] * 5.0 > 0.2 * steps  # by no more than half too much
    assert (taken[0] < scales[0]) == (steps == MOST_STEPS)  # elsewhere the second number is 0


def test_a_sum_of_squares_beyond_64_bits_is_no_small_one():
    """Four squares of 2^31 would add up to 0 there: limits and blocks keep that from passing."""
    for numbers in (4, 3 * BLOCK, 2**12):
        rows, total = np.ones((1, numbers)), np.zeros(numbers, np.int64)
        add_scaled([rows], [total], np.array([2.0**31]), MOST_STEPS)
        assert int((total.astype(object) ** 2).sum()) <= MOST_STEPS**2


@given(norms=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6), steps=STEPS)
def test_layers_together_have_the_norm(norms, steps):
    of_layers = layer_steps(norms, steps)
    assert sum(one * one for one in of_layers) <= steps * steps
    share = steps / sum(norm * norm for norm in norms) ** 0.5
    assert all(norm * share * (1 - 1e-12) - 1 <= one for one, norm in zip(of_layers, norms, strict=True))


@given(STEPS, st.sampled_from([0.0, 5e-324, 2.0**-60, 1e-3, 1.0 / 3.0, 1.0]) | st.floats(0.0, 1.0))
def test_what_is_clipped_and_what_others_change_are_within_the_norm(steps, rho):
    own = steps_within(steps, rho)
    assert own * (1 + Fraction(rho)) <= steps < (own + 1) * (1 + Fraction(rho))
    assert steps_within(steps, 0) == steps


@pytest.mark.parametrize("rho", [-1e-9, 1.1, float("nan"), True, "0.1"])
def test_a_stated_change_is_a_part_of_the_norm(rho):
    with pytest.raises(InvalidInputError, match="'rho' argument must be a number from 0 to 1"):
        steps_within(1000, rho)


def test_a_layer_alone_has_its_own_norm():
    total = np.zeros(2, np.int64)
    add_clipped([np.array([[30.0, 40.0]])], [total], scale_of(5.0, 1000), 600)
    assert total.tolist() == [359, 479]


def test_sums_of_many_examples_are_exact():
    rows = np.ones((2**12, 1), np.float32)
    rows[0] = 1.0 / MOST_STEPS
    assert exact_sum(rows, 1.0, MOST_STEPS)[0].tolist() == [(2**12 - 1) * (MOST_STEPS - 1) + 1]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"steps": 0}, "The 'steps' argument must be a whole number from 1 to 268435456. Got 0"),
        ({"steps": 2**29}, "The 'steps' argument"),
        ({"steps": 1.5}, "The 'steps' argument"),
        ({"clip_norm": 0.0}, "The 'clip_norm' argument must be finite and at least 7.89e-31. Got 0.0"),
        ({"clip_norm": np.inf}, "The 'clip_norm' argument"),
        ({"clip_norm": np.nan}, "The 'clip_norm' argument"),
        ({"rows": np.ones((2, 3), np.float16)}, "must have arrays of float32 or float64, one row for each example"),
        ({"rows": np.ones((2, 3), int)}, "Got int64 of shape \\(2, 3\\)"),
        ({"rows": [np.ones((2, 3)), np.ones((3, 3))]}, "of the same number of examples"),
        ({"clip_norm": "1"}, "The 'clip_norm' field must be a number. Got '1'"),
        (
            {"rows": [[1.0, 2.0]]},
            r"must be an array of numpy, or a list of one for each parameter\. Got \[1.0, 2.0\] in",
        ),
        ({"rows": [1.0, 2.0]}, "list of one for each parameter. Got 1.0 instead"),
        ({"rows": None}, "list of one for each parameter. Got None instead"),
        ({"rows": []}, "of the same number of examples, at least one"),
    ],
)
def test_arguments_out_of_range_are_refused_in_one_sentence(change, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        exact_sum(**{"rows": np.ones((2, 3)), "clip_norm": 1.0, "steps": 100} | change)
