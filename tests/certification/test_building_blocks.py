"""The building blocks: published figures, exact probabilities, and small cases by integration."""

from fractions import Fraction
from itertools import combinations
from math import comb, exp

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.accountants.registry import accountant
from hockeystick.certification.building_blocks import group_privacy_fixed, group_privacy_poisson, last_iterate, privacy
from hockeystick.deadline import Deadline
from hockeystick.errors import BudgetExceededError, CannotCertifyError, InvalidInputError
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.mixture_steps import MixtureStep, MixtureSteps
from hockeystick.types import Direction, Side


def test_composition_of_the_printed_example() -> None:
    """choquette-choo-2024, F.5: n = 128, p = 1/128, sigma = 1 gives (0.806, 1e-6)."""
    answer = privacy(
        group_privacy_poisson(group_size=1, sampling_prob=1 / 128, steps=128, noise_multiplier=1.0), delta=1e-6
    )
    assert f"{answer.lower:.3f}" == "0.806"
    assert 0.806 <= answer.upper <= 0.807


def test_last_iterate_of_the_printed_example() -> None:
    """F.5 prints (0.291, 1e-6): that is the epsilon of adding the example. Removing it costs 0.420."""
    pair = last_iterate(sampling_prob=1 / 128, steps=128, noise_multiplier=1.0)
    upper, lower = (accountant("direct").bound(pair, side).profiles for side in (Side.UPPER, Side.LOWER))
    for direction, printed in ((Direction.ADD, "0.291"), (Direction.REMOVE, "0.420")):
        above = smallest_epsilon(upper[direction], 1e-6, Side.UPPER)
        below = smallest_epsilon(lower[direction], 1e-6, Side.LOWER)
        assert f"{above:.3f}" == f"{below:.3f}" == printed
        assert below <= above
    answer = privacy(pair, delta=1e-6)
    assert f"{answer.lower:.3f}" == f"{answer.upper:.3f}" == "0.420"


def test_delta_at_an_epsilon() -> None:
    pair = group_privacy_poisson(group_size=3, sampling_prob=0.05, steps=10, noise_multiplier=2.0)
    epsilon = privacy(pair, delta=1e-5).upper
    answer = privacy(pair, epsilon=epsilon)
    assert 0.98e-5 <= answer.lower <= answer.upper
    assert answer.upper <= 1.02e-5


def test_a_group_of_one_is_poisson_sampling() -> None:
    ours = privacy(group_privacy_poisson(group_size=1, sampling_prob=0.1, steps=20, noise_multiplier=1.5), delta=1e-6)
    theirs = privacy(IndependentSteps(noise_multiplier=1.5, sampling_prob=0.1, steps=20), delta=1e-6)
    assert ours.lower <= theirs.upper
    assert theirs.lower <= ours.upper <= ours.lower * 1.001


def test_groups_that_are_always_in_the_batch_are_gaussian() -> None:
    pair = group_privacy_poisson(group_size=4, sampling_prob=1.0, steps=9, noise_multiplier=1.0)
    assert pair.batches_are_public
    assert pair.full_sensitivity == pytest.approx(12.0)


@pytest.mark.parametrize(("size", "p"), [(1, 0.25), (12, 0.125), (40, 0.75)])
def test_binomial_probabilities(size: int, p: float) -> None:
    (step,) = group_privacy_poisson(group_size=size, sampling_prob=p, steps=7, noise_multiplier=1.0).steps
    exact = [comb(size, j) * Fraction(p) ** j * (1 - Fraction(p)) ** (size - j) for j in range(size + 1)]
    assert step.count == 7
    assert step.sensitivities == tuple(range(size + 1))
    for value, truth in zip(step.probabilities, exact, strict=True):
        assert abs(Fraction(value) / truth - 1) <= step.probability_error


@pytest.mark.parametrize(("group", "batch", "total"), [(1, 3, 10), (5, 4, 30), (20, 60, 100), (30, 10, 60)])
def test_hypergeometric_probabilities(group: int, batch: int, total: int) -> None:
    pair = group_privacy_fixed(
        group_size=group, batch_size=batch, num_examples=total, steps=2, noise_multiplier=1.0, displaced_norm=0.5
    )
    (step,) = pair.steps
    most = min(group, batch)
    assert step.sensitivities == tuple(1.5 * j for j in range(most + 1))
    for j, value in enumerate(step.probabilities):
        truth = Fraction(comb(group, j) * comb(total - group, batch - j), comb(total, batch))
        assert abs(Fraction(value) / truth - 1) <= step.probability_error


def test_long_binomials_keep_their_mean_and_stay_short() -> None:
    (step,) = last_iterate(sampling_prob=0.01, steps=1_000_000, noise_multiplier=1.0).steps
    places = np.array(step.sensitivities) * 1000.0
    assert float(np.dot(step.probabilities, places)) == pytest.approx(10_000.0, rel=1e-9)
    assert places.size < 15_000
    assert step.probability_error < 1e-10


def fixed_size_delta(others: list[float], member: float, batch: int, epsilon: float, direction: Direction) -> float:
    """One step with all gradients known: batches of the larger data set against batches without the member."""
    y, step = np.linspace(-14.0, 14.0, 5601, retstep=True)

    def density(examples: list[float]) -> np.ndarray:
        sums = [sum(chosen) for chosen in combinations(examples, batch)]
        return sum(np.exp(-0.5 * (y - s) ** 2) for s in sums) / (len(sums) * np.sqrt(2.0 * np.pi))

    p, q = density([*others, member]), density(others)
    first, second = (p, q) if direction is Direction.REMOVE else (q, p)
    return float(np.sum(np.maximum(first - exp(epsilon) * second, 0.0)) * step)


def test_fixed_batches_cover_all_gradients_of_the_others() -> None:
    """Data sets of at most 6 with gradients in [-1, 1]; with displaced_norm = 0 the same bound would be too small."""
    rng = np.random.default_rng(5)
    violated = False
    for size, batch in ((3, 1), (4, 2), (5, 2), (5, 4)):
        bounds = {}
        for displaced in (1.0, 0.0):
            pair = group_privacy_fixed(
                group_size=1,
                batch_size=batch,
                num_examples=size + 1,
                steps=1,
                noise_multiplier=1.0,
                displaced_norm=displaced,
            )
            bounds[displaced] = accountant("direct").bound(pair, Side.UPPER).profiles
        draws = [rng.uniform(-1.0, 1.0, size).tolist() for _ in range(10)]
        for others in [[-1.0] * size, [0.0] * size, *draws]:
            for direction in Direction:
                for epsilon in (0.0, 0.5, 1.5):
                    truth = fixed_size_delta(others, 1.0, batch, epsilon, direction)
                    assert truth <= bounds[1.0][direction](epsilon) + 1e-12
                    violated |= truth > bounds[0.0][direction](epsilon) * 1.1
                    if others == [0.0] * size:
                        assert truth <= bounds[0.0][direction](epsilon) + 1e-5
    assert violated


def test_zeroing_out_a_member_of_a_fixed_batch_is_not_hypergeometric() -> None:
    """Others with the opposite gradient betray how many of them there are: the sensitivity j would be too small."""
    pair = group_privacy_fixed(
        group_size=1, batch_size=1, num_examples=3, steps=1, noise_multiplier=1.0, displaced_norm=0.0
    )
    claimed = accountant("direct").bound(pair, Side.UPPER).profiles[Direction.REMOVE](2.0)
    y, step = np.linspace(-14.0, 14.0, 5601, retstep=True)
    densities = [np.exp(-0.5 * (y - mean) ** 2) / np.sqrt(2.0 * np.pi) for mean in (-1.0, 0.0, 1.0)]
    p, q = ((2.0 * densities[0] + own) / 3.0 for own in (densities[2], densities[1]))
    assert float(np.sum(np.maximum(p - exp(2.0) * q, 0.0)) * step) > 5.0 * claimed


def test_fields_are_checked() -> None:
    with pytest.raises(InvalidInputError, match="group_size"):
        group_privacy_poisson(group_size=0, sampling_prob=0.5, steps=1, noise_multiplier=1.0)
    with pytest.raises(InvalidInputError, match="'group_size' argument must be a whole number"):
        group_privacy_poisson(group_size=1.5, sampling_prob=0.1, steps=3, noise_multiplier=1.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="sampling_prob"):
        last_iterate(sampling_prob=0.0, steps=3, noise_multiplier=1.0)
    with pytest.raises(InvalidInputError, match="steps"):
        last_iterate(sampling_prob=0.5, steps=0, noise_multiplier=1.0)
    with pytest.raises(InvalidInputError, match="batch_size"):
        group_privacy_fixed(group_size=2, batch_size=9, num_examples=10, steps=1, noise_multiplier=1.0)
    with pytest.raises(InvalidInputError, match="displaced_norm"):
        group_privacy_fixed(
            group_size=2, batch_size=2, num_examples=10, steps=1, noise_multiplier=1.0, displaced_norm=2.0
        )


def test_what_is_no_pair_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'pair' argument must be a dominating pair"):
        privacy("a pair", delta=1e-6)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="'slack' field must be from 0 to 1"):
        MixtureSteps(noise_multiplier=1.0, steps=(MixtureStep((1.0,), (1.0,)),), slack=-1.0)


def test_no_answer_is_said_in_words() -> None:
    pair = last_iterate(sampling_prob=0.5, steps=3, noise_multiplier=1e-3)
    with pytest.raises(CannotCertifyError, match="more noise"):
        privacy(pair, delta=1e-6)
    with pytest.raises(InvalidInputError, match="Exactly one"):
        privacy(pair)
    over = Deadline(seconds=0.0)
    amplified = group_privacy_poisson(group_size=3, sampling_prob=0.5, steps=10**6, noise_multiplier=0.05)
    with pytest.raises(BudgetExceededError):
        privacy(amplified, delta=1e-6, deadline=over)


def test_a_mechanism_is_no_pair() -> None:
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=3), noise_multiplier=1.0)
    with pytest.raises(
        InvalidInputError, match=r"must be a dominating pair, .* instead; hs\.certify takes mechanisms\.$"
    ):
        privacy(run, delta=1e-5)  # type: ignore[arg-type]
