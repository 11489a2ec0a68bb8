"""Laws to and from ``PrivacyLossDistribution`` of Google's dp_accounting.

A ``PrivacyLossDistribution`` (PLD) has one mass function for each direction. The one for *remove* holds the P-masses
of the losses ``log X``, the one for *add* the Q-masses of the losses ``-log X``; both sit on multiples of one interval
and have a mass at infinity. What a mass function leaves open, the mass under the other measure that no finite loss
explains, sits where it does not count in that direction.

How far to trust the other side: once dp_accounting composes, it does so by FFT in doubles, whose absolute noise is
about 1e-16 for each loss and has been seen to add up to 1e-10 in delta, of either sign. Values of delta near 1e-10 or
below that come out of a composed PLD are not bounds, and a law built from such a PLD inherits them. Compose first,
with :mod:`hockeystick.laws.operations`, and convert last.

Descriptions of mechanisms (``DpEvent``) are converted in :mod:`hockeystick.interop.dp_events`.
"""

from dataclasses import dataclass
from math import ceil, expm1, floor, isfinite, log, log1p
from typing import Any

import numpy as np

from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.interop.peer import load
from hockeystick.laws.grid import Resolution
from hockeystick.laws.law import (
    MAX_RATIO,
    ORDINARY,
    UNIT_ROUNDOFF,
    Array,
    Law,
    in_units,
    merge_equal,
)
from hockeystick.laws.operations import project
from hockeystick.spec import expect_kind
from hockeystick.types import Direction, Side

MAX_LOSSES = 1 << 22
"""Most grid points that a PLD may have (32 MiB of doubles for each direction)."""
NEGLIGIBLE = 1e-40
"""Masses at the ends that are moved together, to keep the range short: up at the low end, to infinity at the high end
(there only as far as it at most doubles what is at infinity anyway)."""
MASS_TOLERANCE = 1e-3
"""A mass function whose total is further from 1 than this is not a privacy loss distribution."""


def to_pld(law: Law, *, value_discretization_interval: float = 1e-4) -> Any:
    """A pessimistic ``PrivacyLossDistribution`` from an upper law.

    Formal guarantee: in both directions and for every epsilon, the PLD's delta is at least
    :func:`hockeystick.laws.profile.law_delta`, the law's rounding allowances included. Every atom of the law is split
    between the two grid losses around it so that its mean stays (or moves outwards by the law's place_error): a
    spread, so the excess is of second order in the interval, and no two numbers are subtracted. Rounding all losses
    up would be valid too, but adds up to half an interval for each composed step.

    Args:
        law: an upper law.
        value_discretization_interval: distance of the losses in natural-log units, > 0; PLDs compose only with PLDs of
            the same interval.

    Raises: UnsupportedError when dp_accounting is not installed, or for lower laws: dp_accounting moves truncated mass
    to infinity also when it composes optimistic estimates, so they would not stay lower bounds. InvalidInputError
    when the losses of the law would need more than MAX_LOSSES grid points.
    """
    if law.side is not Side.UPPER:
        raise UnsupportedError(
            "A lower law has no PrivacyLossDistribution, because dp_accounting does not keep optimistic estimates "
            "below the truth when it composes them; convert the upper law."
        )
    interval = _checked_interval(value_discretization_interval)
    pld_pmf = load("dp_accounting.pld.pld_pmf")
    distribution = load("dp_accounting.pld.privacy_loss_distribution")
    law = in_units(law, ORDINARY)
    moved = law.place_error + 8 * UNIT_ROUNDOFF
    slack = law.mass_error + moved + (2 * law.size + 64) * UNIT_ROUNDOFF
    if not slack < 0.5:
        raise InvalidInputError(
            f"The 'law' parameter of to_pld must have rounding errors below 0.5. Got {slack:.3g} instead."
        )
    inflate = 1.0 / (1.0 - slack)
    positive = law.support > 0.0
    zero_mass = float(law.mass[~positive].sum())
    log_ratio, mass = np.log(law.support[positive]), law.mass[positive] * inflate
    remove = _on_grid(log_ratio, mass * law.support[positive], law.p_inf * inflate, moved, interval)
    add = _on_grid(-log_ratio[::-1], mass[::-1], zero_mass * inflate, moved, interval)
    return distribution.PrivacyLossDistribution(remove.pmf(pld_pmf, interval), add.pmf(pld_pmf, interval))


def from_pld(pld: Any, *, resolution: Resolution | None = None) -> dict[Direction, Law]:
    """Upper laws from a pessimistic ``PrivacyLossDistribution``, one for each direction.

    Formal guarantee: for each direction d and every epsilon >= 0, ``law_delta(laws[d], epsilon, d)`` is at least the
    delta that the stored mass function of that direction stands for. Both laws are laws of the same likelihood ratio
    ``X = dP/dQ`` under Q, so operations apply to either; each is claimed, and tight, for its own direction only.

    Assumptions: the PLD dominates the mechanism at *every* real epsilon, as dp_accounting's constructors see to (their
    own composition rests on it). The stored numbers are taken as they are; see the module's docstring for the noise
    that FFT leaves in them. Negative masses count as 0, missing mass is sent to infinity, excess mass (at most
    MASS_TOLERANCE) becomes ``mass_error``.

    Args:
        pld: any pessimistic PLD.
        resolution: spread the laws on grids of this density. Needed before operations, whose time grows with the
            square of the number of nodes: a PLD often has 100,000 of them. None keeps every loss of the PLD.

    Raises: UnsupportedError for optimistic estimates; InvalidInputError when the masses are not those of a PLD.
    """
    peer = load("dp_accounting.pld.privacy_loss_distribution")
    expect_kind("pld", pld, peer.PrivacyLossDistribution, "a PrivacyLossDistribution of dp_accounting", optional=False)
    laws = {
        Direction.REMOVE: _law_from_pmf(pld._pmf_remove, Direction.REMOVE),
        Direction.ADD: _law_from_pmf(pld._pmf_add, Direction.ADD),
    }
    if resolution is None:
        return laws
    return {direction: project(law, resolution) for direction, law in laws.items()}


@dataclass(frozen=True)
class _Grid:
    """Masses on the losses ``(first + j) * interval``, and at infinity."""

    first: int
    masses: Array
    infinity: float

    def pmf(self, pld_pmf: Any, interval: float) -> Any:
        """The same as dp_accounting's PLDPmf: sparse when it has few losses, dense otherwise."""
        (used,) = np.nonzero(self.masses)
        if used.size <= 1000:
            losses = {int(self.first + j): float(self.masses[j]) for j in used} or {self.first: 0.0}
            return pld_pmf.SparsePLDPmf(losses, interval, self.infinity, True)
        return pld_pmf.DensePLDPmf(interval, self.first, self.masses, self.infinity, True)


def _on_grid(losses: Array, masses: Array, infinity: float, moved: float, interval: float) -> _Grid:
    """Spread the atoms of one direction on a grid of losses.

    Args:
        losses: ascending; those of atoms with these masses under P (remove) or under Q (add).
        moved: every ratio is raised by this relative amount first, and by the rounding of logarithm and grid.
    """
    raised = losses - log1p(-moved) + 16 * UNIT_ROUNDOFF * (1.0 + np.abs(losses))
    keep_low = int(np.searchsorted(np.cumsum(masses), NEGLIGIBLE))
    from_top = np.cumsum(masses[::-1])[::-1]
    keep_high = int(np.count_nonzero(from_top > min(infinity, NEGLIGIBLE)))
    if keep_high == 0:
        return _Grid(0, np.zeros(1), min(infinity + float(masses.sum()), 1.0))
    keep_low = min(keep_low, keep_high - 1)
    infinity += float(masses[keep_high:].sum())
    raised = np.maximum(raised[:keep_high], raised[keep_low])
    masses = masses[:keep_high]
    first, last = floor(raised[0] / interval), ceil(raised[-1] / interval) + 1
    if last - first >= MAX_LOSSES:
        needed = (raised[-1] - raised[0]) / (MAX_LOSSES - 8)
        raise InvalidInputError(
            f"The 'value_discretization_interval' parameter of to_pld must be at least {needed:.3g} for losses from "
            f"{raised[0]:.4g} to {raised[-1]:.4g}. Got {interval!r} instead."
        )
    cell = np.floor(raised / interval).astype(np.int64)
    cell -= cell * interval > raised
    within = np.clip(raised - cell * interval, 0.0, interval)
    # This share above, the rest below, keeps both the mass and the mass under the other measure, mass * e^-loss.
    above = np.expm1(-within) / expm1(-interval)
    out = np.zeros(last - first + 1)
    np.add.at(out, cell - first, masses * (1.0 - above))
    np.add.at(out, cell - first + 1, masses * above)
    return _Grid(first, out, min(infinity, 1.0))


def _law_from_pmf(pmf: Any, direction: Direction) -> Law:
    """The upper law that one mass function stands for; see :func:`from_pld`."""
    if not pmf._pessimistic_estimate:
        raise UnsupportedError(
            "An optimistic PrivacyLossDistribution gives no upper law; build it with pessimistic_estimate=True."
        )
    losses, masses, infinity, excess = _checked_masses(pmf)
    # e^-loss overflows nowhere: losses beyond the largest ratio of a law are raised (low end) or infinite (high end).
    limit = log(MAX_RATIO)
    infinity += float(masses[losses > limit].sum())
    masses, losses = masses[losses <= limit], np.maximum(losses[losses <= limit], -limit)
    losses, masses = _with_room_for_the_rest(losses, masses)
    opposite = masses * np.exp(-losses)
    rest = max(1.0 - float(opposite.sum()), 0.0)
    excess += max(float(opposite.sum()) - 1.0, 0.0)
    rounding = (4.0 * float(np.max(np.abs(losses), initial=0.0)) + losses.size + 16.0) * UNIT_ROUNDOFF
    if direction is Direction.REMOVE:
        support, mass, p_inf = np.exp(losses), opposite, infinity
        at_zero = rest
    else:
        support, mass, p_inf = np.exp(-losses[::-1]), masses[::-1], rest
        at_zero = infinity
    if at_zero > 0.0 or support.size == 0:  # without it the lowest ratio is a floor, which keeps the add tail short
        support, mass = np.append(0.0, support), np.append(at_zero, mass)
    support, mass = merge_equal(support, mass)
    return Law(support, mass, p_inf, Side.UPPER, excess + rounding, rounding)


def _checked_masses(pmf: Any) -> tuple[Array, Array, float, float]:
    """Ascending losses, their masses, the mass at infinity (all sum to 1), and the excess that was divided out."""
    interval = _checked_interval(float(pmf._discretization))
    if hasattr(pmf, "_loss_probs"):
        items = sorted(pmf._loss_probs.items())
        losses = np.array([index for index, _ in items], dtype=np.float64) * interval
        masses = np.array([mass for _, mass in items], dtype=np.float64)
    else:
        losses = (np.arange(pmf.size) + pmf._lower_loss) * interval
        masses = np.array(pmf._probs, dtype=np.float64)
    infinity = float(pmf._infinity_mass)
    if not (np.all(np.isfinite(masses)) and isfinite(infinity)):
        raise InvalidInputError("The masses of a PrivacyLossDistribution must be finite numbers.")
    used = masses > 0.0
    losses, masses, infinity = losses[used], masses[used], max(infinity, 0.0)
    total = float(masses.sum()) + infinity
    if not abs(total - 1.0) <= MASS_TOLERANCE:
        raise InvalidInputError(f"The masses of a PrivacyLossDistribution must sum to 1. Got {total!r} instead.")
    if total <= 1.0:
        return losses, masses, infinity + (1.0 - total), 0.0
    return losses, masses / total, infinity / total, total - 1.0


def _with_room_for_the_rest(losses: Array, masses: Array) -> tuple[Array, Array]:
    """Raise the lowest losses until the masses under the other measure, ``mass * e^-loss``, sum to at most 1.

    Noise in masses of very negative losses makes that sum anything; raising losses is pessimistic.
    """
    if losses.size == 0:
        return losses, masses
    opposite = masses * np.exp(-losses)
    above = np.append(np.cumsum(opposite[::-1])[::-1][1:], 0.0)
    raised = above + np.exp(-losses) * np.cumsum(masses)
    (fits,) = np.nonzero(raised <= 1.0 + 1e-12)
    if fits.size == 0:
        raise InvalidInputError("The losses of a PrivacyLossDistribution must not all be negative.")
    k = int(fits[0])
    return losses[k:], np.append(float(masses[: k + 1].sum()), masses[k + 1 :])


def _checked_interval(interval: float) -> float:
    if not 1e-9 <= interval <= 10.0:
        raise InvalidInputError(
            f"The 'value_discretization_interval' parameter must be from 1e-9 to 10. Got {interval!r} instead."
        )
    return float(interval)
