"""The reproduction of amplification for matrix mechanisms: each figure in small, and the statements' verdicts."""

import csv
import sys
from collections.abc import Callable
from dataclasses import replace
from math import exp, inf, nan
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

import hockeystick as hs
from hockeystick.reproduction.papers import Output, available, figures_of, folder_of

PAPER = "choquette-choo-2024"
PACKAGE = "hockeystick_papers_choquette_choo_2024"


@pytest.fixture(autouse=True)
def coarse(figures: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coarse grids: what is judged here does not depend on the last digits."""
    for name in ("runs", "independent", "printed"):
        monkeypatch.setattr(module(name), "PLOT_NODES", 12)


@pytest.fixture
def figures() -> dict[str, Callable[..., None]]:
    """The figures, whose functions also take what is to be computed."""
    return dict(figures_of(folder_of(PAPER)))


def module(name: str) -> ModuleType:
    return sys.modules[f"{PACKAGE}.{name}"]


def table(path: Path) -> list[dict[str, float]]:
    with path.open() as file:
        return [{name: float(text or "nan") for name, text in row.items()} for row in csv.DictReader(file)]


def test_figures_are_listed() -> None:
    assert available()[PAPER] == [
        *("figure-2", "figure-3", "figure-4", "figure-8"),
        *("algorithm-4", "limit", "theorem-5-2", "numbers"),
    ]


# --- Figures 2 and 8 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["figure-2", "figure-8"])
def test_improvement_lies_between_its_bounds(figures: Any, output: Output, name: str) -> None:
    family = replace(module("runs").FAMILIES[name], multipliers=(10.0, 40.0), exponents=(1, 3))
    figures[name](output, family=family)
    assert (output.directory / f"{name}.png").stat().st_size > 10_000
    epsilons, ratios = (table(output.directory / f"{name}{letter}.csv") for letter in "ab")
    assert [row["sqrt_log2_n_plus_1"] ** 2 - 1.0 for row in ratios] == pytest.approx([1.0, 3.0])
    for row, ratio in zip(epsilons, ratios, strict=True):
        for c in ("c10", "c40"):
            assert row[f"{c}_lower"] <= row[f"{c}_mmcc_upper"]
            assert ratio[f"{c}_improvement_lower"] <= ratio[f"{c}_improvement_upper"]
            at_least = row[f"{c}_alone_upper"] / row[f"{c}_mmcc_upper"]
            assert ratio[f"{c}_improvement_lower"] == pytest.approx(at_least, rel=1e-6)
    # sigma = c |C e_1|: the Gaussian mechanism with noise c, for every n.
    for c in (10.0, 40.0):
        for row in epsilons:
            epsilon = row[f"c{c:g}_alone_upper"]
            delta = norm.cdf(0.5 / c - epsilon * c) - exp(epsilon) * norm.cdf(-0.5 / c - epsilon * c)
            assert delta == pytest.approx(1e-6, rel=1e-4)
    assert ratios[-1]["c40_improvement_lower"] > ratios[-1]["c10_improvement_lower"]


def test_the_papers_lengths_are_kept(figures: Any) -> None:
    families = module("runs").FAMILIES
    assert families["figure-2"].exponents == tuple(range(1, 11))
    assert families["figure-8"].exponents == tuple(range(1, 8))
    assert families["figure-8"].multipliers == (10.0, 20.0, 40.0)


def amplified_points(values: list[float]) -> list[Any]:
    """Points whose improvement is known: at least the value, 1.2 times that by split noise, at most 1.5 times."""
    make = module("runs").Amplified
    return [
        make(i + 1, 1.0 / value, 1.0 / (1.5 * value), 1.0, 1.0, split=1.0 / (1.2 * value))
        for i, value in enumerate(values)
    ]


def test_fit_is_that_of_a_line_and_of_a_power(figures: Any) -> None:
    places = np.sqrt(np.arange(2.0, 12.0))
    line = module("runs").fitted(amplified_points((0.5 + 0.25 * places).tolist()))
    assert (line.slope, line.intercept, line.explained) == pytest.approx((0.25, 0.5, 1.0))
    assert module("runs").fitted(amplified_points((0.6 * places**1.5).tolist())).exponent == pytest.approx(1.5)
    assert module("runs").fitted(amplified_points([1.0, 1.2, 1.0, 1.2])).explained < 0.5
    split = module("runs").fitted(amplified_points((0.5 + 0.25 * places).tolist()), split=True)
    assert (split.slope, split.intercept) == pytest.approx((0.3, 0.6))


def test_statements_about_improvements_follow_from_the_points(figures: Any) -> None:
    places = np.sqrt(np.arange(2.0, 9.0))
    straight, bent = amplified_points((0.8 * places).tolist()), amplified_points([0.5, 0.9, 0.5, 0.9, 0.5, 0.9, 1.2])
    points = {"figure-2": {10.0: bent, 40.0: straight}, "figure-8": {10.0: bent, 40.0: amplified_points([1.1] * 2)}}
    points["figure-8"][40.0] = amplified_points((0.7 * places).tolist())
    checks = {check.what: check for check in module("statements").improvement_checks(points)}

    def of(start: str) -> Any:
        (check,) = (check for what, check in checks.items() if what.startswith(start))
        return check

    assert of("figure-2, c=40: smallest").holds
    assert "refuted" in of("figure-2, c=10: smallest").verdict  # at most 0.75
    assert of("figure-2, c=40: near-linear in").holds
    assert not of("figure-2, c=10: near-linear in").holds
    assert of("figure-2, c=40: proportional,").holds
    assert of("figure-2: fit").holds
    assert of("App. E: improvement of the square root / of the tree, n=128, c=40").holds
    assert not of("App. E: improvement of the square root / of the tree, n=128, c=10").holds


# --- Figure 4 ---------------------------------------------------------------------------------------------------------


def test_cyclic_sampling_has_the_same_rate_and_is_that_of_dp_sgd(figures: Any, output: Output) -> None:
    """Every column has norm 2 and none overlaps within a group: 64 / 8 steps at rate 1/2 with noise sigma / 2."""
    points = [module("runs").restart(sigma, output, 64) for sigma in (8.0, 64.0)]
    for point in points:
        same = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.5, steps=8), noise_multiplier=point.sigma / 2.0)
        bounds = hs.certify(same, delta=1e-6).bounds
        assert bounds.lower is not None
        assert point.cyclic_lower <= bounds.upper
        assert bounds.lower <= point.cyclic_upper < 1.01 * point.cyclic_lower
        assert point.poisson_lower <= point.mmcc
    assert points[0].mmcc > points[0].cyclic_upper
    assert points[1].mmcc < points[1].cyclic_lower


def test_restart_figure_and_its_crossing(figures: Any, output: Output) -> None:
    figures["figure-4"](output, sigmas=(8.0, 64.0), steps=64)
    assert (output.directory / "figure-4.png").stat().st_size > 10_000
    rows = table(output.directory / "figure-4.csv")
    assert [row["sigma"] for row in rows] == [8.0, 64.0]
    assert all(row["poisson_lower"] <= row["poisson_mmcc_upper"] for row in rows)


def test_crossing_is_bracketed(figures: Any, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = module("runs")

    def at(sigma: float, output: Output) -> Any:
        return runs.Restart(sigma, 50.0 / sigma**2, 0.0, 2.0 / sigma, 2.0 / sigma)  # equal at 25

    monkeypatch.setattr(runs, "restart", at)
    low, high = runs.crossing([at(sigma, output) for sigma in (10.0, 20.0, 40.0)], output)
    assert low <= 25.0 <= high <= 1.01 * low
    assert runs.crossing([at(10.0, output), at(20.0, output)], output) == (0.0, inf)
    assert runs.crossing([at(30.0, output), at(40.0, output)], output) == (0.0, inf)


def test_restart_statements_follow_from_the_points(figures: Any, output: Output, monkeypatch: Any) -> None:
    statements, make = module("statements"), module("runs").Restart
    points = [make(8.0, 11.0, 3.0, 5.1, 5.0, split=4.0), make(64.0, 0.4, 0.3, 0.51, 0.5, split=0.6)]
    monkeypatch.setattr(statements, "crossing", lambda points, output: (19.9, 20.0))
    monkeypatch.setattr(statements, "restart", lambda sigma, output: points[1])
    above, schemes, below, other_schemes, cross = statements.restart_checks(points, output)
    assert "refuted" in above.verdict
    assert schemes.holds
    assert below.holds
    assert not other_schemes.holds
    assert (cross.ours, cross.holds) == (20.0, False)


# --- Figure 3 ---------------------------------------------------------------------------------------------------------


def test_training_has_the_noise_of_the_run_without_amplification(figures: Any, output: Output) -> None:
    figures["figure-3"](output, epsilons=(1.0,), bins=16, epochs=2)
    assert (output.directory / "figure-3.png").stat().st_size > 10_000
    for letter, strategy in zip("ab", (hs.BinaryTree(), hs.TreeRestart(height=5)), strict=True):
        for row in table(output.directory / f"figure-3{letter}.csv"):
            run = hs.Mechanism(
                strategy=strategy,
                sampler=hs.Deterministic(bins=16, epochs=2),
                noise_multiplier=row["noise_multiplier"],
            )
            assert hs.certify(run, delta=1e-5).bounds.upper == pytest.approx(row["without_upper"], rel=1e-6)
            assert row["lower"] <= row["mmcc_upper"]


def test_training_is_that_of_twenty_epochs(figures: Any) -> None:
    runs = module("runs")
    assert (runs.BINS, runs.EPOCHS) == (100, 20)
    assert runs.tree("restarts", 100).height == 7  # 64 steps, fewer than an epoch has


def test_training_statements_follow_from_the_points(figures: Any) -> None:
    make = module("runs").Training
    points = [make(90.0, 0.5, 0.4, 0.3), make(30.0, 2.0, 3.0, 1.5), make(10.0, 8.0, nan, 7.0)]
    less, more, none, growing = module("statements").training_checks({"one tree": points})
    assert less.holds
    assert not more.holds
    assert not none.holds
    assert "no finite bound" in none.note
    assert growing.holds
    assert growing.ours == pytest.approx(1.5 / 0.8)


# --- independent rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("direction", list(hs.Direction))
def test_delta_of_two_steps_is_that_of_a_grid(figures: Any, epsilon: float, direction: hs.Direction) -> None:
    """Against the trapezoidal rule on the plane, over all four subsets."""
    y = np.linspace(-9.0, 13.0, 1101)
    first, second = np.meshgrid(y, y, indexing="ij")
    means = [(0.0, 0.0), (1.0, 1.0), (0.0, 1.0), (1.0, 2.0)]
    p = sum(0.25 * norm.pdf(first - a) * norm.pdf(second - b) for a, b in means)
    q = norm.pdf(first) * norm.pdf(second)
    left, right = (p, q) if direction is hs.Direction.REMOVE else (q, p)
    expected = float(np.maximum(left - exp(epsilon) * right, 0.0).sum()) * (y[1] - y[0]) ** 2
    assert module("independent").exact_delta(epsilon, direction) == pytest.approx(expected, abs=2e-5)


def test_independent_rows_are_no_bound_on_either_side(figures: Any) -> None:
    """The values of two steps, and that the two lie on different sides of the truth."""
    independent = module("independent")
    low, high = independent.independent_delta(0.0, hs.Direction.ADD)
    assert independent.exact_delta(0.0, hs.Direction.ADD) == pytest.approx(0.38436, abs=5e-6)
    assert low - 1e-5 < 0.39920 < high + 1e-5
    assert low > independent.exact_delta(0.0, hs.Direction.ADD)
    removal = independent.independent_delta(1.0, hs.Direction.REMOVE)
    assert removal[1] < independent.exact_delta(1.0, hs.Direction.REMOVE)
    add, remove = (
        [check for check in module("statements").independent_checks() if check.what.endswith(which)]
        for which in ("add", "remove")
    )
    assert all("refuted" in check.verdict for check in add)
    assert [check.holds for check in remove] == [True]


def test_independent_rows_of_the_limit_agree_with_the_public_pair(
    figures: Any, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four rows, all subsets of each row's coins by name."""
    column = hs.SquareRoot().matrix(4).toeplitz_column
    steps = []
    for row in range(4):
        subsets = range(2 ** (row + 1))
        bits = np.array([[(subset >> j) & 1 for j in range(row + 1)] for subset in subsets])
        chances = 0.25 ** bits.sum(axis=1) * 0.75 ** (row + 1 - bits.sum(axis=1))
        steps.append(hs.MixtureStep(tuple(chances.tolist()), tuple((bits @ column[: row + 1]).tolist())))
    pair = hs.MixtureSteps(noise_multiplier=2.0, steps=tuple(steps))
    bounds = hs.privacy(pair, delta=1e-6)
    monkeypatch.setattr(module("independent"), "PLOT_NODES", 48)
    epsilon = module("independent").independent_epsilon(2.0, output, 4, 0.25)
    assert bounds.lower is not None
    assert bounds.lower <= epsilon <= 1.003 * bounds.upper


def test_limit_figure_tends_to_one(figures: Any, output: Output) -> None:
    figures["limit"](output, sigmas=(8.0, 512.0), steps=8, rate=0.25)
    assert (output.directory / "limit.png").stat().st_size > 10_000
    near, far = table(output.directory / "limitb.csv")
    assert near["mmcc_upper"] > far["mmcc_upper"] > 0.99
    assert far["mmcc_upper"] < 1.02
    assert "independent_rows" in table(output.directory / "limita.csv")[0]
    assert any("not a bound" in line for line in output.lines)


def test_limit_statements_follow_from_the_points(figures: Any) -> None:
    make = module("independent").Limit
    good = [make(1.0, 2.0, 0.9, 1.0), make(10.0, 1.005, 0.95, 1.0)]
    assert [check.holds for check in module("statements").limit_checks(good)] == [True, True, True]
    bad = [make(1.0, 2.0, 1.1, 1.0), make(10.0, 2.1, 1.0, 1.0)]
    assert not any(check.holds for check in module("statements").limit_checks(bad))


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_printed_last_iterate_is_the_add_direction_alone(figures: Any, output: Output) -> None:
    composition, iterate, add = module("statements").building_block_checks(output)
    assert composition.holds
    assert "add direction alone" in iterate.verdict
    assert iterate.ours > 0.41
    assert add.holds


def test_table_has_every_group(figures: Any, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group of statements on few and small cases."""
    statements, runs = module("statements"), module("runs")
    small = {name: replace(family, multipliers=(40.0,), exponents=(1, 2, 3)) for name, family in runs.FAMILIES.items()}
    monkeypatch.setattr(statements, "FAMILIES", small)
    measured = statements.time_check
    monkeypatch.setattr(statements, "time_check", lambda output: measured(output, 16))
    restart, training, limit = statements.restart, statements.training, statements.limit
    monkeypatch.setattr(statements, "restart", lambda sigma, output: restart(sigma, output, 16))
    monkeypatch.setattr(statements, "RESTART_SIGMAS", (64.0,))
    monkeypatch.setattr(statements, "training", lambda name, eps, output: training(name, eps, output, 8, 2))
    monkeypatch.setattr(statements, "EPSILONS", (0.25, 1.0))
    monkeypatch.setattr(statements, "limit", lambda sigma, output: limit(sigma, output, 4, 0.25))
    monkeypatch.setattr(statements, "LIMIT_SIGMAS", (8.0, 64.0))
    figures["numbers"](output)
    with (output.directory / "numbers.csv").open() as file:
        whats = [row["what"] for row in csv.DictReader(file)]
    for start in ("F.5", "figure-2", "figure-8", "App. E", "figure-4", "figure-3", "section 4", "limit"):
        assert any(what.startswith(start) for what in whats)


# --- Theorem 5.2 ------------------------------------------------------------------------------------------------------


def test_constants_of_the_shuffled_tree(figures: Any, output: Output) -> None:
    """Without amplification the constant is that of one Gaussian of sensitivity sqrt(levels)."""
    figures["theorem-5-2"](output, exponents=(4, 12))
    assert (output.directory / "theorem-5-2.png").stat().st_size > 10_000
    rows = table(output.directory / "theorem-5-2.csv")
    scale = np.sqrt(np.log(1e6) * np.log(np.log(1e6)))
    for row, levels in zip(rows, (5, 13), strict=True):
        epsilon, shift = row["sigma100_gaussian_upper"] * scale / 100.0, np.sqrt(levels) / 100.0
        delta = norm.cdf(shift / 2 - epsilon / shift) - exp(epsilon) * norm.cdf(-shift / 2 - epsilon / shift)
        assert delta == pytest.approx(1e-6, rel=1e-3)
    assert rows[1]["sigma1000_shuffled_tree_upper"] < rows[1]["sigma1000_gaussian_upper"]
    with (output.directory / "theorem-5-2-verdicts.csv").open() as file:
        verdicts = {row["what"]: row["verdict"] for row in csv.DictReader(file)}
    own = [verdict for what, verdict in verdicts.items() if "own outputs" in what]
    other = [verdict for what, verdict in verdicts.items() if "other run" in what]
    assert len(own) == len(other) == 3
    assert all("refuted" in verdict for verdict in own)
    assert set(other) == {"confirmed"}
