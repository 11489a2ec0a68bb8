"""The compiled kernels against nested loops in exact fractions."""

from fractions import Fraction
from math import inf

import numpy as np
import pytest
from law_oracles import contract_oracle, spread_oracle, visited_pairs

from hockeystick.laws.kernels import Ends, contract_pairs, spread_pairs

RELATIVE = 1e-13


def random_law(rng: np.random.Generator, size: int, *, zero: bool) -> tuple[np.ndarray, np.ndarray]:
    """Masses over many decades; some masses and perhaps the first ratio are zero.

    Ratios are multiples of 1/64 below 64: their products and sums are exact, so every pair has one certain cell.
    """
    support = np.sort(rng.choice(np.arange(1, 4096), size, replace=False)) / 64.0
    if zero:
        support[0] = 0.0
    mass = np.exp(rng.normal(-3.0, 6.0, size))
    mass[rng.integers(size)] = 0.0
    return support, mass / mass.sum()


def random_grid(rng: np.random.Generator, g: np.ndarray, h: np.ndarray, product: bool, size: int) -> np.ndarray:
    """From the smallest ratio on, with the largest pairs left above the last node."""
    ratios = (np.multiply if product else np.add).outer(g, h).ravel()
    inside = rng.uniform(ratios.min(), np.quantile(ratios, 0.9), size - 3)
    on_pairs = rng.choice(ratios[ratios <= np.quantile(ratios, 0.9)], 2, replace=False)
    return np.unique(np.concatenate([[ratios.min()], inside, on_pairs]))


def close(actual: float, expected: Fraction) -> bool:
    return abs(Fraction(float(actual)) - expected) <= Fraction(RELATIVE) * expected


CASES = [
    pytest.param(product, square, skip, id=f"{'product' if product else 'sum'}-{'square' if square else 'two'}-{skip}")
    for product in (True, False)
    for square in (True, False)
    for skip in (0.0, 1e-6, 1e-2, 1e9)
]


def draw(seed: int, product: bool, square: bool):
    rng = np.random.default_rng(seed)
    g, mass_g = random_law(rng, int(rng.integers(3, 12)), zero=bool(seed % 2))
    h, mass_h = (g, mass_g) if square else random_law(rng, int(rng.integers(3, 12)), zero=seed % 3 == 0)
    return g, mass_g, h, mass_h, random_grid(rng, g, h, product, int(rng.integers(5, 15)))


@pytest.mark.parametrize(("product", "square", "skip"), CASES)
def test_contract_is_the_sum_over_pairs_or_less_when_skipping(product: bool, square: bool, skip: float) -> None:
    for seed in range(8):
        g, mass_g, h, mass_h, grid = draw(seed, product, square)
        out_q, out_p, _ = contract_pairs(g, mass_g, h, mass_h, grid, product, square, Ends(skip, inf))
        pairs, _, _ = visited_pairs(g, mass_g, h, mass_h, product, 0.0)
        all_q, all_p = contract_oracle(pairs, grid)
        if skip == 0.0:
            assert all(map(close, out_q, all_q))
            assert all(map(close, out_p, all_p))
        assert out_q.sum() <= float(sum(all_q)) * (1 + RELATIVE)
        lost = float(sum(all_q)) - out_q.sum(), float(sum(all_p)) - out_p.sum()
        allowed = (4 if square else 2) * g.size * skip
        if skip < 1.0:
            assert max(lost) <= allowed + RELATIVE * float(sum(all_p))
        else:
            assert out_q.sum() == 0.0


@pytest.mark.parametrize(("product", "square", "skip"), CASES)
def test_spread_is_the_linear_split_of_all_visited_pairs(product: bool, square: bool, skip: float) -> None:
    for seed in range(8):
        g, mass_g, h, mass_h, grid = draw(seed, product, square)
        out, p_inf, skipped_q, skipped_p = spread_pairs(g, mass_g, h, mass_h, grid, product, square, Ends(skip, inf))
        pairs, left_q, left_p = visited_pairs(g, mass_g, h, mass_h, product, 0.0 if square else skip)
        expected, expected_inf = spread_oracle(pairs, grid)
        if square and skip > 0.0:  # which of (i, j) and (j, i) is visited is the kernel's own affair
            assert out.sum() + skipped_q >= float(sum(expected)) * (1 - RELATIVE)
            continue
        # The left end of a cell gets a difference: relative to the cell, not to the node.
        for k in range(grid.size):
            around = sum(expected[max(k - 1, 0) : k + 2])
            assert abs(Fraction(float(out[k])) - expected[k]) <= Fraction(RELATIVE) * around
        assert p_inf == pytest.approx(float(expected_inf), rel=RELATIVE, abs=1e-300)
        assert close(skipped_q, left_q)
        assert close(skipped_p, left_p)


@pytest.mark.parametrize(("product", "square", "skip"), CASES)
def test_repaired_spread_dominates_and_contraction_is_dominated(product: bool, square: bool, skip: float) -> None:
    """Against calls and puts, which generate all convex functions, on exact fractions of the pairs."""
    for seed in range(8):
        g, mass_g, h, mass_h, grid = draw(seed, product, square)
        out, p_inf, skipped_q, skipped_p = spread_pairs(g, mass_g, h, mass_h, grid, product, square, Ends(skip, inf))
        out = out.copy()
        out[0] += skipped_q
        p_inf += skipped_p
        out_q, out_p, _ = contract_pairs(g, mass_g, h, mass_h, grid, product, square, Ends(skip, inf))
        used = out_q > 0.0
        place = out_p[used] / out_q[used]
        pairs, _, _ = visited_pairs(g, mass_g, h, mass_h, product, 0.0)
        total_p = float(sum(r * q for r, q in pairs))
        for strike in np.concatenate([grid, 0.5 * (grid[1:] + grid[:-1]), [2.0 * grid[-1]]]):
            k = Fraction(float(strike))
            call = float(sum(q * max(r - k, Fraction(0)) for r, q in pairs))
            put = float(sum(q * max(k - r, Fraction(0)) for r, q in pairs))
            rounding = 1e-13 * (total_p + strike)
            assert out @ np.maximum(grid - strike, 0.0) + p_inf >= call - rounding
            assert out @ np.maximum(strike - grid, 0.0) >= put - rounding
            assert out_q[used] @ np.maximum(place - strike, 0.0) <= call + rounding
            assert out_q[used] @ np.maximum(strike - place, 0.0) <= put + rounding


def test_square_equals_two_copies_of_the_same_law() -> None:
    for seed in range(6):
        for product in (True, False):
            g, mass_g, _, _, grid = draw(seed, product, True)
            once = spread_pairs(g, mass_g, g, mass_g, grid, product, True, Ends(0.0, inf))
            twice = spread_pairs(g, mass_g, g.copy(), mass_g.copy(), grid, product, False, Ends(0.0, inf))
            assert np.allclose(once[0], twice[0], rtol=RELATIVE, atol=1e-17)
            assert once[1] == pytest.approx(twice[1], rel=RELATIVE)


def test_a_run_of_thousands_of_pairs_in_one_cell_keeps_its_barycentre_to_the_stated_rounding() -> None:
    """The split of a run is a quotient of two sums of n terms: its place may move by 2 n roundings, no more."""
    rng = np.random.default_rng(5)
    n = 2000
    h = np.sort(1.0 - rng.integers(1, 50, n) * 2.0**-53)
    mass = rng.random(n) / n
    out, _, _, _ = spread_pairs(np.ones(1), np.ones(1), h, mass, np.array([0.0, 1.0]), True, False, Ends(0.0, inf))
    q = sum(map(Fraction, mass))
    barycentre = sum(Fraction(x) * Fraction(m) for x, m in zip(h, mass, strict=True)) / q
    landed = Fraction(out[1]) / (Fraction(out[0]) + Fraction(out[1]))
    assert abs(landed / barycentre - 1) <= Fraction(2 * n + 8, 2**53)
