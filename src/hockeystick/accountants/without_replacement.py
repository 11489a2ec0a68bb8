"""Batches of exactly one size: the smaller of two upper bounds at every epsilon, and explicit datasets from below.

* Every step by itself, from the distances of what may be in the batch (advanced joint convexity): at every ratio the
  adversary may have another dataset. Close for few steps.
* The run as a whole, for functions whose second derivative does not fall, among which one dataset is the worst in every
  step. Close for many steps; for batches that are drawn afresh and examples that are replaced, or zeroed out.

From below, the others have one gradient, opposite to the example's or none, in every step.

Proof: docs/theory/fixed-size.md. Errs to the asked side.
"""

from collections.abc import Mapping, Sequence

from hockeystick.accountants import direct
from hockeystick.accountants.base import Accountant
from hockeystick.bounds import Profile, best_of, when_asked
from hockeystick.laws.law import Law
from hockeystick.laws.operations import power
from hockeystick.laws.profile import law_profiles
from hockeystick.pairs.fixed_size import FixedSizeSteps
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side


def _poisson(pair: FixedSizeSteps, distance: float, cohorts: int) -> IndependentSteps:
    """Cohorts in which the example moves the sum by ``distance``, or else it stays: Poisson sampling."""
    return IndependentSteps(
        noise_multiplier=pair.cohort_noise / distance, sampling_prob=pair.sampling_prob, steps=cohorts
    )


def _revealing_law(pair: FixedSizeSteps, settings: Settings) -> Law:
    from hockeystick.laws.without_replacement import Distances, revealing_step

    one, two = 1.0 / pair.cohort_noise, 2.0 / pair.cohort_noise
    replaced = dict.fromkeys(Direction, Distances(two, two))
    ghost = {Direction.REMOVE: Distances(one, two), Direction.ADD: Distances(one, one)}
    step = revealing_step(pair.sampling_prob, replaced if pair.replaced else ghost, settings.resolution)
    return power(step, pair.most_cohorts, settings.resolution, tick=settings.deadline.tick)


def _laws(pair: FixedSizeSteps, side: Side, settings: Settings) -> Sequence[Law]:
    if side is Side.UPPER:
        return [_revealing_law(pair, settings)]
    attained = direct.ACCOUNTANT.laws[IndependentSteps]
    if pair.replaced:
        return list(attained(_poisson(pair, 2.0, pair.whole_cohorts), side, settings))
    return [_displaced_law(pair, settings), *attained(_poisson(pair, 1.0, pair.whole_cohorts), side, settings)]


def _displaced_law(pair: FixedSizeSteps, settings: Settings) -> Law:
    """The others have the gradient opposite to the example's."""
    from hockeystick.laws.without_replacement import displaced_step

    step = displaced_step(pair.sampling_prob, pair.cohort_noise, settings.resolution)
    return power(step, pair.whole_cohorts, settings.resolution, tick=settings.deadline.tick)


def _analyse(pair: FixedSizeSteps, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    steps = direct.ACCOUNTANT.analyses[IndependentSteps]
    if side is Side.LOWER:
        # Both datasets may be the one with the example, so the directions of Poisson sampling change places.
        poisson = steps(_poisson(pair, 2.0 if pair.replaced else 1.0, pair.whole_cohorts), side, settings)
        worse = best_of(max, *poisson.values())
        if pair.replaced:
            return dict.fromkeys(Direction, worse)
        displaced = law_profiles(_displaced_law(pair, settings))
        return {direction: best_of(max, worse, displaced[direction]) for direction in Direction}
    revealed = law_profiles(_revealing_law(pair, settings))
    if pair.cohort_steps > 1 or pair.sampling_prob == 1.0:
        return revealed
    averaged = _averaged(pair, settings)
    return {direction: best_of(min, revealed[direction], averaged) for direction in Direction}


def _averaged(pair: FixedSizeSteps, settings: Settings) -> Profile:
    """The bound on the whole run, made when it is first asked."""
    smallest = settings.resolution.smallest_delta
    worst = _poisson(pair, 2.0, pair.steps)

    def profile() -> Profile:
        from hockeystick.laws.without_replacement import averaged_profile

        poisson = direct.ACCOUNTANT.analyses[IndependentSteps](worst, Side.UPPER, settings)

        def deltas(epsilons: Sequence[float], direction: Direction) -> Sequence[float]:
            return [poisson[direction](epsilon) for epsilon in epsilons]

        return averaged_profile(deltas, worst.sampling_prob, 1.0 / worst.noise_multiplier, worst.steps, smallest)

    return when_asked(profile)


def _example() -> FixedSizeSteps:
    return FixedSizeSteps(noise_multiplier=2.0, sampling_prob=0.5, steps=2)


ACCOUNTANT = Accountant(
    name="without_replacement",
    summary="batches of exactly one size, whose other examples make room for the one at stake",
    sides=(Side.UPPER, Side.LOWER),
    errs=(
        "to the asked side: steps are bounded by advanced joint convexity or the run by its worst dataset for smoother "
        "functions, and lower bounds are of explicit datasets"
    ),
    reference="docs/theory/fixed-size.md; balle-2018, Theorems 2 and 11",
    analyses={FixedSizeSteps: _analyse},
    laws={FixedSizeSteps: _laws},
    cost=lambda pair: 1.0,
    example=_example,
)
