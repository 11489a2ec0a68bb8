"""Two-sided bounds of correlated noise of few bands under balls-in-bins by moving averages, for low noise.

The Gaussians of the bins are white noise beside moving averages of innovations, exactly or nearly so
(:mod:`hockeystick.sequences.banded_fits`, :mod:`hockeystick.sequences.local_fits`), with an innovation for each bin
up to four bands and one for several bins up to twenty. The innovations live on a lattice that changes nothing, and the
profile of the mixture follows from its transform (:mod:`hockeystick.sequences.moving_averages_transform`).

Proof: docs/theory/moving-averages.md. Errs on the asked side, adaptive gradients included.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from hockeystick.accountants import examples
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.low_noise_bins import bins_refusal, covariance_of, sensitivity_of
from hockeystick.bounds import Profile
from hockeystick.errors import UnsupportedError
from hockeystick.laws.law import UNIT_ROUNDOFF
from hockeystick.pairs.bin_mixture import BinMixture
from hockeystick.settings import Settings
from hockeystick.types import Direction, Side

if TYPE_CHECKING:
    from hockeystick.sequences.inverse_transform import TransformProfiles
    from hockeystick.sequences.moving_averages import MovingAverages

MOST_LOSS = 0.1
"""Share of epsilon, as estimated: other methods are better than moving averages that lose more."""
SMALL_LOSS = 0.005
"""Weights for every bin are looked for where weights that all bins share lose more."""
LEAST_EFFORT = 30.0
"""The least effort that is enough for a lattice with more bands than all innovations can serve one by one."""
LEAST_EPSILON = 0.8
"""From about here on the two sides are within a percent of each other and other methods looser: for four bands of the
square root in all eight cells of docs/reference/regimes.md at 1 and at 2, and in two of four at 0.5. Those of BandMF
are up to 4 percent apart, and others are looked at too."""
TOO_FAR = "The columns of the bins overlap too far for the effort: this method is for few bands."
SMALLEST_DELTA = 1e-7
"""Smaller ones are below what the rounding of transforms allows."""


class Request(NamedTuple):
    """What moving averages and their transforms depend on, where the profile is not for a given epsilon."""

    digest: str
    bins: int
    noise_multiplier: float
    side: Side
    delta: float
    effort: float


class Known(NamedTuple):
    """The moving average that serves a request, and its profiles.

    Attributes:
        alike: whether single questions and whole profiles would be served alike: no uneven bins were tried.
    """

    request: Request
    chain: "MovingAverages"
    profiles: "TransformProfiles"
    alike: bool


_KNOWN: deque[Known] = deque(maxlen=4)
"""The last few: the whole profile of a mechanism needs the transform that its epsilon at one delta needed."""


def _chains(pair: BinMixture, side: Side, settings: Settings) -> "Iterator[tuple[MovingAverages, float]]":
    """Moving averages whose work is within the effort, with an epsilon to serve; those that lose least come first."""
    from hockeystick.sequences.banded_fits import MOST_BANDS, bands_of, fits
    from hockeystick.sequences.comparable_covariances import closed_ring
    from hockeystick.sequences.local_fits import MOST_SHARED_BANDS, local_fit
    from hockeystick.sequences.moving_averages import MovingAverages
    from hockeystick.sequences.moving_averages_work import loss_of, transform_work

    delta, deadline = settings.resolution.smallest_delta, settings.deadline
    if delta < SMALLEST_DELTA:
        raise UnsupportedError(f"This method is for deltas of at least {SMALLEST_DELTA:g}.")
    given = covariance_of(pair)
    # bins may have any order; the last columns of an epoch, which are cut off, come first
    whole = given[::-1, ::-1]
    closed = closed_ring(whole)
    ring = closed is not None
    bands = bands_of(whole if closed is None else closed, side, ring, MOST_SHARED_BANDS)
    if bands is None or (bands > MOST_BANDS and settings.effort < LEAST_EFFORT):
        raise UnsupportedError(TOO_FAR)
    # from below weights that all bins share run on a line: what wraps around is given away
    shared_ring = ring and side is Side.UPPER
    covariance = closed if closed is not None and shared_ring else whole
    sensitivity = sensitivity_of(given, settings)
    epsilon = sensitivity.epsilon if settings.asked_epsilon is None else settings.asked_epsilon
    error = pair.rounding + 8.0 * UNIT_ROUNDOFF

    def loss(chain: MovingAverages) -> float:
        return loss_of(chain, whole, side, sensitivity.weights)

    def affordable(chain: MovingAverages) -> bool:
        return transform_work(chain, delta, epsilon, deadline) <= settings.effort

    chains = list(fits(covariance, error, side, sensitivity.weights, deadline, shared_ring))
    if not any(loss(chain) < SMALL_LOSS for chain in chains):
        own = local_fit(whole, error, side, sensitivity.weights, affordable, deadline, ring)
        chains += [] if own is None else [own]
    for chain in sorted(chains, key=loss):
        if loss(chain) > MOST_LOSS:
            break
        if affordable(chain):
            yield chain, epsilon


def _analyse(pair: BinMixture, side: Side, settings: Settings) -> Mapping[Direction, Profile]:
    from hockeystick.sequences.moving_averages_transform import averages_profiles
    from hockeystick.sequences.moving_averages_work import uneven

    delta, alone = settings.resolution.smallest_delta, settings.question is not None
    request = Request(pair.matrix.digest, pair.bins, pair.noise_multiplier, side, delta, settings.effort)
    for known in tuple(_KNOWN):
        if (
            known.request == request
            and settings.asked_epsilon is None
            and (known.alike or known.profiles.alone == alone)
        ):
            transforms = averages_profiles(known.chain, side, delta, known.profiles.epsilon, alone, settings.deadline)
            return transforms.sharing(known.profiles).profiles()
    alike = True
    for chain, epsilon in _chains(pair, side, settings):
        transforms = averages_profiles(chain, side, delta, epsilon, alone, settings.deadline)
        alike = alike and not uneven(chain)
        if not transforms.vain:
            if settings.asked_epsilon is None:
                _KNOWN.append(Known(request, chain, transforms, alike))
            return transforms.profiles()
    raise UnsupportedError("No moving average that is close to the bins has enough white noise.")


def _bands(pair: BinMixture) -> int:
    """The bands of the matrix, or 1 where they say nothing of the overlaps."""
    return pair.matrix.bands if pair.matrix.rows == pair.matrix.steps else 1


def _refusal(pair: BinMixture, side: Side) -> str | None:
    from hockeystick.sequences.local_fits import MOST_SHARED_BANDS

    if (reason := bins_refusal(pair)) is not None:
        return reason
    return f"it is for at most {MOST_SHARED_BANDS} bands" if _bands(pair) > MOST_SHARED_BANDS else None


def _cost(pair: BinMixture) -> float:
    from hockeystick.sequences.banded_fits import MOST_BANDS

    return 2.0 + 0.01 * pair.bins if _bands(pair) <= MOST_BANDS else 2.0 * pair.bins


def _nearly_meets(pair: BinMixture, epsilon: float) -> bool:
    from hockeystick.sequences.banded_fits import MOST_BANDS

    return 1 < _bands(pair) <= MOST_BANDS and epsilon >= LEAST_EPSILON


ACCOUNTANT = Accountant(
    name="moving_average",
    summary="the bins' Gaussians as moving averages beside white noise, for few bands at low noise",
    sides=(Side.UPPER, Side.LOWER),
    errs="to the asked side: the moving average reveals more, or less, than the bins; errors of its sum are charged",
    reference="docs/theory/moving-averages.md",
    analyses={BinMixture: _analyse},
    refusal=_refusal,
    cost=_cost,
    example=examples.low_noise_bins,
    example_effort=1.0,
    plans_effort=True,
    nearly_meets=_nearly_meets,
)
