"""Direct accounting by likelihood-ratio laws: two-sided and numerically near exact.

k-of-t allocation is bounded from above by splitting the steps at random into k blocks and visiting each block once
(feldman-shenfeld-2025, Lemma 3.11, with blocks that differ by one step when k does not divide t), and from below by
1-of-t (more visits are worse, Lemma 4.2). Correlated noise whose columns do not overlap within the steps of one example
is a composition again: see :mod:`hockeystick.windows.orthogonal_columns`.

Upper laws are spreads of the true likelihood ratio and lower laws contractions, so both directions err on the asked
side (docs/theory/laws.md). Cost: O(log(steps)) projections of O(nodes^2) each. Equal Poisson steps, and epochs
with one visit of each example, are bounded by contour integrals and transforms where those answer
(docs/theory/contours.md), in tens of milliseconds; a single step has a closed form.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from math import log2, sqrt
from typing import Any, NamedTuple

from hockeystick.accountants import cut_batches, deletion
from hockeystick.accountants.base import Accountant, Analysis, LawAnalysis
from hockeystick.accountants.step_laws import step_law
from hockeystick.bounds import Profile
from hockeystick.laws.allocated_epochs import allocated_epochs
from hockeystick.laws.allocated_phases import AllocatedPhases
from hockeystick.laws.answers import Sides
from hockeystick.laws.comonotone import comonotone
from hockeystick.laws.contours import Profiles, profiles_of_steps
from hockeystick.laws.grid import Resolution
from hockeystick.laws.hidden_visits import HiddenVisits
from hockeystick.laws.law import FAR, MAX_RATIO, ORDINARY, Law, Units, point_mass_at_one
from hockeystick.laws.operations import average, compose, power, thin, visits, weighted
from hockeystick.laws.profile import law_delta, law_profiles
from hockeystick.laws.rare_steps import rare_steps
from hockeystick.laws.single_step import single_step
from hockeystick.pairs.averaged_steps import AveragedSteps
from hockeystick.pairs.base import DominatingPair
from hockeystick.pairs.binomial_steps import binomial_step
from hockeystick.pairs.independent_steps import IndependentSteps
from hockeystick.pairs.mixture_steps import MixtureSteps
from hockeystick.pairs.occupancy import PlacedCopies
from hockeystick.pairs.secret_groups import SecretGroups
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.pairs.truncated_steps import TruncatedSteps
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

CUT_SHARE = 1e-4
"""Share of the smallest delta: where ordinary units cut off more, laws are kept in far ones."""
FAR_BELOW = 1e-3
"""Deltas below this share of the smallest that matters are bounded roughly, by moments, where no contour answers."""
BY_TRANSFORMS = 0.1
"""About the seconds of bounds by transforms, the few among them that need laws included."""
LOOK = 8
"""Nodes for each unit of score of the law that is looked at to see what ordinary units cut off."""


def independent_steps_law(pair: IndependentSteps, side: Side, settings: Settings, units: Units = ORDINARY) -> Law:
    """The law of Poisson-subsampled steps (chua-2024, section 3)."""
    from hockeystick.laws.discretise import gaussian_law

    step = thin(gaussian_law(pair.noise_multiplier, 1.0, side, settings.resolution, units), pair.sampling_prob)
    return power(step, pair.steps, settings.resolution, tick=settings.deadline.tick)


def law_of_blocks(pair: AveragedSteps, of_block: Callable[[int], Law], settings: Settings) -> Law:
    """The law of all epochs from that of a block of so many steps, each block visited once."""
    tick = settings.deadline.tick
    return visits(of_block, pair.bins, pair.participations, pair.epochs, settings.resolution, tick=tick)


def averaged_steps_law(pair: AveragedSteps, side: Side, settings: Settings, units: Units) -> Law:
    """The law of random allocation; for k-of-t a bound on the asked side, exact for k = 1."""
    resolution, tick = settings.resolution, settings.deadline.tick
    step, known = _visited_step(pair.visit_noise, side, resolution, units)
    if side is Side.LOWER:
        return power(average(step, pair.bins, resolution, tick=tick, known=known), pair.epochs, resolution, tick=tick)
    return law_of_blocks(pair, lambda size: average(step, size, resolution, tick=tick, known=known), settings)


@lru_cache(maxsize=32)
def _visited_step(
    noise_multiplier: float, side: Side, resolution: Resolution, units: Units
) -> tuple[Law, dict[int, Law]]:
    """The law of a step that the example visits, and its averages, which all numbers of bins share."""
    from hockeystick.laws.discretise import gaussian_law

    return gaussian_law(noise_multiplier, 1.0, side, resolution, units), {}


def secret_groups_law(pair: SecretGroups, side: Side, settings: Settings, units: Units) -> Law:
    """The law of cyclic Poisson sampling with secret groups: the mean over the groups of their compositions."""
    from hockeystick.laws.discretise import gaussian_law

    resolution, tick = settings.resolution, settings.deadline.tick
    step = thin(gaussian_law(pair.noise_multiplier, 1.0, side, resolution, units), pair.sampling_prob)
    opportunities, longer = divmod(pair.steps, pair.groups)
    shorter = pair.groups - longer
    rest = average(power(step, opportunities, resolution, tick=tick), shorter, resolution, tick=tick)
    if not longer:
        return rest
    first = average(power(step, opportunities + 1, resolution, tick=tick), longer, resolution, tick=tick)
    return weighted(first, longer, rest, shorter, resolution, tick=tick)


def mixture_steps_law(pair: MixtureSteps, side: Side, settings: Settings) -> Law:
    """The law of independent steps that are mixtures of Gaussians; equal steps are powered (subsets/mixtures.md)."""
    resolution, tick = settings.resolution, settings.deadline.tick
    whole: Law | None = None
    # Sensitivities that are too long by rounding are as short as the mechanism's beside so much more noise.
    noise = pair.noise_multiplier * (1.0 if side is Side.UPPER else 1.0 + pair.excess)
    for step, count in pair.distinct_steps.items():
        law = step_law(step, noise, side, resolution)
        part = power(law, count, resolution, tick=tick)
        whole = part if whole is None else compose(whole, part, resolution, tick=tick)
    return point_mass_at_one(side) if whole is None else whole


def placed_copies_law(pair: PlacedCopies, side: Side, settings: Settings) -> Law:
    """An upper law of several examples in bins of their own (docs/theory/units.md).

    Given which of them share a bin, the bins are cut at random in blocks, one for each bin that is used, and the cut is
    revealed. The patterns are hidden: the ratios given each of them are added up as if they were large together.
    """
    from hockeystick.laws.discretise import gaussian_law

    resolution, tick = settings.resolution, settings.deadline.tick
    blocks: dict[tuple[int, int], Law] = {}

    def visited(examples: int, size: int) -> Law:
        """The law of a block of so many bins, one of which has these examples; each is made once."""
        if (examples, size) not in blocks:
            if pair.sampling_prob == 1.0:
                law = gaussian_law(pair.noise_multiplier / sqrt(pair.replays), float(examples), side, resolution)
            else:
                step = binomial_step(examples, pair.sampling_prob, 1.0, 1)
                law = power(
                    step_law(step, pair.noise_multiplier, side, resolution), pair.replays, resolution, tick=tick
                )
            blocks[examples, size] = average(law, size, resolution, tick=tick)
        return blocks[examples, size]

    laws = []
    for pattern in pair.patterns:
        size, longer = divmod(pair.bins, len(pattern))
        sizes = Counter((examples, size + (place < longer)) for place, examples in enumerate(reversed(pattern)))
        law = point_mass_at_one(side)
        for (examples, length), count in sizes.items():
            part = power(visited(examples, length), count, resolution, tick=tick)
            law = compose(law, part, resolution, tick=tick)
        laws.append(law)
    epoch = comonotone(laws, list(pair.patterns.values()), resolution, tick=tick)
    return power(epoch, pair.epochs, resolution, tick=tick)


def _in_reach(laws_of: Callable[[Any, Side, Settings, Units], Sequence[Law]]) -> LawAnalysis:
    """The laws in ordinary units, or in far ones where ordinary ones cut off what the smallest delta depends on.

    Both are laws of the asked side, so the choice changes nothing but their accuracy.
    """

    def laws(pair: Any, side: Side, settings: Settings) -> Sequence[Law]:
        smallest = settings.resolution.smallest_delta
        look = settings if side is Side.UPPER else replace(settings, resolution=Resolution(LOOK, smallest))
        ordinary = laws_of(pair, Side.UPPER, look, ORDINARY)
        if any(_cut_off(law) > CUT_SHARE * smallest for law in ordinary):
            return laws_of(pair, side, settings, FAR)
        return ordinary if side is Side.UPPER else laws_of(pair, side, settings, ORDINARY)

    return laws


def _cut_off(law: Law) -> float:
    """The P-mass above the largest ratio of ordinary units, and the Q-mass below one over it."""
    return law.p_inf + float(law.mass[law.support * MAX_RATIO < 1.0].sum())


def _alone_in_reach(law_of: Callable[[Any, Side, Settings, Units], Law]) -> LawAnalysis:
    """The analysis of pairs with one law, in the units that serve it."""
    return _in_reach(lambda pair, side, settings, units: [law_of(pair, side, settings, units)])


def _alone(law_of: Callable[[Any, Side, Settings], Law]) -> LawAnalysis:
    """The analysis of pairs with one law."""
    return lambda pair, side, settings: [law_of(pair, side, settings)]


def _steps_profiles(pair: IndependentSteps, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    """Contour integrals where they answer, and the law, which is made when it is first asked, where they do not."""

    @cache
    def law() -> Law:
        return _steps_law(pair, side, settings)[0]

    if pair.sampling_prob == 1.0:
        return law_profiles(law())
    settings.deadline.tick()
    if pair.steps == 1:
        return _single_profiles(pair, law, side, settings.resolution.smallest_delta)
    profiles = profiles_of_steps(pair.sampling_prob, pair.noise_multiplier, pair.steps)

    def told(smallest: float, compared: bool) -> Told:
        rare = rare_steps(pair.sampling_prob, pair.noise_multiplier, pair.steps, smallest, compared=compared)
        return lambda epsilon, direction: profiles.sides(epsilon, direction) or rare.sides(epsilon, direction)

    rough = Rough(profiles.by_moments, profiles.at_most)
    hidden = HiddenVisits(pair.sampling_prob, pair.steps, 1.0 / pair.noise_multiplier)
    smallest = settings.resolution.smallest_delta
    return _by_transforms(told, rough, law, side, smallest, profiles.foresee, hidden)


def _single_profiles(
    pair: IndependentSteps, law: Callable[[], Law], side: Side, smallest_delta: float
) -> Mapping[Direction, Profile]:
    """The closed form of a single step, which answers everywhere."""
    sides = partial(single_step, pair.sampling_prob, pair.noise_multiplier)

    def most(epsilon: float, direction: Direction) -> float:
        return sides(epsilon, direction).upper

    hidden = HiddenVisits(pair.sampling_prob, 1, 1.0 / pair.noise_multiplier)
    return _by_transforms(
        lambda smallest, compared: sides, Rough(most, most), law, side, smallest_delta, _nothing, hidden
    )


def by_contours(
    profiles: Profiles, law: Callable[[], Law], side: Side, smallest_delta: float
) -> Mapping[Direction, Profile]:
    """Profiles by contour integrals, and by a law of the same side and steps where these do not answer."""
    rough = Rough(profiles.by_moments, profiles.at_most)
    return _by_transforms(lambda smallest, compared: profiles.sides, rough, law, side, smallest_delta, profiles.foresee)


def by_phases(
    phases: AllocatedPhases, law: Callable[[], Law], side: Side, smallest_delta: float
) -> Mapping[Direction, Profile]:
    """Profiles by the transform of different epochs, and by a law of the same side and epochs where it does not do."""

    def told(smallest: float, compared: bool) -> Told:
        return partial(phases.sides, compared=smallest if compared else None)

    return _by_transforms(told, Rough(phases.by_moments, phases.by_moments), law, side, smallest_delta, _nothing)


def _nothing(epsilons: Sequence[float], direction: Direction) -> None:
    """What is done for many epsilons at once where each of them is answered at once."""


Told = Callable[[float, Direction], Sides | None]
"""Both sides of delta at an epsilon in a direction, or None where they are not known well enough."""


class Rough(NamedTuple):
    """Upper bounds on delta at an epsilon in a direction: a quick one, and the least where transforms do not answer."""

    quick: Callable[[float, Direction], float]
    least: Callable[[float, Direction], float]


@dataclass(frozen=True, eq=False)
class Transforms:
    """A profile by transforms; where these do not answer, by a rough bound if delta does not matter, or by a law.

    Attributes:
        told: what transforms say, for the smallest delta that matters, and for comparisons alone or not.
        rough: what is asked in their place.
        law: of this side; made when it is first asked.
        smallest: deltas far below it do not matter.
        visits: what the profile is about; None for steps that differ.
        together: finds what will be told of many epsilons, where that saves time.
        compared: whether all deltas are only compared with the smallest.
    """

    told: Callable[[float, bool], Told]
    rough: Rough
    law: Callable[[], Law]
    side: Side
    direction: Direction
    smallest: float
    visits: HiddenVisits | None
    together: Callable[[Sequence[float], Direction], object]
    compared: bool = False

    def __call__(self, epsilon: float) -> float:
        least = FAR_BELOW * self.smallest
        if self.compared and (quick := self.rough.quick(epsilon, self.direction)) <= self._overshadowed(epsilon, least):
            return self._of(Sides(0.0, quick))
        sides = self.told(self.smallest, self.compared)(epsilon, self.direction)
        if sides is None:
            rough = self.rough.least(epsilon, self.direction)
            if rough >= least:
                return law_delta(self.law(), epsilon, self.direction)
            sides = Sides(0.0, rough)
        return self._of(sides)

    def _overshadowed(self, epsilon: float, least: float) -> float:
        """Up to where this direction does not count where the larger of both is compared with a delta."""
        if self.direction is Direction.REMOVE:
            return least
        other = self.told(self.smallest, self.compared)(epsilon, Direction.REMOVE)
        return least if other is None else max(other.lower, least)

    def each(self, epsilons: Sequence[float]) -> list[float]:
        """What is said of each of these epsilons, many of them at once."""
        self.together(epsilons, self.direction)
        return [self(epsilon) for epsilon in epsilons]

    def _of(self, sides: Sides) -> float:
        return sides.upper if self.side is Side.UPPER else sides.lower

    def about(self, delta: float) -> Profile:
        """The profile for comparisons with this delta of the larger direction."""
        return replace(self, smallest=max(delta, self.smallest), compared=True)

    def expected(self, delta: float) -> float:
        """About the epsilon at which the profile reaches delta; 0 where nothing is known before it is computed."""
        return 0.0 if self.visits is None else self.visits.epsilon(delta)


def _by_transforms(
    told: Callable[[float, bool], Told],
    rough: Rough,
    law: Callable[[], Law],
    side: Side,
    smallest_delta: float,
    together: Callable[[Sequence[float], Direction], object],
    visits: HiddenVisits | None = None,
) -> Mapping[Direction, Profile]:
    """The :class:`Transforms` of both directions."""
    return {
        direction: Transforms(told, rough, law, side, direction, smallest_delta, visits, together)
        for direction in Direction
    }


def _epochs_profiles(pair: AveragedSteps, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    """Epochs of one visit among many bins by transforms where these are close, and the law, as above, elsewhere."""

    @cache
    def law() -> Law:
        return _epochs_law(pair, side, settings)[0]

    if pair.participations > 1 or pair.batches_are_public:
        return law_profiles(law())
    settings.deadline.tick()
    smallest = settings.resolution.smallest_delta
    epochs = partial(allocated_epochs, pair.visit_noise, pair.bins, pair.epochs)
    moments = epochs(smallest).moments.delta

    def told(smallest: float, compared: bool) -> Told:
        return partial(epochs(smallest).sides, compared=compared)

    hidden = HiddenVisits(1.0 / pair.bins, pair.bins * pair.epochs, 1.0 / pair.visit_noise)
    together = epochs(smallest).foresee
    return _by_transforms(told, Rough(moments, moments), law, side, smallest, together, hidden)


def _worst_of(laws: LawAnalysis) -> Analysis:
    """The largest profile of any of the laws."""
    return lambda pair, side, settings: law_profiles(*laws(pair, side, settings))


_steps_law = _alone_in_reach(independent_steps_law)
_epochs_law = _alone_in_reach(averaged_steps_law)


def _group_laws(pair: SubsetMixture, side: Side, settings: Settings, units: Units) -> Sequence[Law]:
    """One law for each group of steps; only where no column of a group overlaps another."""
    from hockeystick.windows.orthogonal_columns import group_laws, norms_by_group

    error = pair.sensitivity_error if side is Side.UPPER else -pair.sensitivity_error
    norms = norms_by_group(pair.matrix, pair.groups) * (1.0 + error)
    resolution, deadline = settings.resolution, settings.deadline
    return group_laws(norms, pair.sampling_prob, pair.noise_multiplier, side, resolution, deadline, units)


_subset_laws = _in_reach(_group_laws)


def _single_laws(pair: SubsetMixture, side: Side, settings: Settings) -> Sequence[Law]:
    """The example may be in any group: each is a lower bound, but an upper bound only where all groups are alike."""
    laws = _subset_laws(pair, side, settings)
    return laws if side is Side.LOWER or len(laws) == 1 else ()


def _refusal(pair: DominatingPair, side: Side) -> str | None:
    """Why laws do not bound a pair from this side, or None."""
    if isinstance(pair, PlacedCopies) and side is Side.LOWER:
        return "it reveals which examples share a bin"
    if not isinstance(pair, SubsetMixture):
        return None
    if pair.matrix.bands > pair.groups:
        return (
            f"the columns of one example's steps overlap, as C has {pair.matrix.bands} bands for {pair.groups} "
            f"group(s) of steps"
        )
    return None


def _cost(pair: DominatingPair) -> float:
    """Standard seconds of one side: a law takes about a projection for each binary digit of its number of steps."""
    if isinstance(pair, PlacedCopies):
        return 0.25 * len(pair.patterns)
    if isinstance(pair, IndependentSteps) or (isinstance(pair, AveragedSteps) and pair.participations == 1):
        return BY_TRANSFORMS
    laws = len(getattr(pair, "distinct_steps", (None,)))
    return 0.03 * laws * (1.0 + 1.5 * log2(max(pair.full_sensitivity, 1.0) ** 2 * getattr(pair, "bins", 1)))


ACCOUNTANT = Accountant(
    name="direct",
    summary="likelihood-ratio laws, near exact for Poisson, 1-of-t allocation and columns that do not overlap",
    sides=(Side.UPPER, Side.LOWER),
    errs=(
        "to the asked side: upper laws are mean-preserving spreads of the likelihood ratio, lower laws contractions; "
        "integrals charge their truncation, their step and every rounding"
    ),
    reference=(
        "docs/theory/laws.md and subsets/reductions.md; feldman-shenfeld-2025, Lemmas 3.1, 3.11 and 4.2; "
        "chua-2024, section 3"
    ),
    analyses={
        IndependentSteps: _steps_profiles,
        AveragedSteps: _epochs_profiles,
        MixtureSteps: _worst_of(_alone(mixture_steps_law)),
        PlacedCopies: _worst_of(_alone(placed_copies_law)),
        SecretGroups: _worst_of(_alone_in_reach(secret_groups_law)),
        SubsetMixture: _worst_of(_subset_laws),
        TruncatedSteps: cut_batches.profiles,
        **deletion.analyses(_worst_of(_subset_laws)),
    },
    laws={
        IndependentSteps: _steps_law,
        AveragedSteps: _epochs_law,
        MixtureSteps: _alone(mixture_steps_law),
        SecretGroups: _alone_in_reach(secret_groups_law),
        SubsetMixture: _single_laws,
        TruncatedSteps: cut_batches.laws,
        **deletion.laws(_single_laws),
    },
    refusal=deletion.refusal(_refusal),
    cost=deletion.cost(_cost),
)
