"""Upper bounds for random allocation with correlated noise by epochs in which columns see no other epoch.

The columns of C are replaced by others that reveal more, a Gauss-Markov chain in each epoch
(:mod:`hockeystick.windows.dominating_chain`), so that the epochs are independent. An epoch is a window in which the
example takes part exactly once (:mod:`hockeystick.windows.chains`), and the epochs compose.

Proof: docs/theory/fresh-bins.md. Errs upward in both directions, for any C >= 0, adaptive or not.
"""

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from hockeystick.accountants import examples
from hockeystick.accountants.base import Accountant, of_one_law
from hockeystick.accountants.fresh_bins import diagonals, rounding_of, too_many
from hockeystick.deadline import Deadline
from hockeystick.errors import UnsupportedError
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import UNIT_ROUNDOFF, Array, Law
from hockeystick.laws.operations import power
from hockeystick.pairs.fresh_bins import FreshBins
from hockeystick.settings import Settings
from hockeystick.strategies import StrategyMatrix
from hockeystick.types import Side

if TYPE_CHECKING:
    from hockeystick.windows.dominating_chain import DominatingChain

FITTED_BINS = 96
"""Epochs to which shapes are fitted; in longer ones the middle is repeated."""
MOST_BINS = 512
MOST_WORK = 2e9
"""Entries of the factorisation of all steps, times its bandwidth."""
LONGEST_COLUMN = 6.0
"""Standard deviations of the noise: longer columns of a chain have ratios that no grid can hold."""
NOISES = (0.7, 1.4, 4.0)
"""Levels of noise for which a shape is fitted, over the longest column; at every noise the best of them is taken."""
FINER = 2
"""Times as many nodes as in the windows of b-min-sep sampling: more steps round more often."""

_KNOWN: "WeakKeyDictionary[StrategyMatrix, dict[int, list[DominatingChain]]]" = WeakKeyDictionary()
"""Chains do not depend on the noise, so searches over it need them once; by bins."""


def coins(bins: int) -> Array:
    """The chance of each step of an epoch, given that the example has not taken part before: ``1 / b, ..., 1/2, 1``."""
    return 1.0 / np.arange(bins, 0.0, -1.0)


def chains(pair: FreshBins, deadline: Deadline) -> "list[DominatingChain]":
    """Chains that dominate the columns of C, each fitted to another level of noise."""

    from hockeystick.windows.dominating_chain import dominating_chain, long_enough

    known = _KNOWN.setdefault(pair.matrix, {})
    if pair.bins not in known:
        band = diagonals(pair.matrix, max(pair.matrix.bands, pair.bins))
        rounding, longest = rounding_of(pair.matrix), float(np.sqrt(band[0].max()))
        fitted = min(pair.bins, FITTED_BINS)
        few = band[: max(min(pair.matrix.bands, 2 * fitted), fitted)]  # guides the shape; what is proved is below
        try:
            shapes = [dominating_chain(few, fitted, longest * noise, coins(fitted), 0.0, deadline) for noise in NOISES]
            known[pair.bins] = [long_enough(_stretched(shape, pair.bins), band, rounding) for shape in shapes]
        except np.linalg.LinAlgError:
            raise UnsupportedError("No chain of columns dominates the strategy matrix within its rounding.") from None
    return known[pair.bins]


def _stretched(chain: "DominatingChain", size: int) -> "DominatingChain":
    """The chain with its middle repeated."""
    from hockeystick.windows.dominating_chain import DominatingChain

    half = chain.scales.size // 2
    first, last = chain.scales[:half], chain.scales[half:]
    middle = np.full(size - chain.scales.size, float(chain.scales[max(half - 1, 0) : half + 1].max()))
    return DominatingChain(np.concatenate([first, middle, last]), chain.correlation)


def _law(pair: FreshBins, settings: Settings) -> Law:
    """The law of all epochs; raises UnsupportedError where the noise is too low."""
    from hockeystick.windows.chains import window_law

    resolution, deadline, hazards = settings.resolution, settings.deadline, coins(pair.bins)
    sigma = pair.noise_multiplier
    chain = min(chains(pair, deadline), key=lambda candidate: candidate.second_moment(sigma, hazards))
    if not float(chain.scales.max()) <= LONGEST_COLUMN * sigma:
        raise UnsupportedError("The noise is too low: the columns of a chain are too long for the grids of an epoch.")
    scales = chain.scales * (1.0 + 4.0 * UNIT_ROUNDOFF) / sigma
    own = Resolution(FINER * resolution.nodes_per_unit, resolution.smallest_delta / pair.epochs)
    epoch = window_law(scales, chain.correlation, hazards, own, deadline, starts=1)
    return power(epoch, pair.epochs, resolution, tick=deadline.tick)


def _refusal(pair: FreshBins, side: Side) -> str | None:
    if (reason := too_many(pair)) is not None:
        return reason
    if pair.bins > MOST_BINS:
        return f"it is for at most {MOST_BINS} bins"
    if pair.matrix.steps * max(pair.matrix.bands, pair.bins) ** 2 > MOST_WORK:
        return "the strategy has too many bands for its steps"
    return None


def _cost(pair: FreshBins) -> float:
    """Seconds for the shapes, for proving that they dominate, and for the law of an epoch."""
    bandwidth = max(pair.matrix.bands, pair.bins)
    return 3.0 + 5e-4 * min(pair.bins, FITTED_BINS) ** 2 + 2e-9 * pair.matrix.steps * bandwidth**2 + 0.04 * pair.bins


_ANALYSE, _LAWS = of_one_law(_law)

ACCOUNTANT = Accountant(
    name="fresh_epochs",
    summary="composes the epochs of random allocation with correlated noise, made independent by longer columns",
    sides=(Side.UPPER,),
    errs="upward: the columns of a chain reveal more, and laws are spreads",
    reference="docs/theory/fresh-bins.md",
    analyses={FreshBins: _ANALYSE},
    laws={FreshBins: _LAWS},
    refusal=_refusal,
    cost=_cost,
    example=examples.fresh_bins,
)
