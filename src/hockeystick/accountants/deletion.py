"""b-min-sep subsampling is Poisson subsampling with participations left out, so bounds on the latter are bounds on it.

An example flips a coin of chance q at every step, and takes part when it shows 1 and the example is available. With
C >= 0 more participations are never more private, so Poisson sampling at the chance of an available example, not at the
long-run rate, bounds the profile from above: for any C, warm or cold, with one example or several of one user. Where
batches are cut, a run differs from one without a cap only if the example is taken at a step that is full without it.

Proofs: docs/theory/monte-carlo/renewal.md, "Deletion" and "Cut batches". Errs upward. Nothing follows from below.
"""

from collections.abc import Callable, Mapping, Sequence
from math import exp
from typing import Any

from hockeystick.bounds import Profile
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import Law
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.repeated_columns import RepeatedSubsets, repeated
from hockeystick.pairs.subset_mixture import SubsetMixture
from hockeystick.pairs.truncated_renewal import LARGEST_EXPONENT, TruncatedRenewal, cuts
from hockeystick.pairs.worst_of import WorstOf
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

Renewal = RenewalMixture | TruncatedRenewal
Profiles = Mapping[Direction, Profile]


def with_most_examples(pair: Renewal | WorstOf) -> Renewal | None:
    """The pair itself, or of users with at most k examples that with k, whose coins cover fewer; None for others.

    >>> from hockeystick.strategies import Identity
    >>> part = RenewalMixture(
    ...     noise_multiplier=1.0, matrix=Identity().matrix(5), min_sep=2, participation_prob=0.1, warm_start=False
    ... )
    >>> poisson_above(with_most_examples(WorstOf(noise_multiplier=1.0, parts=(part,)))).sampling_prob
    0.1
    """
    if not isinstance(pair, WorstOf):
        return pair
    parts = [part for part in pair.parts if isinstance(part, RenewalMixture)]
    if len(parts) < len(pair.parts):
        return None
    assert len({(part.matrix.digest, part.participation_prob) for part in parts}) == 1  # they differ in the examples
    return max(parts, key=lambda part: part.examples_per_user)


def poisson_above(pair: Renewal) -> SubsetMixture:
    """Poisson sampling with a coin of chance q for every example and step, whatever the example has to wait for."""
    examples = pair.examples_per_user if isinstance(pair, RenewalMixture) else 1
    return RepeatedSubsets(
        noise_multiplier=pair.noise_multiplier,
        matrix=pair.matrix if examples == 1 else repeated(pair.matrix, examples),
        sampling_prob=pair.participation_prob,
        attained=False,
    )


def with_cuts(profiles: Profiles, pair: Renewal) -> Profiles:
    """Upper profiles of the run without a cap, made to cover the run with it.

    Removing an example costs twice the chance of a cut. Adding one costs this chance once, and, whichever is less,
    ``e^epsilon`` times it again or the second number of :func:`cuts`.
    """
    if not isinstance(pair, TruncatedRenewal):
        return profiles
    chance, expected = cuts(pair)
    again = {
        Direction.REMOVE: lambda epsilon: chance,
        Direction.ADD: lambda epsilon: min(exp(min(epsilon, LARGEST_EXPONENT)) * chance, expected),
    }

    def covering(profile: Profile, cost: Profile) -> Profile:
        return lambda epsilon: min(profile(epsilon) + chance + cost(epsilon), 1.0)

    return {direction: covering(profile, again[direction]) for direction, profile in profiles.items()}


def check_cuts(pair: Renewal, settings: Settings) -> None:
    """Refuse to look for an epsilon where cut batches alone cost more than the delta that is asked for.

    Removing an example costs twice the chance of a cut at every epsilon (:func:`with_cuts`).

    Raises: UnsupportedError.
    """
    delta = None if settings.question is None else settings.question.delta
    if delta is None or not isinstance(pair, TruncatedRenewal):
        return
    chance = cuts(pair)[0]
    if 2.0 * chance > delta:
        raise UnsupportedError(
            f"Twice the probability that the example is in a batch that is cut, {2.0 * chance:.3g}, is above delta = "
            f"{delta:g}."
        )


def analyses(of_subsets: Callable[[SubsetMixture, Side, Settings], Profiles]) -> dict[type, Any]:
    """The analyses of b-min-sep that an upper analysis of subsets of steps gives, by type of pair."""

    def analyse(pair: Renewal | WorstOf, side: Side, settings: Settings) -> Profiles:
        most = with_most_examples(pair)
        assert most is not None  # refused otherwise
        check_cuts(most, settings)
        return with_cuts(of_subsets(poisson_above(most), side, settings), most)

    return dict.fromkeys((RenewalMixture, TruncatedRenewal, WorstOf), analyse)


def laws(of_subsets: Callable[[SubsetMixture, Side, Settings], Sequence[Law]]) -> dict[type, Any]:
    """The laws of b-min-sep that upper laws of subsets of steps give, by type of pair; none where batches are cut."""

    def laws_of(pair: RenewalMixture | WorstOf, side: Side, settings: Settings) -> Sequence[Law]:
        most = with_most_examples(pair)
        return [] if most is None else of_subsets(poisson_above(most), side, settings)

    return dict.fromkeys((RenewalMixture, WorstOf), laws_of)


def refusal(of_subsets: Callable[[SubsetMixture, Side], str | None]) -> Callable[[Any, Side], str | None]:
    """The refusal of an accountant of subsets of steps that analyses b-min-sep too."""

    def why_not(pair: Any, side: Side) -> str | None:
        if not isinstance(pair, RenewalMixture | TruncatedRenewal | WorstOf):
            return of_subsets(pair, side)
        most = with_most_examples(pair)
        if most is None:
            return "the worst of several pairs is analysed for b-min-sep subsampling alone"
        if side is Side.LOWER:
            return "Poisson sampling bounds b-min-sep subsampling from above only"
        return of_subsets(poisson_above(most), side)

    return why_not


def cost(of_subsets: Callable[[SubsetMixture], float]) -> Callable[[Any], float]:
    """The cost of an accountant of subsets of steps that analyses b-min-sep too."""

    def seconds(pair: Any) -> float:
        most = with_most_examples(pair) if isinstance(pair, RenewalMixture | TruncatedRenewal | WorstOf) else None
        return of_subsets(pair if most is None else poisson_above(most))

    return seconds
