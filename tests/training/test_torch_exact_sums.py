"""Tensors give the integers that arrays give: on a CPU by their kernels, and elsewhere by operations on all numbers."""

import numpy as np
import pytest

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch

from hockeystick.errors import UnsupportedError
from hockeystick.training import exact_sums as arrays
from hockeystick.training.torch import exact_sums as tensors

SIZES = [1, 2, 3, 1000, arrays.LANES - 1, arrays.LANES, 2 * arrays.LANES + 5, arrays.RUN, 3 * arrays.RUN + 9999]


def by_operations(rows, totals, scale, steps):
    """What tensors that are not on a CPU go through."""
    flat = [row.reshape(len(row), -1) for row in rows]
    squares = sum(tensors.squared_norms(row) for row in flat)
    numbers = sum(row.shape[1] for row in flat)
    tensors.add_scaled(flat, totals, tensors.factors(squares, numbers, scale, steps), steps)


def random_rows(dtype, examples, size, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(examples, size)) * 2.0 ** rng.integers(-8, 8, (examples, 1))
    return torch.from_numpy(rows).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", SIZES)
def test_norms_and_integers_are_those_of_arrays(dtype, size, device):
    rows = random_rows(dtype, 6, size)
    held = rows.numpy() if dtype in (torch.float32, torch.float64) else rows.float().numpy()
    assert np.array_equal(tensors.squared_norms(rows.to(device)).cpu().numpy(), arrays.squared_norms(held))
    expected = np.zeros(size, np.int64)
    arrays.add_clipped([held], [expected], 2.0**20 / 1.5, 2**20)
    for add in (by_operations, tensors.add_clipped):
        total = torch.zeros(size, dtype=torch.int64, device=device)
        add([rows.to(device)], [total], 2.0**20 / 1.5, 2**20)
        assert np.array_equal(total.cpu().numpy(), expected)


def test_the_parameters_of_an_example_go_together(device):
    rows = [random_rows(torch.float32, 5, 12, seed).reshape(5, 3, 4).to(device) for seed in range(3)]
    rows[1] = rows[1].double().transpose(1, 2)  # not contiguous
    expected = arrays.exact_sum([row.cpu().numpy() for row in rows], 0.75, 2**18)
    for add in (by_operations, tensors.add_clipped):
        totals = [torch.zeros(12, dtype=torch.int64, device=device) for _ in rows]
        add(rows, totals, arrays.scale_of(0.75, 2**18), 2**18)
        for total, other in zip(totals, expected, strict=True):
            assert np.array_equal(total.cpu().numpy(), other.reshape(-1))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e200])
def test_what_is_not_finite_counts_as_zero(value, device):
    """One row alone: two of them might cancel in 64 bits."""
    rows = torch.tensor([[0.5, 0.25], [value, 0.5]], dtype=torch.float64)
    for add in (by_operations, tensors.add_clipped):
        total = torch.zeros(2, dtype=torch.int64, device=device)
        add([rows.to(device)], [total], 8.0, 8)
        assert total.tolist() == [4, 2]


@pytest.mark.parametrize("steps", [5, 2**20, arrays.MOST_STEPS])
def test_integers_that_are_too_long_are_made_anew_as_for_arrays(steps, device):
    rows = torch.tensor([[1.0, 2.0**-28], [3.0, 4.0], [0.5, 0.0], [3.0, 4.0]], dtype=torch.float64)
    scales = torch.tensor([float(steps), 1e3 * steps, float(steps), steps / 5.0], dtype=torch.float64)
    expected, total = np.zeros(2, np.int64), torch.zeros(2, dtype=torch.int64, device=device)
    taken = arrays.add_scaled([rows.numpy()], [expected], scales.numpy(), steps)
    again = tensors.add_scaled([rows.to(device)], [total], scales.to(device), steps)
    assert np.array_equal(total.cpu().numpy(), expected)
    assert np.array_equal(again.cpu().numpy(), taken)


@pytest.mark.parametrize("numbers", [4, 2**9, 2**12])
def test_a_sum_of_squares_beyond_64_bits_is_no_small_one(numbers, device):
    """2^9 squares of 2^28 and more are a multiple of 2^64."""
    total = torch.zeros(numbers, dtype=torch.int64, device=device)
    rows, scale = torch.ones(1, numbers, device=device), torch.tensor([2.0**31], dtype=torch.float64, device=device)
    tensors.add_scaled([rows], [total], scale, arrays.MOST_STEPS)
    assert sum(number * number for number in total.tolist()) <= arrays.MOST_STEPS**2


def test_no_examples_add_nothing(device):
    total = torch.ones(3, dtype=torch.int64, device=device)
    tensors.add_clipped([torch.zeros(0, 3, device=device)], [total], 8.0, 8)
    assert total.tolist() == [1, 1, 1]


def test_a_device_without_float64_is_refused():
    class Elsewhere:
        device = torch.device("mps")

    with pytest.raises(UnsupportedError, match="Exact sums need float64"):
        tensors.squared_norms(Elsewhere())
