"""Two-sided bounds of correlated noise under balls-in-bins by Gaussians that a Markov chain generates, for low noise.

The covariance of the bins is replaced by one that reveals more, or less, and is that of white noise beside a chain
with a state of one or two numbers, or from above beside two independent chains, around a closed ring too
(:mod:`hockeystick.sequences.comparable_chain`, :mod:`hockeystick.sequences.independent_sequences`) or, with an effort
of 30 or more, beside a state of three numbers (:mod:`hockeystick.sequences.coordinate_fits`). The profile of the
mixture then follows from its transform (:mod:`hockeystick.sequences.hidden_chain_transform`); for compositions, and
for deltas below 1e-7, its law does bin by bin (:mod:`hockeystick.sequences.hidden_chain`), with smaller chains.

Proof: docs/theory/hidden-chains.md. Errs on the asked side, adaptive gradients included.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import exp, log
from typing import TYPE_CHECKING, cast

from hockeystick.accountants import examples
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.low_noise_bins import bins_refusal, covariance_of, sensitivity_of
from hockeystick.bounds import Profile
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import UNIT_ROUNDOFF, Law
from hockeystick.laws.profile import law_profiles
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.sequences.coordinate_chain import Chain

MOST_LOSS = {Side.UPPER: 0.2, Side.LOWER: 0.1}
"""Of epsilon, as estimated: other methods are better than chains that lose more; from below bin filters are."""
AS_SIMULATED = 1.5
"""A simulation of an upper chain itself may show a loss of so many times that share. The estimate above is of first
order, bin by bin, and misses a few bins that a chain raises much; transforms of such chains take very long."""
SMALLEST_TRANSFORMED = 1e-7
"""Smaller deltas are below what the rounding of transforms allows; laws on grids serve them, and compositions."""
LEAST_EFFORT, LEAST_GAIN = 30.0, 0.008
"""Seconds below which no chain with a state of three numbers is looked for, which takes one transform for one question;
and the share of epsilon it has to gain."""
BEYOND = 40.0
"""Ratios up to this multiple of e^epsilon, at an estimate of epsilon, are followed."""


def _chain(
    pair: BinMixture, side: Side, settings: Settings, work: "Callable[[Chain, float], float]", independent: bool
) -> "tuple[Chain, float]":
    """A comparable chain whose ``work``, given an estimate of epsilon, is within the effort; and the estimate."""
    from hockeystick.sequences.comparable_chain import comparable_chain, loss_of, opened_ring
    from hockeystick.sequences.coordinate_chain import Chain
    from hockeystick.sequences.coordinate_fits import coordinate_chain

    deadline, covariance = settings.deadline, covariance_of(pair)
    error = pair.rounding + 8.0 * UNIT_ROUNDOFF
    found = sensitivity_of(covariance, settings)

    def affordable(chain: Chain) -> bool:
        return work(chain, found.epsilon) <= settings.effort

    most = (1.0 + AS_SIMULATED * MOST_LOSS[side]) * found.epsilon

    def close(chain: Chain) -> bool:
        return not independent or sensitivity_of(chain.products, settings).epsilon <= most

    upper = side is Side.UPPER
    opened = opened_ring(covariance) if upper else None
    closed = opened_ring(covariance, closed=True) if upper and independent else None
    best: tuple[float, Chain] | None = None
    for one in (opened, closed, covariance):
        if one is None or (one is covariance and best is not None):
            continue
        weights, apart = found.weights[: len(one)], independent and (one is not covariance or closed is None)
        chain = comparable_chain(one, error, side, weights, affordable, MOST_LOSS[side], deadline, apart)
        if chain is None or not close(chain):
            continue
        # bins that are taken out of a ring are taken out of the mean
        loss = loss_of(chain, one, side, weights) + log(len(covariance) / len(one)) / found.epsilon
        if best is None or loss < best[0]:
            best = loss, chain
    if best is None:
        raise UnsupportedError("No chain with enough white noise was found close to the covariance of the bins.")
    line = covariance if opened is None and closed is None else opened
    many = settings.effort >= LEAST_EFFORT and settings.question is not None
    if upper and independent and many and line is not None:
        least = best[0] - log(len(covariance) / len(line)) / found.epsilon - LEAST_GAIN
        better = coordinate_chain(line, error, found.weights[: len(line)], affordable, least, deadline)
        if better is not None and close(better):
            return better, found.epsilon
    return best[1], found.epsilon


def _law(pair: BinMixture, side: Side, settings: Settings) -> Law:
    from hockeystick.sequences.coordinate_chain import Chain
    from hockeystick.sequences.hidden_chain import HiddenChain, hidden_chain_law, work_of

    delta = settings.resolution.smallest_delta

    def work(chain: Chain, epsilon: float) -> float:
        return work_of(cast(HiddenChain, chain), delta, BEYOND * exp(epsilon))

    chain, epsilon = _chain(pair, side, settings, work, False)
    return hidden_chain_law(cast(HiddenChain, chain), side, delta, BEYOND * exp(epsilon), settings.deadline)


def _laws(pair: BinMixture, side: Side, settings: Settings) -> Sequence[Law]:
    try:
        return [_law(pair, side, settings)]
    except UnsupportedError:
        return []


def _analyse(pair: BinMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    from hockeystick.sequences.coordinate_chain import Chain
    from hockeystick.sequences.hidden_chain_transform import chain_profiles, transform_work

    delta, question = settings.resolution.smallest_delta, settings.question
    if delta < SMALLEST_TRANSFORMED:
        return law_profiles(_law(pair, side, settings))
    asked = settings.asked_epsilon

    def work(chain: Chain, epsilon: float) -> float:
        return transform_work(chain, side, delta, epsilon if asked is None else asked)

    chain, epsilon = _chain(pair, side, settings, work, side is Side.UPPER)
    near = epsilon if asked is None else asked
    return chain_profiles(chain, side, delta, near, question is not None, settings.deadline).profiles()


def _refusal(pair: BinMixture, side: Side) -> str | None:
    return bins_refusal(pair)


ACCOUNTANT = Accountant(
    name="hidden_chain",
    summary="the bins' Gaussians replaced by a Markov chain beside white noise, for low noise",
    sides=(Side.UPPER, Side.LOWER),
    errs="to the asked side: the chain reveals more, or less, than the bins, and laws are spreads or contractions",
    reference="docs/theory/hidden-chains.md",
    analyses={BinMixture: _analyse},
    laws={BinMixture: _laws},
    refusal=_refusal,
    cost=lambda pair: 2.5 + 6e-5 * pair.bins**2,
    example=partial(examples.low_noise_bins, 0.6),
    example_effort=0.3,
    plans_effort=True,
)
