"""The reproduction of b-min-sep subsampling: each part in small, and the paper's numbers that can be recomputed."""

import csv
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import comb, inf
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError
from hockeystick.monte_carlo import pilots as pilot
from hockeystick.reproduction.papers import Output, _figures, _folders, available
from hockeystick.samplers.attribution import Attribution

PAPER = "dong-ganesh-2026"
PACKAGE = "hockeystick_papers_dong_ganesh_2026"


@pytest.fixture(autouse=True)
def short_pilots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes here are small; pilots of the usual length would take most of the time."""
    monkeypatch.setattr(pilot, "PILOT_SECONDS", 0.02)


@pytest.fixture
def figures() -> dict[str, Callable[..., None]]:
    """The figures, whose functions also take what is to be computed."""
    return dict(_figures(next(folder for folder in _folders() if folder.name == PAPER)))


def module(name: str) -> ModuleType:
    return sys.modules[f"{PACKAGE}.{name}"]


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path, Deadline())


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_figures_are_listed() -> None:
    assert available()[PAPER] == ["figure-2", "figure-3", "production", "limits", "numbers"]


# --- Figures 2 and 3 --------------------------------------------------------------------------------------------------


def small_cell(cells: ModuleType, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "length": 16,
        "epsilon": 4.0,
        "search": {"bands": [2], "factors": [1]},
        "steps": 64,
        "delta": 1e-3,
        "seed": 20260209,
        "cyclic_poisson": cells.Scheme(2, 2, 1.0, 1.1),
        "balls_in_bins": cells.Scheme(2, 16, 1.2, 1.3),
        "b_min_sep": cells.Scheme(2, 2, 0.8, 0.9),
    }
    return cells.Cell(**{**values, **changes})


def test_small_cell_is_bracketed_kept_and_drawn(figures: Any, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """With intervals of a known width around the drafts in place of sampled ones."""
    cells, runs = module("cells"), module("runs")

    def around(mechanism: hs.Mechanism, epsilon: float, deadline: Deadline) -> tuple[float, float]:
        delta = runs.draft_delta(mechanism, epsilon)
        return 0.9 * delta, 1.1 * delta

    monkeypatch.setattr(runs, "interval", around)
    search = cells.Search(bands=(2,), factors=(2,))
    figures["figure-2"](output, places=((16, 4.0),), search=search, steps=64)
    (cell,) = cells.kept(output.directory / "cells.jsonl")
    (row,) = table(output.directory / "figure-2.csv")
    for scheme in (cell.balls_in_bins, cell.b_min_sep):
        run = runs.b_min_sep(scheme.bands, scheme.min_sep, 16, 64)
        assert around(run(scheme.sigma_upper), 4.0, Deadline())[1] <= runs.DELTA
        assert around(run(scheme.sigma_lower), 4.0, Deadline())[0] >= runs.DELTA
        assert scheme.sigma_lower < scheme.sigma_upper < 1.25 * scheme.sigma_lower
    assert 0.0 < float(row["ratio_lower"]) < float(row["ratio_upper"]) < 1.0
    before = (output.directory / "cells.jsonl").read_bytes()
    figures["figure-3"](output, places=((16, 4.0),), search=search, steps=64)  # from what is kept
    assert (output.directory / "cells.jsonl").read_bytes() == before
    assert (output.directory / "figure-3.png").stat().st_size > 5_000


def test_interval_is_two_sided_and_open_without_time(figures: Any) -> None:
    """The sampled interval holds the draft's delta, but for 1e-6 and the draft's error of some percent."""
    runs = module("runs")
    mechanism = runs.b_min_sep(2, 16, 16, 64)(1.1)
    lower, upper = runs.interval(mechanism, 4.0, Deadline())
    draft = runs.draft_delta(mechanism, 4.0)
    assert 0.0 < 0.5 * lower < draft < 2.0 * upper < 1.0
    assert lower < upper <= (1.0 + runs.RATIO) * lower
    assert runs.interval(mechanism, 4.0, Deadline(seconds=0.0)) == (0.0, 1.0)


def test_cells_survive_an_interruption(figures: Any, output: Output) -> None:
    cells, path = module("cells"), output.directory / "cells.jsonl"
    first, second = small_cell(cells), small_cell(cells, epsilon=8.0, b_min_sep=cells.Scheme(2, 2, 0.0, inf))
    cells.keep(path, first)
    path.write_text(path.read_text() + '{"format": "dong-')
    assert list(cells.kept(path)) == [first]
    cells.keep(path, second)
    assert list(cells.kept(path)) == [first, second]
    search = cells.Search(bands=(2,), factors=(1,))
    places = [(16, 4.0), (16, 8.0)]
    assert cells.solved(path, places, search, Deadline(), 64) == [first, second]


@pytest.mark.parametrize("line", ["nonsense", "{}", '{"format": "another"}', "[]"])
def test_file_that_holds_something_else_is_refused(figures: Any, output: Output, line: str) -> None:
    path = output.directory / "cells.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InvalidInputError):
        list(module("cells").kept(path))


def test_cells_of_another_version_are_refused(figures: Any, output: Output) -> None:
    cells, path = module("cells"), output.directory / "cells.jsonl"
    cells.keep(path, small_cell(cells))
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": "another/1"}) + "\n")
    with pytest.raises(InvalidInputError, match="version"):
        list(cells.kept(path))


def test_statements_are_judged_by_the_ends_of_the_ratios(figures: Any) -> None:
    cells, checks = module("cells"), sys.modules[PACKAGE].cell_checks
    cell = small_cell(cells, length=256)
    low, high = cell.ratio("cyclic_poisson")
    assert low == pytest.approx((0.8 / 1.1) ** 2)
    assert high == pytest.approx((0.9 / 1.0) ** 2)
    assert all(check.holds for check in checks(cell))
    worse = replace(cell, b_min_sep=cells.Scheme(2, 2, 1.4, 1.5))
    assert all("refuted" in check.verdict for check in checks(worse))
    unknown = replace(cell, b_min_sep=cells.Scheme(2, 2, 0.0, inf))
    assert all("open" in check.verdict for check in checks(unknown))
    same = replace(cell, length=1024, b_min_sep=cell.balls_in_bins)
    assert same.ratio("balls_in_bins") == (1.0, 1.0)
    assert checks(same)[1].holds


def test_the_papers_grid_is_that_of_section_7(figures: Any) -> None:
    cells = module("cells")
    assert list(product((128, 256, 512, 1024), (0.5, 1.0, 2.0, 4.0, 8.0, 16.0))) == cells.FULL_CELLS
    assert cells.FULL.bands == (2, 4, 8, 16, 32)
    assert cells.FULL.min_seps(8, 128) == [8, 16, 32, 64]  # and 128 itself, balls-in-bins
    assert cells.FULL.min_seps(2, 1024) == [2**k for k in range(1, 10)]
    assert set(cells.COARSE_CELLS) <= set(cells.FULL_CELLS)


def test_cyclic_poisson_is_exact_for_one_band(figures: Any) -> None:
    """With one band it is plain Poisson sampling; with more, the mechanism is that of the first group alone."""
    runs = module("runs")
    mechanism = runs.cyclic_poisson(1, 32, 64)(0.9)
    assert mechanism.sampler == hs.Poisson(sampling_prob=1 / 32, steps=64)
    assert mechanism.sigma == pytest.approx(0.9)
    assert runs.cyclic_poisson(8, 32, 60)(0.9).sampler == hs.Poisson(sampling_prob=0.25, steps=8)
    noise = runs.cyclic_noise(4, 32, 4.0, 64)
    bounds = hs.certify(runs.cyclic_poisson(4, 32, 64)(noise), delta=runs.DELTA).bounds
    assert bounds.upper <= 4.0 * (1.0 + 1e-9)
    assert bounds.lower is not None
    assert bounds.lower > 3.98


# --- section 7.4 ------------------------------------------------------------------------------------------------------


def test_production_table_says_what_was_bounded_and_what_it_took(
    figures: Any, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    production = module("production")
    short = {"min_sep": 8, "sampling_prob": 1 / 16, "steps": 64}
    plain = replace(production.PLAIN, sampler=hs.BMinSep(**short), ratio=1.0)
    capped = hs.BMinSep(**short, truncated_batch_size=40, num_examples=500)
    monkeypatch.setattr(production, "PLAIN", plain)
    monkeypatch.setattr(production, "CAPPED", replace(production.CAPPED, sampler=capped))
    monkeypatch.setattr(production, "SIGMA", 1.5)
    figures["production"](output, seconds=4.0)
    first, second = table(output.directory / "production.csv")
    for row in (first, second):
        assert 0.0 <= float(row["lower"]) < float(row["upper"])
        assert float(row["failure_probability"]) == 1e-6
        assert float(row["naive_samples_per_second_and_core"]) > 0.0
    assert float(first["upper"]) < 1.0
    assert second["proposals"] in ("", "naive (remove)", "naive (remove) + naive (add)", "naive (add) + naive (remove)")


def test_production_case_is_that_of_section_7(figures: Any) -> None:
    production = module("production")
    sampler = production.PLAIN.sampler
    assert (sampler.min_sep, sampler.steps, sampler.sampling_prob) == (256, 7200, 1793 / 14745600)
    assert production.CAPPED.sampler.truncated_batch_size == 2048
    assert production.PLAIN.mechanism.sigma == 0.47
    coefficients = production.PLAIN.mechanism.matrix.toeplitz_column[:7]
    np.testing.assert_allclose(coefficients, [1.0, 0.5, 0.375, 0.3125, 0.2734375, 0.24609375, 0.0])


def test_naive_samples_grow_with_one_over_delta(figures: Any) -> None:
    production = module("production")
    found = production.Found(0.8e-6, 1.2e-6, 1, 1.0, "")
    rare = production.Found(0.8e-8, 1.2e-8, 1, 1.0, "")
    ratio = production.naive_samples(rare) / production.naive_samples(found)
    assert ratio == pytest.approx(100.0, rel=0.02)
    assert np.isnan(production.naive_samples(production.Found(0.0, 1.0, 1, 1.0, "")))


def test_printed_numbers_of_section_7_are_judged(figures: Any) -> None:
    production = module("production")

    def calibrate(mechanism: hs.Mechanism, **target: float) -> hs.Mechanism:
        """At the noise of a full calibration, certified here again."""
        found = mechanism.with_noise(0.3675)
        assert hs.certify(found, epsilon=target["epsilon"], method="direct").bounds.upper <= target["delta"]
        return found

    checks = {check.what: check for check in production.production_checks(calibrate)}
    by_name = {what.removeprefix("production: "): check.holds for what, check in checks.items()}
    assert by_name["noise saved over cyclic Poisson"]
    assert by_name["part of the gap to Poisson that is closed"]
    assert not by_name["samples of a verification / 7.5e9"]
    assert "sigma of DP-SGD with Poisson sampling" in by_name


def test_untruncated_noise_depends_on_the_norms_of_the_columns(figures: Any) -> None:
    """Norm 1: DP-SGD with 28 to 29 turns. The assumed C: that of 29 turns times the norm of its column."""
    production = module("production")

    def calibrate(mechanism: hs.Mechanism, **target: float) -> hs.Mechanism:
        """At the noise of full calibrations, certified here again."""
        steps = mechanism.sampler.steps
        found = mechanism.with_noise({28: 0.57290, 29: 0.57476, 7200: 0.73236}[steps])
        assert hs.certify(found, epsilon=target["epsilon"], method="direct").bounds.upper <= target["delta"]
        return found

    one, assumed = production.cyclic_checks(calibrate)
    assert one.holds
    assert one.ours == 0.57476
    assert not assumed.holds
    assert "refuted" in assumed.verdict
    norm = np.sqrt(1.0 + 0.5**2 + 0.375**2 + 0.3125**2 + 0.2734375**2 + 0.24609375**2)
    assert assumed.ours == pytest.approx(one.ours * norm, rel=2e-4)
    low, high = production.noise_needed(hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.03112847, steps=28)), calibrate)
    assert 0.5715 < low < high < 0.573


# --- section 6 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "prob", "examples", "columns"),
    [(1.0, 0.1, 1, (1.0, 1.0)), (1.0, 0.1, 2, (1.0, 1.0)), (0.5, 0.9, 2, (0.001, 1.0)), (0.2, 0.3, 3, (0.7, 1.2))],
)
def test_delta_of_the_pair_is_that_of_a_grid_in_two_dimensions(
    figures: Any, epsilon: float, prob: float, examples: int, columns: tuple[float, float]
) -> None:
    """``E_Q (X - e^epsilon)_+`` summed over a grid of both outputs, with X from its definition."""
    axis = np.linspace(-9.0, 13.0, 2201)
    first, second = np.meshgrid(axis, axis, indexing="ij")
    ratio = np.full(first.shape, (1 - prob) ** (2 * examples))
    for count in range(1, examples + 1):
        weight = comb(examples, count) * prob**count * (1 - prob) ** (examples - count)
        for column, output, chance in ((columns[0], first, 1.0), (columns[1], second, (1 - prob) ** examples)):
            ratio += weight * chance * np.exp(count * column * output - (count * column) ** 2 / 2)
    density = np.exp(-(first**2 + second**2) / 2) / (2 * np.pi)
    expected = float((np.maximum(ratio - np.exp(epsilon), 0.0) * density).sum()) * (axis[1] - axis[0]) ** 2
    found = module("attribution").pair_delta(epsilon, prob, examples, columns)
    assert found == pytest.approx(expected, rel=2e-3)


def test_absent_neighbours_reveal_the_sampled_example(figures: Any) -> None:
    """The sampler's own batches: the counts behind the event, within five standard deviations (about 1e-6)."""
    attribution = module("attribution")
    users = attribution.NEIGHBOURS
    examples = np.concatenate([np.zeros(users + 1, dtype=np.int64), np.arange(1, users + 1)])
    owners = np.concatenate([np.arange(users + 1), np.arange(1, users + 1)])
    graph = Attribution.from_pairs(owners, examples)
    sampler = hs.MultiAttribution(
        min_sep=2, sampling_prob=attribution.RATE, steps=2, examples_per_user=2, users_per_example=users + 1
    )
    rng = np.random.default_rng(20261122)
    seen: dict[bool, list[int]] = {True: [], False: []}
    for _ in range(400):
        first, second = sampler.batches(users + 1, rng, attribution=graph)
        seen[0 in first].append(np.count_nonzero(second))  # example 0 is the shared one
    assert max(seen[True]) == 0
    chance = attribution.RATE * (1 - attribution.RATE)
    spread = np.sqrt(users * chance * (1 - chance) / len(seen[False]))
    assert abs(np.mean(seen[False]) - users * chance) < 5 * spread
    assert min(seen[False]) > attribution.FAR


def test_theorem_6_1_is_refuted_twice(figures: Any) -> None:
    shared, fewer = module("attribution").attribution_checks()
    assert not shared.holds
    assert not fewer.holds
    assert "refuted" in shared.verdict
    assert module("attribution").shared_delta() > 2.0 * shared.printed
    assert fewer.ours > 2.9 * fewer.printed


def test_verification_samples_are_the_fewest_for_the_total(figures: Any) -> None:
    """By brute force over a grid of levels: enough at the number itself, too few at 1 percent less."""
    production = module("production")
    delta, fraction = 1e-4, 0.5
    samples = production.verification_samples(delta, fraction)
    levels = np.linspace(0.51, 0.999999, 200_001) * delta

    def total(count: float) -> float:
        goal = fraction * delta
        entropy = goal * np.log(goal / levels) + (1 - goal) * np.log((1 - goal) / (1 - levels))
        return float(np.min(levels + np.exp(-count * entropy) * (1 - levels)))

    assert total(samples) <= delta * (1 + 1e-6)
    assert total(0.99 * samples) > delta


# --- section 4 --------------------------------------------------------------------------------------------------------


def test_limits_agree_with_exact_accounting(figures: Any, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each interval fails with probability 1e-6."""
    limits = module("limits")
    monkeypatch.setattr(limits, "WIDTH", 0.4)
    checks = limits.limit_checks(limits.LIMITS[2:3], Deadline(), 30.0)
    assert [check.holds for check in checks] == [True]
    monkeypatch.setattr(limits, "interval", lambda *args, **options: (0.0056, 0.0062))
    wrong = replace(limits.LIMITS[1], same=hs.Poisson(sampling_prob=0.02, steps=256))
    right, check = limits.limit_checks([limits.LIMITS[1], wrong], Deadline(), 30.0)
    assert right.holds
    assert not check.holds


@pytest.mark.parametrize(("min_sep", "rate", "steps"), [(1, 0.3, 6), (3, 0.2, 7), (4, 0.25, 8)])
def test_variance_of_the_count_is_that_of_all_sequences(figures: Any, min_sep: int, rate: float, steps: int) -> None:
    """Against the sum over all starts and all coin flips."""
    prob = rate / (1.0 - rate * (min_sep - 1))
    first = [1.0 / (1.0 + (min_sep - 1) * prob)] + [prob / (1.0 + (min_sep - 1) * prob)] * (min_sep - 1)
    moments = np.zeros(3)
    for start, chance in enumerate(first):
        for coins in product((0, 1), repeat=steps):
            step, count, weight = start, 0, chance
            used = np.zeros(steps, dtype=bool)
            while step < steps:
                used[step] = True
                weight *= prob if coins[step] else 1.0 - prob
                count += coins[step]
                step += min_sep if coins[step] else 1
            weight *= 0.5 ** int((~used).sum())
            moments += weight * count ** np.arange(3)
    assert moments[0] == pytest.approx(1.0)
    assert moments[1] == pytest.approx(rate * steps)
    assert module("limits").count_variance(min_sep, rate, steps) == pytest.approx(moments[2] - moments[1] ** 2)


def test_small_noise_holds_and_large_noise_needs_a_secret_group(figures: Any) -> None:
    """The second statement fails by more the more bands there are, on the side that favours b-min-sep."""
    limits = module("limits")
    assert all(check.holds for check in limits.variance_checks())
    ratios = [check.ours for check in limits.first_order_checks()]
    assert not any(check.holds for check in limits.first_order_checks())
    assert sorted(ratios, reverse=True) == ratios
    assert max(ratios) < 1.0
