"""The reproduction of b-min-sep subsampling: each part in small, and the paper's numbers that can be recomputed."""

import csv
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
from scipy.stats import poisson

import hockeystick as hs
from hockeystick.calibration.search import _would_take
from hockeystick.deadline import Deadline
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.monte_carlo import pilots as pilot
from hockeystick.reproduction.papers import Output, available, figures_of, folder_of
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
    return dict(figures_of(folder_of(PAPER)))


def module(name: str) -> ModuleType:
    return sys.modules[f"{PACKAGE}.{name}"]


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_figures_are_listed() -> None:
    names = ["figure-2", "figure-3", "cell", "production", "scaling", "bounding", "learning-noise", "limits", "numbers"]
    assert available()[PAPER] == names


# --- Figures 2 and 3 --------------------------------------------------------------------------------------------------


def small_cell(cells: ModuleType, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "length": 16,
        "epsilon": 4.0,
        "most_bands": 2,
        "seconds": 1.5,
        "cyclic_poisson": cells.Scheme(2, 2, 1.05, 1.0, 1.1),
        "balls_in_bins": cells.Scheme(2, 16, 1.25, 1.2, 1.3),
        "b_min_sep": cells.Scheme(2, 2, 0.85, 0.8, 0.9),
    }
    return cells.Cell(**{**values, **changes})


def test_small_cell_is_estimated_and_certified(figures: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With intervals of a known width around the drafts in place of sampled ones."""
    cells, runs = module("cells"), module("runs")

    def around(mechanism: hs.Mechanism, epsilon: float, deadline: Deadline) -> tuple[float, float]:
        delta = runs.draft_delta(mechanism, epsilon)
        return 0.9 * delta, 1.1 * delta

    monkeypatch.setattr(runs, "interval", around)
    (estimated,) = cells.estimate(16, 4.0, cells.Search(bands=(2,), limits=(2,)), Deadline(), 64)
    assert not estimated.certified
    assert estimated.cyclic_poisson.certified
    (cell,) = cells.certify([estimated], Deadline(), 64)
    assert cell.certified
    for scheme in (cell.balls_in_bins, cell.b_min_sep):
        run = runs.b_min_sep(scheme.bands, scheme.min_sep, 16, 64)
        assert around(run(scheme.sigma_upper), 4.0, Deadline())[1] <= runs.DELTA
        assert around(run(scheme.sigma_lower), 4.0, Deadline())[0] >= runs.DELTA
        assert scheme.sigma_lower < scheme.sigma < scheme.sigma_upper < 1.25 * scheme.sigma_lower
    low, middle, high = cell.ratio("cyclic_poisson", 64)
    assert 0.0 < low < middle < high < 1.1


def test_interval_is_two_sided(figures: Any) -> None:
    """The sampled interval holds the draft's delta, but for 1e-6 and the draft's error of some percent."""
    runs = module("runs")
    mechanism = runs.b_min_sep(2, 16, 16, 64)(1.1)
    lower, upper = runs.interval(mechanism, 4.0, Deadline())
    draft = runs.draft_delta(mechanism, 4.0)
    assert 0.0 < 0.5 * lower < draft < 2.0 * upper < 1.0
    assert lower < upper <= (1.0 + runs.RATIO) * lower


def test_noise_that_cannot_be_bracketed_is_an_error(figures: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no cell from 0 to infinity."""
    runs = module("runs")
    monkeypatch.setattr(runs, "interval", lambda *args, **options: (0.5 * runs.DELTA, 2.0 * runs.DELTA))
    with pytest.raises(UnsupportedError, match="bracketed"):
        runs.bracketed_noise(runs.b_min_sep(2, 4, 16, 64), 4.0, runs.Draft(1.0, 8.0), Deadline())


def test_cells_are_kept_with_empty_rows_for_the_rest(figures: Any, tmp_path: Path) -> None:
    cells, path = module("cells"), tmp_path / "cells.csv"
    search, places = cells.Search(bands=(2,), limits=(2, 4)), [(16, 4.0), (16, 8.0)]
    first = small_cell(cells)
    second = small_cell(cells, epsilon=8.0, most_bands=4, b_min_sep=cells.Scheme(2, 2, 0.85))
    assert cells.kept(path) == []
    cells.keep(path, [second, first], places, search)
    assert cells.kept(path) == [first, second]
    assert len(path.read_text().splitlines()) == 5
    assert not second.certified
    low, middle, high = second.ratio("balls_in_bins")
    assert (low, high) == (0.0, inf)
    assert middle == pytest.approx((0.85 / 1.25) ** 2)


@pytest.mark.parametrize("text", ["nonsense\n", "epoch_length,epsilon\n16,4\n", ""])
def test_file_that_holds_something_else_is_refused(figures: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "cells.csv"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match="not cells of this version"):
        module("cells").kept(path)


def test_row_of_another_form_is_refused(figures: Any, tmp_path: Path) -> None:
    cells, path = module("cells"), tmp_path / "cells.csv"
    cells.keep(path, [small_cell(cells)], [(16, 4.0)], cells.Search(bands=(2,), limits=(2,)))
    path.write_text(path.read_text().replace("1.25", "much"))
    with pytest.raises(InvalidInputError, match="not cells of this version"):
        cells.kept(path)


def test_statements_are_judged_by_the_ends_of_the_ratios(figures: Any) -> None:
    cells, checks = module("cells"), sys.modules[PACKAGE].cell_checks
    cell = small_cell(cells, length=256)
    low, _, high = cell.ratio("cyclic_poisson")
    assert low == pytest.approx((0.8 / 1.1) ** 2)
    assert high == pytest.approx((0.9 / 1.0) ** 2)
    assert all(check.holds for check in checks(cell))
    worse = replace(cell, b_min_sep=cells.Scheme(2, 2, 1.45, 1.4, 1.5))
    assert all("contradicted" in check.verdict for check in checks(worse))
    estimated = replace(cell, b_min_sep=cells.Scheme(2, 2, 1.05))
    assert all("open" in check.verdict for check in checks(estimated))
    same = replace(cell, length=1024, b_min_sep=cell.balls_in_bins)
    assert same.ratio("balls_in_bins") == (1.0, 1.0, 1.0)
    assert checks(same)[1].holds


def test_kept_cells_are_those_of_the_grid_and_are_drawn(figures: Any, output: Output) -> None:
    """The file in the repository: every row is of the grid, the paper's bands, and no scheme beats its own bracket."""
    cells = module("cells")
    kept = cells.kept()
    assert (128, 0.5) in {(cell.length, cell.epsilon) for cell in kept}
    rows = table(cells.KEPT)
    assert len(rows) == 2 * len(cells.PLACES)
    for cell in kept:
        assert (cell.length, cell.epsilon) in cells.PLACES
        for scheme in (cell.cyclic_poisson, cell.balls_in_bins, cell.b_min_sep):
            assert scheme.bands in cells.GRID.bands
            assert scheme.bands <= cell.most_bands
            assert scheme.sigma_lower <= scheme.sigma <= scheme.sigma_upper
            assert scheme.bands <= scheme.min_sep <= cell.length
        assert cell.ratio("balls_in_bins")[1] <= 1.0
    figures["figure-3"](output)
    assert (output.directory / "figure-3.png").stat().st_size > 5_000
    assert len(table(output.directory / "figure-3.csv")) == len(kept)


def test_the_papers_grid_is_that_of_section_7(figures: Any) -> None:
    cells = module("cells")
    assert list(product((128, 256, 512, 1024), (0.5, 1.0, 2.0, 4.0, 8.0, 16.0))) == cells.PLACES
    assert cells.GRID.bands == (2, 4, 8, 16, 32, 64)
    assert cells.GRID.limits == (32, 64)
    assert cells.GRID.min_seps(8, 128) == [8, 16, 32, 64, 128]
    assert cells.GRID.min_seps(2, 1024) == [2**k for k in range(1, 11)]


def test_cyclic_poisson_is_exact_for_one_band(figures: Any) -> None:
    """With one band it is plain Poisson sampling; with more, the mechanism is that of the first group alone."""
    runs = module("runs")
    mechanism = runs.cyclic_poisson(1, 32, 64)(0.9)
    assert mechanism.sampler == hs.Poisson(sampling_prob=1 / 32, steps=64)
    assert mechanism.sigma == pytest.approx(0.9)
    assert runs.cyclic_poisson(8, 32, 60)(0.9).sampler == hs.Poisson(sampling_prob=0.25, steps=8)
    noise = runs.cyclic_noise(4, 32, 4.0, 64)
    assert noise.lower < noise.upper < 1.003 * noise.lower
    assert hs.certify(runs.cyclic_poisson(4, 32, 64)(noise.upper), epsilon=4.0).bounds.upper <= runs.DELTA
    lower = hs.certify(runs.cyclic_poisson(4, 32, 64)(noise.lower * 0.999), epsilon=4.0).bounds.lower
    assert lower is not None
    assert lower > runs.DELTA


# --- section 7.4 ------------------------------------------------------------------------------------------------------


def test_production_table_says_what_is_known_and_what_it_rests_on(
    figures: Any, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    production = module("production")
    small = {"MIN_SEP": 8, "RATE": 1 / 16, "STEPS": 64, "BANDS": 4, "TRUNCATED": 45, "EXAMPLES": 500, "SIGMA": 1.5}
    for name, value in (small | {"EPSILON": 2.0, "REACHABLE": 2.0, "DELTA": 1e-4}).items():
        monkeypatch.setattr(production, name, value)
    monkeypatch.setattr(pilot, "PILOT_SAMPLES", (64, 256))
    figures["production"](output, work=0.2, calibrated=False)
    cuts, *rows = table(output.directory / "production.csv")
    cost = float(cuts["at_most"])
    for plain, truncated in zip(rows[::2], rows[1::2], strict=True):
        assert (plain["form"], truncated["form"], plain["what"]) == ("plain", "truncated", truncated["what"])
        lower, upper = float(plain["at_least"]), float(plain["at_most"])
        assert 0.0 < lower < upper < 1.0
        assert upper < float(truncated["at_most"]) <= (upper + 2.0 * cost) * 1.01  # printed to three digits
    for end in ("at_least", "at_most"):  # by samples the same number is known better
        by_laws, by_samples = (float(row[end]) for row in (rows[0], rows[2]))
        assert by_laws <= by_samples if end == "at_least" else by_samples <= by_laws


def test_production_case_is_that_of_section_7(figures: Any) -> None:
    production = module("production")
    plain, truncated = production.run(), production.run(truncated=True)
    sampler = plain.sampler
    assert (sampler.min_sep, sampler.steps, sampler.sampling_prob) == (256, 7200, 1793 / 14745600)
    assert (truncated.sampler.truncated_batch_size, truncated.sampler.num_examples) == (2048, 14745600)
    assert plain.sigma == 0.47
    assert (plain.matrix.bands, plain.matrix.max_column_norm) == (256, pytest.approx(1.0))


def test_cuts_of_the_production_run_cost_less_than_its_delta(figures: Any) -> None:
    """Against the chance of a cut by Poisson tails; a union bound over both distributions would cost e^10 times it."""
    production = module("production")
    loss = production.Found(10.0, 0.0, 1e-9, 0.0).with_cuts(production.run(truncated=True))
    often = 7200 * (1793 / 14745600) * float(poisson.sf(2047, 1793.0))
    assert loss.remove - 1e-9 == pytest.approx(2.0 * often, rel=0.02)
    assert loss.remove - 1e-9 < loss.add < production.DELTA / 3.0


def test_printed_numbers_of_section_7_are_judged(figures: Any) -> None:
    production = module("production")

    def calibrate(mechanism: hs.Mechanism, **target: float) -> hs.Mechanism:
        """At the noise of a full calibration, certified here again."""
        noisy = mechanism.with_noise(0.3675)
        assert hs.certify(noisy, epsilon=target["epsilon"], method="direct").bounds.upper <= target["delta"]
        return noisy

    checks = {check.what: check for check in production.production_checks(calibrate)}
    by_name = {what.removeprefix("production: "): check.holds for what, check in checks.items()}
    assert by_name["noise saved over cyclic Poisson"]
    assert by_name["part of the gap to Poisson that is closed"]
    assert not by_name["samples of a verification / 7.5e9"]
    assert "sigma of DP-SGD with Poisson sampling" in by_name


def test_untruncated_noise_depends_on_the_norms_of_the_columns(figures: Any) -> None:
    """Norm 1: DP-SGD with 28 to 29 turns. First coefficient 1: that times the norm of the column, which excludes it."""
    production = module("production")

    def calibrate(mechanism: hs.Mechanism, **target: float) -> hs.Mechanism:
        """At the noise of full calibrations, certified here again."""
        steps = mechanism.sampler.steps
        noisy = mechanism.with_noise({28: 0.57290, 29: 0.57476}[steps])
        assert hs.certify(noisy, epsilon=target["epsilon"], method="direct").bounds.upper <= target["delta"]
        return noisy

    shorter, longer = production.cyclic_checks(calibrate)
    assert shorter.holds
    assert shorter.ours == 0.57476
    assert not longer.holds
    assert "refuted" in longer.verdict
    column = hs.BandedToeplitz(bands=256).matrix(1024).toeplitz_column
    assert longer.ours == pytest.approx(shorter.ours * float(np.linalg.norm(column / column[0])), rel=1e-9)
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
    delta = module("attribution").pair_delta(epsilon, prob, examples, columns)
    assert delta == pytest.approx(expected, rel=2e-3)


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


# --- Appendix C and Figure 5 ------------------------------------------------------------------------------------------


def usage(graph: Attribution, examples: Any) -> Any:
    """How often each user is in these examples, repeats counted."""
    counts = np.zeros(graph.num_users, dtype=int)
    for example in examples:
        counts[graph.users[graph.offsets[example] : graph.offsets[example + 1]]] += 1
    return counts


@pytest.mark.parametrize("duplicates", [False, True])
def test_contribution_bounding_keeps_its_bounds_and_is_maximal(figures: Any, duplicates: bool) -> None:
    bounding, rng = module("bounding"), np.random.default_rng(1)
    graph = bounding.synthetic(rng, users=600, examples=500)
    kept = bounding.bounded(graph, 3, rng, duplicates=duplicates)
    counts = usage(graph, kept)
    assert counts.max() == 3
    assert (np.unique(kept).size < kept.size) is duplicates
    for example in set(range(500)) - (set() if duplicates else set(kept.tolist())):
        assert counts[graph.users[graph.offsets[example] : graph.offsets[example + 1]]].max() == 3  # no room is left
    sharing = bounding.neighbourhoods(graph)
    few = bounding.bounded(graph, 3, rng, most_sharing=int(np.median(sharing)))
    assert sharing[few].max() <= np.median(sharing)
    with pytest.raises(InvalidInputError):
        bounding.bounded(graph, 0, rng)


def test_formed_batches_keep_their_distance(figures: Any) -> None:
    bounding, rng = module("bounding"), np.random.default_rng(2)
    graph = bounding.synthetic(rng, users=400, examples=300)
    batches = bounding.formed(graph, 12, 4, 5, 2, rng)
    assert batches is not None
    assert [batch.size for batch in batches] == [4] * 12
    per_batch = np.array([usage(graph, batch) for batch in batches])
    assert per_batch.max() == 1
    assert per_batch.sum(axis=0).max() <= 2
    for first in range(12 - 4):
        assert per_batch[first : first + 5].sum(axis=0).max() <= 1
    assert bounding.formed(graph, 200, 4, 5, 1, rng) is None  # there are not enough users


def test_rule_of_thumb_against_the_samplers_batches(figures: Any) -> None:
    """The exact gain is that of simulated batches: within 5 standard errors, of steps that are b apart and more."""
    bounding = module("bounding")
    users, prob, min_sep = 40, 0.02, 3
    graph = Attribution.from_pairs([*range(users), *range(users)], [0] * users + list(range(1, users + 1)))
    sampler = hs.MultiAttribution(
        min_sep=min_sep, sampling_prob=prob, steps=20_000, examples_per_user=2, users_per_example=users, warm_up_steps=2
    )
    sizes = [batch.size for batch in sampler.batches(users + 1, np.random.default_rng(3), attribution=graph)]
    means = np.array(sizes).reshape(-1, 50).mean(axis=1)
    without = users * prob * (1.0 - prob) ** (min_sep - 1)
    expected = without + bounding.gain(prob, min_sep, users)
    assert abs(means.mean() - expected) < 5.0 * means.std() / np.sqrt(means.size)
    (check,) = bounding.bounding_checks()
    assert not check.holds
    assert check.ours == pytest.approx(0.567, abs=0.02)


def test_published_claim_for_shared_examples_never_reaches_a_certificate(
    figures: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of the run has the unamplified bound, which is far above what Theorem 6.1 says."""
    learning = module("learning")
    monkeypatch.setattr(learning, "RUN", 32)
    (check,) = learning.published_checks(sigma=4.0, bands=16)
    assert "REFUTED" in check.what
    assert not check.holds
    assert check.ours > 1.5 * check.printed
    sensitivity = learning.PER_USER * np.sqrt(2.0)
    assert learning.gaussian_delta(4.0, sensitivity, check.ours, hs.Side.UPPER) == pytest.approx(2e-6, rel=1e-2)


def test_noise_says_which_budget_samples_would_need(figures: Any) -> None:
    """The default work of a minute, and what a test takes beyond it."""
    learning = module("learning")
    certificate = hs.certify(hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.0), delta=1e-5)
    assert learning.rests_on(certificate) == "certified"
    assert learning.rests_on(_would_take(certificate, 34.6)) == "certified; samples need a budget of about 95 s"


# --- section 4 --------------------------------------------------------------------------------------------------------


def test_limits_agree_with_exact_accounting(figures: Any, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each interval fails with probability 1e-6."""
    limits = module("limits")
    monkeypatch.setattr(limits, "WIDTH", 0.4)
    checks = limits.limit_checks(limits.LIMITS[2:3], Deadline())
    assert [check.holds for check in checks] == [True]
    monkeypatch.setattr(limits, "interval", lambda *args, **options: (0.0056, 0.0062))
    wrong = replace(limits.LIMITS[1], same=hs.Poisson(sampling_prob=0.02, steps=256))
    right, check = limits.limit_checks([limits.LIMITS[1], wrong], Deadline())
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
    *long, at_the_papers_length = limits.variance_checks()
    assert all(check.holds for check in long)
    assert not at_the_papers_length.holds
    assert at_the_papers_length.printed == pytest.approx(2.5 * (1 - 149 / 300))
    ratios = [check.ours for check in limits.first_order_checks()]
    assert not any(check.holds for check in limits.first_order_checks())
    assert sorted(ratios, reverse=True) == ratios
    assert max(ratios) < 1.0
