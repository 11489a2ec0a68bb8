"""Which methods a search looks at, and where, before it runs the one that decides."""

from dataclasses import replace
from math import exp, inf, sqrt
from typing import Any

import pytest

from hockeystick import (
    BallsInBins,
    BandedSquareRoot,
    ColumnNormalizedBanded,
    Deadline,
    Mechanism,
)
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.bounds import Question
from hockeystick.calibration import noise_search
from hockeystick.calibration.first_guess import Guess
from hockeystick.certification.schedule import Outcome, run_accountants
from hockeystick.pairs.registry import dominating_pair
from hockeystick.settings import SearchPolicy
from hockeystick.types import Kind, Side

FOUND = {"comparison": 3.4, "moment_majorant": 2.95, "moving_average": 2.87, "moment_majorant_cells": 2.9}
"""Noise multipliers at which methods are told to meet the target; others say nothing."""


def _told(monkeypatch: pytest.MonkeyPatch, below: float) -> tuple[noise_search.NoiseSearch, list[tuple[str, float]]]:
    """A search whose methods are power laws, with lower bounds that meet the target at ``below``; and what it ran."""
    run = Mechanism(strategy=BandedSquareRoot(bands=4), sampler=BallsInBins(bins=100, epochs=10))
    search = noise_search.NoiseSearch(run, Question(delta=1e-5), 2.0, None, Deadline(), SearchPolicy())
    ran: list[tuple[str, float]] = []

    def told(pair: Any, question: Any, settings: Any, *, methods: Any, sides: Any, **rest: Any) -> list[Outcome]:
        outcomes = []
        for name in FOUND if methods is None else methods:
            ran.append((name, pair.noise_multiplier))
            for side in sides:
                place = below if side is Side.LOWER else FOUND.get(name, inf)
                if name == "moving_average" and settings is not search.full:
                    place = inf
                value = None if place == inf else 2.0 * (place / pair.noise_multiplier) ** 2.8
                outcomes.append(Outcome(name, side, Kind.DETERMINISTIC, 1.0, value, 0.0, "ok"))
        return outcomes

    monkeypatch.setattr(noise_search, "run_accountants", told)
    return search, ran


def test_where_one_look_is_enough_the_gaussian_says_how_epsilon_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is little amplification, so that heavy methods are looked at about where they meet the target."""
    monkeypatch.setitem(FOUND, "gaussian", 3.6)
    search, ran = _told(monkeypatch, below=2.8)
    search._first_answer(search._start())
    assert [where for method, where in ran if method == "comparison"] == [pytest.approx(3.6, rel=1e-2)]
    assert search.slope == pytest.approx(2.8)


def test_a_look_at_moment_majorants_is_as_close_as_a_run() -> None:
    """For the example of banded matrix factorisation: with a quarter of the effort it was .2 percent above."""
    run = Mechanism(strategy=ColumnNormalizedBanded(bands=64), sampler=BallsInBins(bins=100, epochs=10))
    search = noise_search.NoiseSearch(run, Question(delta=1e-5), 2.0, None, Deadline(), SearchPolicy())
    look, fine = (search.upper(4.3, ["moment_majorant"], how) for how in (search.coarse, search.full))
    assert look == pytest.approx(fine, rel=1e-4)


def test_heavy_methods_are_looked_at_near_the_target_and_light_ones_lead_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """From where public batches meet the target, at more than twice the noise."""
    search, ran = _told(monkeypatch, below=2.8)
    name, noise = search._best_method(7.7)
    assert name == "moving_average"
    assert noise == pytest.approx(2.87, rel=1e-3)
    heavy = [where for method, where in ran if method not in ("gaussian", "comparison", "moment_majorant")]
    assert heavy
    assert max(heavy) <= 1.1 * 2.95
    assert min(heavy) >= 0.9 * 2.95
    assert max(where for method, where in ran if method == "moment_majorant") == 7.7


def test_heavy_methods_are_looked_at_where_light_ones_are_expected_to_meet_the_target(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the middle of their two sides. A light one that turns out to be far looser is not run there."""
    search, ran = _told(monkeypatch, below=2.8)
    search.slope = 2.8
    name, noise = search._best_method(4.4)
    assert (name, noise) == ("moving_average", pytest.approx(2.87, rel=1e-3))
    assert {where for method, where in ran if method == "comparison"} == {4.4}
    assert max(where for method, where in ran if method == "moment_majorant") == pytest.approx(sqrt(3.4 * 2.8))


def test_no_other_is_looked_at_where_both_sides_of_one_that_should_meet_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also no cheaper one, unless no light one leads to where they meet."""
    search, ran = _told(monkeypatch, below=2.861)
    search.slope = 2.8
    name, noise = search._best_method(4.4)
    assert (name, noise) == ("moving_average", pytest.approx(2.87, rel=1e-3))
    assert {method for method, _ in ran} == {"gaussian", "comparison", "moving_average"}
    pair = dominating_pair(search.mechanism.with_noise(2.87))
    assert ACCOUNTANTS["moving_average"].should_meet(pair, 2.0)
    assert not ACCOUNTANTS["moving_average"].should_meet(pair, 0.5)
    search, ran = _told(monkeypatch, below=2.861)
    search._best_method(7.7)
    assert next(where for method, where in ran if method == "moment_majorant") == 7.7
    assert 7.7 not in {where for method, where in ran if method == "moving_average"}


@pytest.mark.parametrize("worse", [3.45, inf])
def test_a_light_method_that_is_the_best_is_found_where_it_was_expected(
    worse: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FOUND, "moment_majorant", worse)
    search, _ = _told(monkeypatch, below=2.8)
    monkeypatch.setattr(search, "_affordable", lambda noise: ["gaussian", "comparison", "moment_majorant"])
    search.slope = 2.8
    assert search._best_method(4.4) == ("comparison", pytest.approx(3.4))


def test_a_method_that_was_seen_at_one_place_is_looked_at_once_more_for_its_slope(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own slope is 2.8, that of the search 1.7."""
    search, ran = _told(monkeypatch, below=2.93)
    monkeypatch.setattr(search, "_affordable", lambda noise: ["moment_majorant", "moment_majorant_cells"])
    name, noise = search._best_method(3.2)
    assert (name, noise) == ("moment_majorant_cells", pytest.approx(2.9, rel=1e-3))
    assert len([where for method, where in ran if method == "moment_majorant_cells"]) == 2


def test_looks_begin_where_quick_methods_came_closest_though_that_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second place misses the target by five percent; the third passes by half of it."""
    search, _ = _told(monkeypatch, below=2.8)
    start = search._first_answer(3.4 * exp(0.3))
    assert start == pytest.approx(3.4 * exp(-0.0165), rel=1e-4)
    assert search.best is not None
    assert search.best.noise == pytest.approx(3.4 * exp(0.1875), rel=1e-4)


def test_a_guess_leads_nearer_than_a_secant_from_far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    search, ran = _told(monkeypatch, below=2.8)
    search.guess = Guess(3.2, 2.5)
    search.upper(7.7, ["moment_majorant"], search.coarse)
    assert search._nearer("moment_majorant", 7.7) == pytest.approx(2.95, rel=1e-2)
    assert [where for _, where in ran[:2]] == [7.7, 3.2]
    assert min(where for _, where in ran) >= 2.9


@pytest.mark.parametrize(("below", "others"), [(2.866, False), (2.85, True)])
def test_where_both_sides_of_the_chosen_method_nearly_meet_no_other_runs_at_the_end(
    below: float, others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, ran = _told(monkeypatch, below=below)
    answer = search._final(2.88, "moving_average")
    assert answer.upper.method == "moving_average"
    assert ({method for method, _ in ran} != {"moving_average"}) == others


def test_a_method_that_needs_more_effort_is_asked_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It came far from the target, to which a method that says something led afterwards."""
    search, _ = _told(monkeypatch, below=2.0)
    monkeypatch.setattr(search, "_affordable", lambda noise: ["comparison", "moving_average"])
    assert search._best_method(7.7)[0] == "moving_average"


def test_lower_bounds_that_are_far_below_others_are_left_out_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    search, _ = _told(monkeypatch, below=2.8)
    pair = dominating_pair(search.mechanism.with_noise(3.0))
    one = Outcome("comparison", Side.LOWER, Kind.DETERMINISTIC, 1.0, 1.0, 0.0, "ok")
    for value, looser in ((1.09, set()), (1.11, {("comparison", Side.LOWER)})):
        search._remember_lower([one, replace(one, method="moment_majorant", value=value)], 3.0)
        assert search.looser == looser
    monkeypatch.undo()
    heavy = {"comparison", "moment_majorant"}
    policy, full = replace(SearchPolicy(), gap_goal=0.0), search.coarse
    ran = run_accountants(pair, search.question, full, policy=policy, methods=sorted(heavy), looser=search.looser)
    assert ("comparison", Side.LOWER) not in {(outcome.method, outcome.side) for outcome in ran}
    assert ("comparison", Side.UPPER) in {(outcome.method, outcome.side) for outcome in ran}


def test_methods_after_two_sides_that_meet_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    search, ran = _told(monkeypatch, below=3.399)
    name, noise = search._best_method(3.0)
    assert (name, noise) == ("comparison", pytest.approx(3.4, rel=1e-3))
    assert {method for method, _ in ran} <= {"gaussian", "comparison"}
