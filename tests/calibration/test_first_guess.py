"""Where the search for noise starts: near its end, and never so far that it finds something else."""

from math import exp, log

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.accountants.direct import Transforms
from hockeystick.bracketing import steepness, steepness_at
from hockeystick.calibration import noise_search
from hockeystick.calibration.first_guess import Guess, first_guess, rough_guess, unamplified_guess
from hockeystick.errors import CannotCertifyError
from hockeystick.laws.hidden_visits import HiddenVisits
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samplers import Sampler

DELTA = 1e-5


def samplers() -> list[tuple[Sampler, float]]:
    """Rates from 1e-4 to .1, from a tenth of a visit to thousands, and targets from .1 to 10 (seed 11)."""
    rng, found = np.random.default_rng(11), list[tuple[Sampler, float]]()
    for _ in range(6):
        rate, steps = exp(rng.uniform(log(1e-4), log(0.1))), int(exp(rng.uniform(log(100), log(1e5))))
        bins, epsilon = max(round(1.0 / rate), 2), exp(rng.uniform(log(0.1), log(10.0)))
        found += [
            (hs.Poisson(sampling_prob=rate, steps=steps), epsilon),
            (hs.RandomAllocation(bins=bins, epochs=max(steps // bins, 1)), epsilon),
            (hs.BallsInBins(bins=bins, epochs=max(steps // bins, 1)), epsilon),
        ]
    return found


@pytest.mark.parametrize(("sampler", "epsilon"), samplers())
def test_the_guess_is_near_the_answer(sampler: Sampler, epsilon: float) -> None:
    guess = first_guess(dominating_pair(hs.Mechanism(sampler=sampler, noise_multiplier=1.0)), epsilon, DELTA)
    assert guess is not None
    near = guess.noise * np.array([0.97, 1.12])
    values = [
        hs.bound(hs.Mechanism(sampler=sampler, noise_multiplier=noise), "direct").epsilon(DELTA, near=epsilon)
        for noise in near.tolist()
    ]
    assert values[1] <= epsilon <= values[0]
    assert log(values[0] / values[1]) / log(near[1] / near[0]) == pytest.approx(guess.slope, rel=0.5)


@pytest.mark.parametrize(("sampler", "epsilon"), samplers()[:9])
def test_an_epsilon_is_found_in_few_evaluations_and_wherever_the_search_begins(
    sampler: Sampler, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = hs.calibrate(hs.Mechanism(sampler=sampler), epsilon=epsilon, delta=DELTA)
    bound, asked = hs.bound(run, "direct"), list[float]()
    call = Transforms.__call__

    def counted(self: Transforms, at: float) -> float:
        if self.direction is hs.Direction.REMOVE:
            asked.append(at)
        return call(self, at)

    monkeypatch.setattr(Transforms, "__call__", counted)
    found = bound.epsilon(DELTA)
    assert len(asked) <= 10
    asked.clear()
    assert bound.epsilon(DELTA, near=1e-200) == pytest.approx(found, rel=2e-9)
    assert len(asked) > 10


@pytest.mark.parametrize("noise", [1e-160, 1e-3, 0.02, 1e3, 1e200])
def test_far_noise_is_guessed_for_without_an_overflow(noise: float) -> None:
    for visits in (HiddenVisits(1e-9, 1e9, 1.0 / noise), HiddenVisits(1.0, 3, 1.0 / noise)):
        assert 0.0 <= visits.delta(1.0) <= 3.0
        assert 1e-6 <= visits.epsilon(1e-5) <= 1.1 * 500.0


@pytest.mark.parametrize(("sampler", "epsilon"), samplers()[:6])
def test_a_plain_run_is_calibrated_in_few_evaluations(
    sampler: Sampler, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, run = list[float](), noise_search.NoiseSearch.run

    def counted(self: noise_search.NoiseSearch, noise: float, methods: object, *rest: object) -> object:
        if methods != ["gaussian"]:
            asked.append(noise)
        return run(self, noise, methods, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(noise_search.NoiseSearch, "run", counted)
    noise = hs.calibrate(hs.Mechanism(sampler=sampler), epsilon=epsilon, delta=DELTA).sigma
    assert len(asked) <= 6
    monkeypatch.setattr(noise_search, "first_guess", lambda *_: None)
    assert hs.calibrate(hs.Mechanism(sampler=sampler), epsilon=epsilon, delta=DELTA).sigma == pytest.approx(
        noise, rel=1e-3
    )


def test_what_has_no_closed_form_is_not_guessed() -> None:
    known = (
        hs.Poisson(sampling_prob=1.0, steps=4),
        hs.RandomAllocation(bins=3, participations=3),
        hs.Deterministic(bins=4),
    )
    assert [
        first_guess(dominating_pair(hs.Mechanism(sampler=one, noise_multiplier=1.0)), 1.0, DELTA) for one in known
    ] == [None] * 3
    banded = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=2), sampler=hs.Poisson(sampling_prob=0.1, steps=8), noise_multiplier=1.0
    )
    assert first_guess(dominating_pair(banded), 1.0, DELTA) is None


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_a_rough_guess_is_where_quick_methods_come_near_the_target(epsilon: float) -> None:
    """Of b-min-sep subsampling: so one evaluation of them is enough before the slow ones are looked at."""
    run = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=4),
        sampler=hs.BMinSep(min_sep=32, sampling_prob=0.005, steps=1000),
        noise_multiplier=1.0,
    )
    guess = rough_guess(dominating_pair(run), epsilon, DELTA)
    assert guess is not None
    there, beside = (
        hs.bound(run.with_noise(noise), "split_noise").epsilon(DELTA) for noise in (guess.noise, 0.9 * guess.noise)
    )
    assert 0.3 * epsilon <= there <= 1.2 * epsilon
    assert log(beside / there) / log(1.0 / 0.9) == pytest.approx(guess.slope, rel=0.6)
    plain = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=8), noise_multiplier=1.0)
    assert rough_guess(dominating_pair(plain), 1.0, DELTA) is None


@pytest.mark.parametrize("epsilon", [1e-4, 300.0, 690.0])
def test_far_targets_are_guessed_or_left_alone(epsilon: float) -> None:
    """Beyond doubles nothing is guessed; no exponential overflows."""
    for sampler in (hs.Poisson(sampling_prob=0.4, steps=30), hs.Poisson(sampling_prob=1e-6, steps=10**6)):
        guess = first_guess(dominating_pair(hs.Mechanism(sampler=sampler, noise_multiplier=1.0)), epsilon, DELTA)
        assert guess is None or (0.0 < guess.noise < 1e9 and guess.slope > 0.0)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-10])
def test_the_unamplified_guess_is_rather_too_much(epsilon: float, delta: float) -> None:
    run = hs.Mechanism(sampler=hs.Deterministic(bins=5, epochs=7), noise_multiplier=1.0)
    noise = unamplified_guess(dominating_pair(run), epsilon, delta)
    assert 0.3 * epsilon <= hs.bound(run.with_noise(noise), "gaussian").epsilon(delta) <= epsilon


@pytest.mark.parametrize("epsilon", [1e-15, 1e-17, 5e-324])
def test_a_target_that_no_noise_meets_is_refused(epsilon: float) -> None:
    """The square roots of the guess, of which the difference is taken, are equal there."""
    with pytest.raises(CannotCertifyError, match=f"up to 1e.06 is certified for epsilon = {epsilon:g}"):
        hs.calibrate(hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=8)), epsilon=epsilon, delta=DELTA)


@pytest.mark.parametrize("off", [0.2, 4.0])
def test_a_wrong_guess_costs_evaluations_alone(off: float, monkeypatch: pytest.MonkeyPatch) -> None:
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.01, steps=2000))
    noise = hs.calibrate(run, epsilon=2.0, delta=DELTA).sigma
    monkeypatch.setattr(noise_search, "first_guess", lambda *_: Guess(off * noise, 1.7))
    assert hs.calibrate(run, epsilon=2.0, delta=DELTA).sigma == pytest.approx(noise, rel=1e-3)


def test_a_parabola_has_the_slope_of_its_place_and_a_kink_that_of_the_secant() -> None:
    parabola = {noise: exp(-2.0 * log(noise) - 0.5 * log(noise) ** 2) for noise in (1.5, 2.0, 3.0)}
    for place in (1.4, 2.2, 3.3):
        assert steepness_at(parabola, place) == pytest.approx(2.0 + log(place), rel=1e-9)
    assert steepness_at({1.0: 2.0, 1.1: 1.9, 3.0: 1e-9}, 1.0) == steepness({1.0: 2.0, 1.1: 1.9}, 1.0, 1.1)
    assert steepness_at({1.0: 2.0}, 1.0) is None
