"""The reproduction of sampling-free accounting: every figure in small, and what its modules compute."""

import csv
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import sqrt
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, norm

import hockeystick as hs
from hockeystick.accountants.conditional_composition import conditional_profiles
from hockeystick.accountants.registry import ACCOUNTANTS, every_accountant
from hockeystick.errors import VerificationError
from hockeystick.pairs.registry import dominating_pair
from hockeystick.reproduction.curves import Axes, Curve, Series, publish_panels
from hockeystick.reproduction.papers import Output, available, figures_of, folder_of

PAPER = "schuchardt-kalinin-2026"
FIGURES = [*(f"figure-{i}" for i in range(1, 7)), "bandwidth", "library", "cost", "methods", "gaps"]
STRATEGIES = ["DP-SGD", "BSR, p=4", "BSR, p=64", "BISR, p=4", "BISR, p=64", "BLT", "BandMF, p=64", "BandInvMF, p=4"]


@pytest.fixture
def figures() -> dict[str, Callable[..., None]]:
    """The figures, whose functions also take a number of points."""
    return dict(figures_of(folder_of(PAPER)))


@pytest.fixture
def runs(figures: Any) -> ModuleType:
    return sys.modules["hockeystick_papers_schuchardt_kalinin_2026.runs"]


@pytest.fixture
def closeness(figures: Any) -> ModuleType:
    return sys.modules["hockeystick_papers_schuchardt_kalinin_2026.gaps"]


@pytest.fixture
def posterior(figures: Any) -> ModuleType:
    return sys.modules["hockeystick_papers_schuchardt_kalinin_2026.posterior"]


@pytest.fixture
def statements(figures: Any) -> ModuleType:
    return sys.modules["hockeystick_papers_schuchardt_kalinin_2026.statements"]


@pytest.fixture
def allocation(figures: Any) -> ModuleType:
    return sys.modules["hockeystick_papers_schuchardt_kalinin_2026.allocation"]


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def small(runs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two panels of few bins, one of them with several epochs."""
    panels = {"a": ("BSR, p=4", 8, 1, (1.0, 3.0)), "b": ("DP-SGD", 6, 2, (1.0, 3.0))}
    for name in ("figure-2", "figure-3"):
        monkeypatch.setitem(runs.PANELS, name, panels)
    monkeypatch.setattr(runs, "_DONE", {})


def test_figures_are_listed() -> None:
    assert available()[PAPER] == [*FIGURES, "numbers"]


# --- the mechanisms and their methods ---------------------------------------------------------------------------------


def test_mechanisms_are_those_of_the_paper(runs: ModuleType) -> None:
    assert list(runs.STRATEGIES) == STRATEGIES
    described = {
        figure: [(strategy, bins * epochs, epochs) for strategy, bins, epochs, _ in panels.values()]
        for figure, panels in runs.PANELS.items()
    }
    assert described == {
        "figure-2": [
            ("DP-SGD", 100, 1),
            ("DP-SGD", 1000, 1),
            ("DP-SGD", 1000, 10),
            ("BSR, p=4", 100, 1),
            ("BSR, p=64", 100, 1),
            ("BSR, p=4", 1000, 10),
        ],
        "figure-3": [
            ("BISR, p=4", 100, 1),
            ("BISR, p=64", 100, 1),
            ("BISR, p=4", 1000, 10),
            ("BLT", 100, 1),
            ("BandMF, p=64", 100, 1),
            ("BandInvMF, p=4", 100, 1),
        ],
    }


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_builds(runs: ModuleType, strategy: str) -> None:
    matrix = runs.mechanism(runs.STRATEGIES[strategy], 32, 2, 1.0).matrix
    assert matrix.steps == 64
    assert matrix.columns(np.array([0])).min() >= 0.0


def test_noise_figure_holds_every_method_and_keeps_its_sides(
    figures: Any, runs: ModuleType, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(runs, monkeypatch)
    monkeypatch.setitem(runs.PANELS, "figure-2", {"a": ("BSR, p=4", 6, 2, (2.0, 3.0))})
    figures["figure-2"](output, points=1)
    assert (output.directory / "figure-2.png").stat().st_size > 10_000
    for letter, (strategy, bins, epochs, _) in runs.PANELS["figure-2"].items():
        pair = dominating_pair(runs.mechanism(runs.STRATEGIES[strategy], bins, epochs, 1.0))
        expected = {
            f"{accountant.name}_{side.value}"
            for accountant in every_accountant().values()
            for side in accountant.sides
            if accountant.name not in runs.IN_GAPS and accountant.why_not(pair, side) is None
        }
        rows = table(output.directory / f"figure-2{letter}.csv")
        assert len(rows) == 1
        assert set(rows[0]) == {"sigma", "best_upper", "best_lower", runs.PRINTED, runs.NOT_CERTIFIED, *expected}
        for row in rows:
            values = {column: float(text) for column, text in row.items() if text}
            ends = {
                side: {column: value for column, value in values.items() if column.endswith(f"_{side}")}
                for side in ("lower", "upper")
            }
            assert max(ends["lower"].values()) <= min(ends["upper"].values())
            best = {side: ends[side].pop(f"best_{side}") for side in ends}
            del ends["lower"]["monte_carlo_lower"], ends["upper"]["monte_carlo_upper"]
            assert best == {"lower": max(ends["lower"].values()), "upper": min(ends["upper"].values())}


def test_band_is_filled_between_the_best_deterministic_bounds(
    figures: Any, runs: ModuleType, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(runs.PANELS, "figure-2", dict.fromkeys("ab", ("BSR, p=4", 8, 1, (1.0, 3.0))))
    monkeypatch.setattr(runs, "_DONE", {})
    ends = {"a": {"upper": [4.0, 1.0], "lower": [3.0, 0.5]}, "b": {"upper": [2.0, 0.75], "lower": [1.5, 0.25]}}
    for letter, values in ends.items():
        run = runs.panel_run("figure-2", letter)
        known = {runs.titled(run, "comparison_upper", method="comparison"): [9.0, 8.0]}
        best = {
            runs.titled(run, f"best_{side.value}", method="best", side=side): values[side.value] for side in hs.Side
        }
        monkeypatch.setitem(runs._DONE, ("figure-2", letter, 2), Series([1.0, 3.0], {**known, **best}))
    drawn: list[Any] = []
    monkeypatch.setattr(Output, "figure", lambda self, name, figure: drawn.append(figure))
    figures["figure-2"](output, points=2)
    (figure,) = drawn
    for plot, values in zip(figure.axes, ends.values(), strict=True):
        (filled,) = plot.collections
        corners = {(x, y) for side in values.values() for x, y in zip(side, [1.0, 3.0], strict=True)}
        assert {tuple(vertex) for vertex in filled.get_paths()[0].vertices.tolist()} == corners
    assert output.files == ["figure-2a.csv", "figure-2b.csv"]


def test_best_bounds_ignore_what_is_missing(runs: ModuleType) -> None:
    run, nan = runs.panel_run("figure-2", "a"), float("nan")
    known = {
        runs.titled(run, f"{name}_{side.value}", method=name, side=side): values
        for name, side, values in (
            ("gaussian", hs.Side.UPPER, [5.0, 4.0]),
            ("comparison", hs.Side.UPPER, [nan, 3.0]),
            ("comparison", hs.Side.LOWER, [1.0, nan]),
            ("moment_majorant", hs.Side.LOWER, [2.0, 2.5]),
        )
    }
    best = {curve.column: values for curve, values in runs.best_of(run, known).items()}
    assert best == {"best_upper": [5.0, 3.0], "best_lower": [2.0, 2.5]}


def test_a_newly_registered_accountant_appears_by_itself(runs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs.panel_run("figure-2", "d")
    before = [curve.column for curve in runs.registered_curves(run, 1.0)]
    monkeypatch.setitem(runs.ACCOUNTANTS, "another", replace(ACCOUNTANTS["comparison"], name="another"))
    after = [curve.column for curve in runs.registered_curves(run, 1.0)]
    assert after == [*before, "another_upper", "another_lower"]


def test_table_of_methods_names_the_one_with_the_least_noise(
    figures: Any, closeness: ModuleType, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: ACCOUNTANTS[name] for name in ("gaussian", "comparison")}
    monkeypatch.setattr(sys.modules["hockeystick_papers_schuchardt_kalinin_2026.runs"], "ACCOUNTANTS", few)
    monkeypatch.setattr(closeness, "CONTESTS", {"small": ("BSR, p=4", 8, 1)})
    figures["methods"](output, points=1)
    (row,) = table(output.directory / "methods.csv")
    noise = {column.removesuffix("_upper"): float(text) for column, text in row.items() if column.endswith("_upper")}
    assert row["least_noise"] == min(noise, key=lambda method: noise[method])
    assert float(row["comparison_lower"]) <= min(noise.values())
    strategy, sampler = hs.BandedSquareRoot(bands=4), hs.BallsInBins(bins=8)
    settings = hs.Settings(hs.Resolution(48, 1e-5))
    for method, sigma in noise.items():

        def epsilon(sigma: float, method: str = method) -> float:
            mechanism = hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=sigma)
            return hs.bound(mechanism, method, settings=settings).epsilon(1e-5)

        assert epsilon(1.001 * sigma) <= float(row["epsilon"])  # the table has four digits
        assert epsilon(0.98 * sigma) > float(row["epsilon"])
    assert any(row["least_noise"] in line for line in output.lines)


def test_no_noise_is_given_where_a_method_does_not_apply(
    runs: ModuleType, closeness: ModuleType, output: Output
) -> None:
    run = partial(runs.mechanism, runs.STRATEGIES["DP-SGD"], 1, 1)  # a single bin has no cells
    cells = runs.titled(run, "moment_majorant_cells_upper", method="moment_majorant_cells")
    none = runs.titled(run, "gaussian_upper", method="gaussian")
    assert np.isnan(closeness.noise_needed(cells, [1.0], [2.0], output)).all()
    assert closeness.noise_needed(none, [1.0], [2.0], output)[0] > 0.0


def test_gaps_compare_with_the_best_lower_bound_and_with_their_own(
    figures: Any, runs: ModuleType, closeness: ModuleType, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: ACCOUNTANTS[name] for name in ("gaussian", "comparison", "moment_majorant", "monte_carlo")}
    monkeypatch.setattr(runs, "ACCOUNTANTS", few)
    monkeypatch.setattr(closeness, "CASES", {"small": ("BSR, p=4", 8, 1)})
    figures["gaps"](output, points=1)
    assert (output.directory / "gaps.png").stat().st_size > 10_000
    gaps = {row["method"]: row for row in table(output.directory / "gaps.csv")}
    mechanism = runs.mechanism(runs.STRATEGIES["BSR, p=4"], 8, 1, float(gaps["comparison"]["sigma"]))
    assert set(gaps) == set(few)
    least = max(float(row["lower"]) for row in gaps.values() if row["lower"])
    for row in gaps.values():
        upper = float(row["upper"])
        assert upper >= least
        assert float(row["excess"]) == pytest.approx(upper / least - 1.0, abs=1e-6)
        assert not row["lower"] or float(row["gap"]) == pytest.approx(upper / float(row["lower"]) - 1.0, abs=1e-6)
    settings = hs.Settings(hs.Resolution(48, 1e-5))
    again = hs.bound(mechanism, "comparison", settings=settings).epsilon(1e-5)
    assert float(gaps["comparison"]["upper"]) == pytest.approx(again, rel=1e-6)
    assert 0.99 * closeness.LEAST <= float(gaps["comparison"]["upper"]) <= closeness.LEAST
    (drawn,) = table(output.directory / "gapsa.csv")
    for name in ("comparison", "moment_majorant"):
        assert float(drawn[f"{name}_excess"]) == pytest.approx(float(gaps[name]["excess"]), abs=1e-6)
        assert float(drawn[f"{name}_gap"]) == pytest.approx(float(gaps[name]["gap"]), abs=1e-6)
    assert sum(line.startswith("| small |") for line in output.lines) == 1
    assert output.lines[-1].startswith("no lower bound is above an upper one")


def test_a_lower_bound_above_an_upper_one_is_an_error(closeness: ModuleType, output: Output) -> None:
    wrong = closeness.Place("x", 1.0, 1.0, {"comparison": 1.1, "monte_carlo": 1.0}, {"gaussian": 1.05})
    with pytest.raises(VerificationError, match="comparison"):
        closeness.check_sides([wrong])
    right = closeness.Place("x", 1.0, 1.0, {"comparison": 1.0}, {"gaussian": 1.05})
    assert closeness.check_sides([right]) == pytest.approx(1.0 / 1.05)


def test_intervals_of_the_readme_meet_recomputed_ones(runs: ModuleType, closeness: ModuleType, output: Output) -> None:
    folder = folder_of(PAPER)
    case = "BSR, p=4, N=100, k=1"
    rows = [line.split("|")[2:5] for line in (folder / "README.md").read_text().splitlines() if f"| {case} |" in line]
    assert len(rows) == closeness.GAP_POINTS
    strategy, bins, epochs = closeness.CASES[case]
    run = partial(runs.mechanism, runs.STRATEGIES[strategy], bins, epochs)
    for sigma, lower, upper in ([float(text) for text in row] for row in rows):
        again = {
            side: runs.epsilon_of(
                runs.titled(run, f"moment_majorant_{side.value}", method="moment_majorant", side=side), sigma, output
            )
            for side in hs.Side
        }
        rounding = 1.002  # the table has four digits of sigma
        assert again[hs.Side.LOWER] <= rounding * upper
        assert lower <= rounding * again[hs.Side.UPPER]


# --- posteriors -------------------------------------------------------------------------------------------------------


def two_bins(runs: ModuleType, sigma: float) -> Any:
    return dominating_pair(runs.mechanism(runs.STRATEGIES["DP-SGD"], 2, 2, sigma))


def test_posterior_bound_is_exact_for_two_bins(runs: ModuleType, posterior: ModuleType) -> None:
    # Before step 4 the prefixes are e1 + e3 and e2: the loss is N(-/+ d^2 / (2 s^2), d^2 / s^2) with d^2 = 3.
    sigma, failure = 1.7, 1e-3
    (bound,) = posterior.top_posterior(two_bins(runs, sigma), [4], "1", [failure])[0]
    loss = np.log(1.0 / bound - 1.0)
    width = sqrt(3.0) / sigma
    tails = norm.cdf([loss / width - width / 2.0, loss / width + width / 2.0])
    assert tails.mean() == pytest.approx(failure, rel=1e-9)


def test_simulated_losses_have_the_moments_of_two_bins(runs: ModuleType, posterior: ModuleType) -> None:
    # False failure: five standard errors of each mean, below 2e-6 in all. The signs of the two components cancel.
    sigma, samples = 1.7, 40_000
    losses = posterior.simulated_losses(two_bins(runs, sigma), 4, samples, np.random.default_rng(5))
    variance = 3.0 / sigma**2
    second = variance + (variance / 2.0) ** 2
    assert losses.size == samples
    assert abs(losses.mean()) < 5.0 * sqrt(second / samples)
    assert abs((losses**2).mean() - second) < 5.0 * sqrt((losses**4).var() ** 0.5 / samples)


@pytest.mark.parametrize("options", ["1", "2", "3", "123"])
def test_posterior_bound_fails_no_more_often_than_it_says(
    runs: ModuleType, posterior: ModuleType, options: str
) -> None:
    # Each step is watched alone; a valid bound fails this with probability below 1e-6 per step.
    pair = dominating_pair(runs.mechanism(runs.STRATEGIES["BSR, p=4"], 6, 2, 1.5))
    failure, samples = 0.05, 4000
    for step in (3, 9, 12):
        bounds = np.ones(12)
        bounds[step - 1] = posterior.top_posterior(pair, [step], options, [failure])[0, 0]
        count = posterior.exceeded(pair, bounds, samples, np.random.default_rng(step))
        assert binomtest(count, samples, failure, alternative="greater").pvalue > 1e-6


def test_simulated_posterior_agrees_with_the_simulated_loss(runs: ModuleType, posterior: ModuleType) -> None:
    # Two ways to the same probability, of about 0.3; false failure below 1e-6.
    pair = dominating_pair(runs.mechanism(runs.STRATEGIES["BSR, p=4"], 6, 2, 1.5))
    step, level, samples = 11, 0.2, 20_000
    losses = posterior.simulated_losses(pair, step, samples, np.random.default_rng(1))
    by_loss = np.mean(1.0 / (1.0 + 5.0 * np.exp(losses)) > level)
    bounds = np.ones(12)
    bounds[step - 1] = level
    by_runs = posterior.exceeded(pair, bounds, samples, np.random.default_rng(2)) / samples
    assert 0.1 < by_runs < 0.6
    assert abs(by_loss - by_runs) < 5.0 * sqrt(2.0 * 0.25 / samples)


def test_allocations_are_flat_where_they_take_the_largest(figures: Any, runs: ModuleType, output: Output) -> None:
    figures["figure-4"](output, points=8)
    assert (output.directory / "figure-4.png").stat().st_size > 10_000
    for letter in "abcd":
        rows = table(output.directory / f"figure-4{letter}.csv")
        columns = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
        epoch = (columns["step"] - 1) // runs.BINS
        assert np.unique(columns["max"]).size == 1
        for number in range(runs.EPOCHS):
            inside = epoch == number
            assert np.unique(columns["epoch_max_from_1"][inside]).size == 1
            source = "union_upper" if number == 0 else "epoch_max_from_1"
            np.testing.assert_array_equal(columns["epoch_max_from_2"][inside], columns[source][inside])
        for name in ("ours_upper", "union_upper"):
            assert columns[name].min() >= 1.0 / runs.BINS * (1.0 - 1e-9)
            assert columns[name].max() < 1.0


def test_families_only_help(figures: Any, output: Output) -> None:
    figures["figure-6"](output, points=4)
    assert (output.directory / "figure-6.png").stat().st_size > 10_000
    for letter in "abcd":
        for row in table(output.directory / f"figure-6{letter}.csv"):
            value = {name: float(text) for name, text in row.items()}
            assert value["options_1_3"] <= value["options_1"] * (1.0 + 1e-9)
            assert value["options_1_2_3"] <= min(value["options_1_3"], value["options_1_2"]) * (1.0 + 1e-9)


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_gram_figure_lists_every_cyclic_distance(figures: Any, output: Output) -> None:
    figures["figure-1"](output, points=8)
    assert (output.directory / "figure-1.png").stat().st_size > 10_000
    rows = table(output.directory / "figure-1.csv")
    assert [int(row["cyclic_distance"]) for row in rows] == list(range(5))
    assert len(rows[0]) == 9


def test_distances_are_cyclic(runs: ModuleType) -> None:
    gram = np.array([[3.0, 1.0, 0.5, 2.0], [1.0, 4.0, 1.0, 0.25], [0.5, 1.0, 5.0, 1.0], [2.0, 0.25, 1.0, 6.0]])
    smallest, largest = runs.by_distance(gram)
    assert smallest.tolist() == [3.0, 1.0, 0.25]
    assert largest.tolist() == [6.0, 2.0, 0.5]


def test_histogram_figure_integrates_to_one(figures: Any, output: Output) -> None:
    figures["figure-5"](output, points=2000)
    assert (output.directory / "figure-5.png").stat().st_size > 10_000
    rows = table(output.directory / "figure-5.csv")
    for step in ("100", "101", "200", "201", "300", "301"):
        mass = [(float(r["to"]) - float(r["from"])) * float(r["density"]) for r in rows if r["step"] == step]
        assert sum(mass) == pytest.approx(1.0, rel=1e-3)


def test_statements_about_posteriors_come_out(statements: ModuleType, output: Output) -> None:
    max_bound, ours = statements.union_checks(output, samples=4000)
    assert not max_bound.holds  # the paper's max over steps is no union bound
    assert "refuted" in max_bound.verdict
    assert "refuted" not in ours.verdict
    assert all(check.holds for check in statements.widening_checks(output, samples=2000))
    assert not statements.remark_check(output).holds


def test_statements_about_noise_are_judged_for_every_panel(
    runs: ModuleType, statements: ModuleType, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(runs, monkeypatch)
    for figure in ("figure-2", "figure-3"):
        for letter in "ab":
            sigmas = runs.PANELS[figure][letter][-1]
            curves = {
                runs.titled(runs.panel_run(figure, letter), column, method="gaussian"): [8.0 * factor, 0.25 * factor]
                for column, factor in (("bin_renyi_upper", 1.0), ("conditional_composition_upper", 2.0))
            }
            for column, values in ((runs.NOT_CERTIFIED, [4.0, 0.125]), (runs.PRINTED, [6.0, 0.1875])):
                curves[runs.titled(runs.panel_run(figure, letter), column, method="gaussian")] = values
            monkeypatch.setitem(runs._DONE, (figure, letter, 2), Series(sigmas, curves))
    checks = statements.regime_checks(output, points=2)
    assert len(checks) == 12
    large = [check for check in checks if "eps >= 4" in check.what]
    assert len(large) == 4
    assert all(check.holds and check.ours < 1.0 for check in large)
    benefit = [check for check in checks if "little benefit" in check.what]
    assert [check.holds for check in benefit] == [False, True] * 2  # as printed, and as here
    small_epsilon = [check for check in checks if "largest for eps <= 1" in check.what]
    assert [check.holds for check in small_epsilon] == [True, False] * 2
    assert ["as printed" in check.what for check in small_epsilon] == [True, False] * 2


# --- the paper's Renyi accountant -------------------------------------------------------------------------------------


def test_printed_epsilon_takes_one_order_for_both_directions(runs: ModuleType) -> None:
    """Theorem 3.1 by hand at orders 2 and 3, where remove is the larger at the second and add at the first."""
    orders, delta = np.array([2.0, 3.0]), 1e-3
    remove, add = np.array([0.1, 0.9]), np.array([0.7, 0.2])
    at_2 = np.log(1 / delta) + 2 * np.log(0.5)
    at_3 = (np.log(1 / delta) - np.log(2.0) + 3 * np.log(2.0 / 3.0)) / 2.0
    together, apart = runs.printed_epsilons(remove * (orders - 1.0), orders, add, delta)
    assert together == pytest.approx(min(0.7 + at_2, 0.9 + at_3))
    assert apart == pytest.approx(max(min(0.1 + at_2, 0.9 + at_3), min(0.7 + at_2, 0.2 + at_3)))


def test_printed_accountants_in_the_order_of_the_paper(
    runs: ModuleType, statements: ModuleType, output: Output
) -> None:
    """DP-SGD, N = 100, k = 1: conditional composition wins as printed, and not with an order for each direction."""
    checks = statements.order_choice_checks(output)
    assert [check.holds for check in checks] == [True, False, False, True, True, False]
    conditional, renyi = (float(number) for number in checks[0].note.split(" against "))
    assert conditional == pytest.approx(0.7246, abs=1e-4)
    assert renyi == pytest.approx(0.9271, abs=1e-4)
    apart, here = (float(check.note.split(" against ")[1]) for check in checks[1:3])
    assert here < apart < renyi  # the same moments, used better


def test_noise_ratio_interpolates_between_certified_points(runs: ModuleType, statements: ModuleType) -> None:
    def curve(column: str) -> Curve:
        return runs.titled(runs.panel_run("figure-2", "a"), column, method="gaussian")  # type: ignore[no-any-return]

    series = Series([1.0, 2.0, 4.0], {curve("first"): [4.0, 1.0, 0.25], curve("second"): [float("nan"), 2.0, 0.5]})
    ratios = statements.noise_ratio(series, "first", "second", (0.5, 1.0, 2.0, 4.0))
    np.testing.assert_allclose(ratios, [1.0 / sqrt(2.0)] * 3)  # at 4 the second curve does not reach


def test_swapped_panels_draw_the_places_upwards(output: Output) -> None:
    line = Curve(column="x_upper", label="x", mechanism=lambda sigma: None, method="x")  # type: ignore[arg-type, return-value]
    axes = Axes(places="sigma", x="epsilon", y="sigma", title="", log="xy", swapped=True)
    publish_panels(output, "both", {"a": (Series([1.0, 2.0], {line: [3.0, float("nan")]}), axes)}, columns=1)
    assert table(output.directory / "botha.csv") == [
        {"sigma": "1", "x_upper": "3.0"},
        {"sigma": "2", "x_upper": ""},
    ]
    assert (output.directory / "both.png").read_bytes().startswith(b"\x89PNG")


def test_the_rows_of_an_epoch_after_the_first_share_their_largest_bound(allocation: ModuleType) -> None:
    tails = np.random.default_rng(7).random((6, 3))
    largest = allocation.largest_of_each_epoch(2, tails)
    np.testing.assert_array_equal(largest[:2], tails[:2])
    for epoch in (2, 4):
        np.testing.assert_array_equal(largest[epoch : epoch + 2], np.tile(tails[epoch : epoch + 2].max(axis=0), (2, 1)))


def test_the_published_allocation_is_not_the_accountants(runs: ModuleType, allocation: ModuleType) -> None:
    pair, settings = (
        dominating_pair(runs.mechanism(runs.STRATEGIES["DP-SGD"], 20, 3, 2.0)),
        hs.Settings(hs.Resolution(24, 1e-4)),
    )
    paper = allocation.profiles_as_published(pair, settings)[hs.Direction.REMOVE]
    ours = conditional_profiles(pair, settings)[hs.Direction.REMOVE]
    assert all(paper(epsilon) != ours(epsilon) for epsilon in (0.0, 0.5, 1.0))
