"""Runs for one side each, where no proposal bounds both: which of them goes on, and with how much of the work."""

from math import inf

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.laws.profile import smallest_epsilon
from hockeystick.monte_carlo import estimation
from hockeystick.monte_carlo.aims import Aim
from hockeystick.monte_carlo.estimation import Estimation
from hockeystick.monte_carlo.runs import seconds_per_sample
from hockeystick.monte_carlo.statistics import Tally
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Direction, Side


def pair_of(steps: int, prob: float, sigma: float) -> SubsetMixture:
    """Columns that never end and fall slowly."""
    matrix = ToeplitzMatrix((1.0 + np.arange(steps)) ** -0.7, steps)
    return SubsetMixture(noise_multiplier=sigma, matrix=matrix, sampling_prob=prob)


@pytest.mark.parametrize("work", [inf, 0.3])
def test_runs_for_one_side_each_go_on_in_turns(work: float) -> None:
    """The side whose bound is farther from its estimate for its work; if work never ends, until both are close."""
    options = hs.MonteCarlo(seed=3, failure_probability=1e-6, ratio=0.5)
    question = hs.Question(epsilon=0.5)
    sampling = Estimation(pair_of(20, 0.05, 3.0), question, options, hs.Deadline(), work=work)
    aim = sampling.aim(Direction.REMOVE)
    sampling.pursue_each(aim, tuple(Side), 1.0)
    sides = {tally.run.nodes[0].side: tally for tally in sampling.tallies}
    assert set(sides) == set(Side)
    if work == inf:
        assert all(sampling.tight(aim, tally) for tally in sides.values())
    else:
        costs = [spent_by(aim, tally) / tally.samples for tally in sampling.tallies]
        assert sampling.spent <= work + 2.0 * max(tally.run.chunk_size for tally in sampling.tallies) * sum(costs)
        upper, lower = (
            (sampling.gap(aim, sides[side]) - 1.0) / spent_by(aim, sides[side]) for side in (Side.UPPER, Side.LOWER)
        )
        assert 0.3 <= upper / lower <= 3.0
    assert sampling.spent == pytest.approx(sum(spent_by(aim, tally) for tally in sampling.tallies))


def spent_by(aim: Aim, tally: Tally) -> float:
    """Standard seconds of a run: of its samples, and of their values at its nodes."""
    choice = next(choice for choice in aim.choices if choice.proposal.name == tally.run.proposal)
    epsilons = [node.epsilon for node in tally.run.nodes]
    return tally.samples * seconds_per_sample(choice.proposal, epsilons, choice.pilot.losses)


@pytest.mark.parametrize("work", [0.2, 0.8])
def test_sides_that_take_turns_end_soon_after_the_work(work: float) -> None:
    """However close the bounds have to be: a first round is a small part of the work, each later one .4 of its run."""
    options = hs.MonteCarlo(seed=3, failure_probability=1e-6, ratio=1e-4)
    sampling = Estimation(pair_of(20, 0.05, 3.0), hs.Question(epsilon=0.5), options, hs.Deadline(), work=work)
    aim = sampling.aim(Direction.REMOVE)
    sampling.pursue_each(aim, tuple(Side), 1.0)
    chunks = [spent_by(aim, tally) / tally.chunks for tally in sampling.tallies]
    assert len(chunks) == len(Side)
    assert sampling.spent <= 1.4 * work + 2.0 * sum(chunks)


def test_a_side_without_a_bound_leaves_the_other_its_half_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta is so small that no lower bound is found."""
    monkeypatch.setattr(estimation, "LARGEST_FIRST", 1)  # first rounds are small parts of the work, as in long runs
    options = hs.MonteCarlo(seed=3, failure_probability=1e-6, ratio=0.5)
    sampling = Estimation(pair_of(13, 0.005, 6.0), hs.Question(epsilon=0.3), options, hs.Deadline(), work=1.0)
    aim = sampling.aim(Direction.REMOVE)
    sampling.pursue_each(aim, tuple(Side), 1.0)
    sides = {tally.run.nodes[0].side: tally for tally in sampling.tallies}
    assert sampling.gap(aim, sides[Side.LOWER]) == inf
    assert sampling.gap(aim, sides[Side.UPPER]) < inf
    assert spent_by(aim, sides[Side.UPPER]) >= 0.3
    assert sampling.spent <= 1.2  # the last round ends later


def test_what_the_other_direction_needs_falls_as_the_upper_bound_is_farther() -> None:
    """Nothing is kept for it as long as nothing is known; near where it was aimed it has to be told from the goal."""
    options = hs.MonteCarlo(seed=3, failure_probability=1e-6)
    sampling = Estimation(pair_of(30, 0.2, 20.0), hs.Question(delta=1e-3), options, hs.Deadline(), work=0.3)
    main, other = sampling.aims()
    assert main.direction is Direction.REMOVE
    assert sampling.needed(other) == 0.0
    sampling.pursue_each(main, (Side.UPPER,), 1.0)
    far = sampling.needed(other)
    sampling.work = 1.5
    sampling.tallies.clear()
    sampling.pursue_each(main, (Side.UPPER,), 1.0)
    assert 0.0 < far < sampling.needed(other)


@pytest.mark.parametrize("work", [0.5, 2.0])
def test_the_other_direction_is_left_what_it_needs(work: float) -> None:
    options = hs.MonteCarlo(seed=3, failure_probability=1e-6)
    sampling = Estimation(pair_of(30, 0.2, 20.0), hs.Question(delta=1e-3), options, hs.Deadline(), work=work)
    sampling.sample()
    upper = sampling.profiles(Side.UPPER)
    end = max(epsilon for tally in sampling.tallies for epsilon in tally.bound(Side.UPPER))
    reached = {direction: smallest_epsilon(profile, 1e-3, Side.UPPER) for direction, profile in upper.items()}
    assert reached[Direction.ADD] <= reached[Direction.REMOVE] < end
