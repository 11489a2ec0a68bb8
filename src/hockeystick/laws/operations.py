"""Operations on laws. Each maps upper laws to upper laws and lower laws to lower laws.

=================  ==================================  =====================================================
operation          on X                                meaning
=================  ==================================  =====================================================
``thin(q)``        ``1 - q + q X``                     the example takes part with probability q (Poisson)
``unthin(q)``      ``(X - (1 - q)) / q``               condition a thinned pair on taking part
``average(t)``     ``(X_1 + ... + X_t) / t``           1-of-t random allocation of independent steps
``compose``        ``X Y``                             composition of independent steps
``power(T)``       ``X_1 ... X_T``                     T-fold composition, by repeated squaring
``mix``            ``X_I``, I ~ weights                side information I revealed to the adversary
=================  ==================================  =====================================================

A spread (or contraction) of a factor is one of the result, and the projection back on a grid a further one. ``power``
and ``average`` take at most 2 log2(T) pairwise projections. Proofs, also of the rounding: docs/theory/laws.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from hockeystick.errors import InvalidInputError
from hockeystick.laws.grid import Resolution, common_units, nodes_for_pairs, shared_masses
from hockeystick.laws.law import (
    FAR,
    ORDINARY,
    UNDERFLOW,
    UNIT_ROUNDOFF,
    Law,
    in_units,
    lower_law,
    merge_equal,
    point_mass_at_one,
)
from hockeystick.types import Side

SKIP = 1e-4
"""The partners of one node whose Q- and P-masses both sum to less than this share of the grid's tail are placed on
the safe side together, without being visited one by one."""
UNTHIN_FLOOR = 1e-2
"""Ratios below this are spread by ``unthin``, whose subtraction would lose them to rounding."""
Tick = Callable[[], None]
"""Called between the expensive parts of a long operation; may raise to stop it (deadlines, Ctrl-C)."""


def _no_tick() -> None:
    return None


def affine(law: Law, scale: float, shift: float) -> Law:
    """The law of ``shift + scale X`` (both non-negative, ``shift + scale = 1``), node by node."""
    support = shift + scale * law.support
    support, mass = merge_equal(support, law.mass)
    return replace(
        law,
        support=support,
        mass=mass,
        p_inf=law.p_inf * scale,
        place_error=law.place_error + 4 * UNIT_ROUNDOFF,
        horizon=law.horizon * scale,
    )


def thin(law: Law, rate: float) -> Law:
    """The law when the example takes part only with probability ``rate``, independently: ``1 - rate + rate X``.

    ``thin(law, 1)`` is the law itself, ``thin(law, 0)`` the point mass at 1. Exact: no projection.
    """
    if rate == 1.0:
        return law
    if rate == 0.0:
        return point_mass_at_one(law.side)
    return affine(law, rate, 1.0 - rate)


def unthin(law: Law, rate: float) -> Law:
    """The law conditioned on taking part, when with probability ``1 - rate`` the example takes no part at all.

    Needs X >= 1 - rate, which the law's floor must prove. Ratios below UNTHIN_FLOOR are spread to 0 and to it, with
    both masses enlarged by what the subtraction's absolute error can move. Upper laws only.

    Source: feldman-shenfeld-2025, Lemma 4.4, on the level of X.
    """
    absent = 1.0 - rate
    if law.side is not Side.UPPER:
        raise InvalidInputError("The 'law' parameter of unthin must be an upper law. Got a lower one instead.")
    if law.floor < absent * (1.0 - law.place_error - 64 * UNIT_ROUNDOFF):
        raise InvalidInputError(
            f"The 'rate' parameter of unthin must make 1 - rate at most the law's floor {law.floor!r}. "
            f"Got rate = {rate!r} instead."
        )
    relative = law.place_error + 64 * UNIT_ROUNDOFF
    absolute = 4.0 * relative * (absent / rate + UNTHIN_FLOOR)
    support = np.maximum((law.support - absent) / rate, 0.0)
    small = support < UNTHIN_FLOOR
    share = support[small] / UNTHIN_FLOOR
    move = absolute / UNTHIN_FLOOR
    # The truth may have moved across UNTHIN_FLOOR too, so the next node's mass counts among what can be moved.
    movable = float(law.mass[: int(np.count_nonzero(small)) + 1].sum()) * move
    at_zero = float(law.mass[small] @ (1.0 - share)) + movable
    at_floor = float(law.mass[small] @ share) + movable
    kept, kept_mass = merge_equal(support[~small], law.mass[~small])
    return replace(
        law,
        support=np.concatenate([[0.0, UNTHIN_FLOOR * (1.0 - 1e-12)], kept]),
        mass=np.concatenate([[at_zero, at_floor], kept_mass]),
        p_inf=law.p_inf / rate * (1.0 + 4 * UNIT_ROUNDOFF),
        mass_error=law.mass_error + (law.size + 8) * UNIT_ROUNDOFF,
        place_error=relative * (1.0 + absent / (rate * UNTHIN_FLOOR)) + 2e-12,
    )


def compose(a: Law, b: Law, resolution: Resolution, *, tick: Tick = _no_tick) -> Law:
    """The law of the product of independent ratios: both mechanisms are run."""
    return _combine(a, b, product=True, resolution=resolution, tick=tick)


def project(law: Law, resolution: Resolution) -> Law:
    """A law of the same side on a fresh grid, which may have far fewer places."""
    return compose(law, point_mass_at_one(law.side), resolution)


def power(law: Law, count: int, resolution: Resolution, *, tick: Tick = _no_tick) -> Law:
    """The law of ``count`` independent runs, by repeated squaring; ``count = 0`` is the point mass at 1."""
    result = _repeated(law, count, lambda a, na, b, nb: compose(a, b, resolution, tick=tick))
    return point_mass_at_one(law.side) if result is None else result


def average(
    law: Law, count: int, resolution: Resolution, *, tick: Tick = _no_tick, known: dict[int, Law] | None = None
) -> Law:
    """The law of the mean of ``count`` >= 1 independent copies: the example sits in one of ``count`` steps.

    Args:
        known: averages of 2, 4, 8, ... copies of the same law at this resolution, which other counts have left; those
            that are made here join them.
    """
    result = _repeated(law, count, lambda a, na, b, nb: weighted(a, na, b, nb, resolution, tick=tick), known)
    if result is None:
        raise InvalidInputError(f"The 'count' parameter of average must be at least 1. Got {count!r} instead.")
    return result


def visits(
    of_block: Callable[[int], Law],
    steps: int,
    count: int,
    epochs: int,
    resolution: Resolution,
    *,
    tick: Tick = _no_tick,
) -> Law:
    """An upper law of ``count`` visits to ``steps`` steps in every epoch: they are cut at random into as many blocks.

    Args:
        of_block: the law of a block of so many steps that is visited once.
        steps, count: at least 1, ``count`` at most ``steps``; sizes of blocks differ by at most 1.

    Source: feldman-shenfeld-2025, Lemma 3.11.
    """
    size, longer = divmod(steps, count)
    epoch = power(of_block(size), count - longer, resolution, tick=tick)
    if longer:
        epoch = compose(epoch, power(of_block(size + 1), longer, resolution, tick=tick), resolution, tick=tick)
    return power(epoch, epochs, resolution, tick=tick)


def _repeated(
    law: Law, count: int, join: Callable[[Law, int, Law, int], Law], known: dict[int, Law] | None = None
) -> Law | None:
    """``count`` copies by repeated doubling; ``join`` is told how many copies each of its laws stands for."""
    doublings: dict[int, Law] = {} if known is None else known
    result, done, doubled, size = None, 0, law, 1
    while count > 0:
        if count & 1:
            result = doubled if result is None else join(result, done, doubled, size)
            done += size
        count >>= 1
        if count:
            if 2 * size not in doublings:
                doublings[2 * size] = join(doubled, size, doubled, size)
            size *= 2
            doubled = doublings[size]
    return result


def weighted(a: Law, na: float, b: Law, nb: float, resolution: Resolution, *, tick: Tick = _no_tick) -> Law:
    """The law of ``(na A + nb B) / (na + nb)`` for independent A and B: a hidden choice between two blocks of steps."""
    same = a is b
    a = _scaled(a, na / (na + nb))
    b = a if same and na == nb else _scaled(b, nb / (na + nb))
    return _combine(a, b, product=False, resolution=resolution, tick=tick)


def mix(laws: Sequence[Law], weights: Sequence[float], resolution: Resolution) -> Law:
    """The law of X_I, I ~ weights, when I is revealed and has the same law under P and Q.

    An upper bound whenever the truth does not reveal I (revealing only helps the adversary). A lower bound only if I
    is truly public: mixing lower laws for a hidden I is not one.
    """
    sides = {law.side for law in laws}
    if len(sides) != 1:
        raise InvalidInputError("The 'laws' parameter of mix must have laws of one side. Got upper and lower instead.")
    side = sides.pop()
    units = FAR if any(law.units == FAR for law in laws) else ORDINARY
    laws = [in_units(law, units) for law in laws]
    support = np.concatenate([law.support for law in laws])
    mass = np.concatenate([weight * law.mass for law, weight in zip(laws, weights, strict=True)])
    p_inf = float(sum(weight * law.p_inf for law, weight in zip(laws, weights, strict=True)))
    order = np.argsort(support, kind="stable")
    support, mass = merge_equal(support[order], mass[order])
    mass_error = max(law.mass_error for law in laws) + (len(laws) + 2) * UNIT_ROUNDOFF
    place_error = max(law.place_error for law in laws)
    whole = Law(support, mass, p_inf, side, mass_error, place_error, units, min(law.horizon for law in laws))
    return whole if support.size <= 2 * max(law.size for law in laws) else project(whole, resolution)


def _scaled(law: Law, factor: float) -> Law:
    return replace(
        law,
        support=law.support * factor,
        p_inf=law.p_inf * factor,
        place_error=law.place_error + 2 * UNIT_ROUNDOFF,
        horizon=law.horizon * factor,
    )


def _combine(a: Law, b: Law, *, product: bool, resolution: Resolution, tick: Tick) -> Law:
    """Project the pairs of two independent laws (their products, or their sums) on a fresh grid."""
    if a.side is not b.side:
        raise InvalidInputError(f"The laws must be of one side. Got {a.side.value!r} and {b.side.value!r} instead.")
    tick()
    from hockeystick.laws import kernels

    units = common_units(a, b)
    grid = nodes_for_pairs(a, b, product, resolution)
    of_a = shared_masses(a, units)
    of_b = of_a if a is b else shared_masses(b, units)
    ends = kernels.Ends(SKIP * resolution.tail * units.scale, units.pair_limit)
    arguments = (a.support, of_a, b.support, of_b, grid, product, a is b, ends)
    place_error = a.place_error + b.place_error if product else max(a.place_error, b.place_error)
    rounding = (2 * a.size + b.size + 16) * UNIT_ROUNDOFF
    mass_error = a.mass_error + b.mass_error + rounding
    # The split of a run between two nodes, and a barycentre, are quotients of two such sums.
    place_error += 2 * (b.size * UNIT_ROUNDOFF if a.side is Side.UPPER else rounding) + 8 * UNIT_ROUNDOFF
    mass_error *= 1.0 + mass_error  # second-order terms of the products of errors
    place_error *= 1.0 + place_error
    if a.side is Side.LOWER:
        masses, moments, beyond = kernels.contract_pairs(*arguments)
        law = lower_law(masses, moments, mass_error, place_error, units, beyond / units.scale)
        return _with_the_horizons(law, a, b, product) if units == FAR else law
    mass, excess, skipped_q, skipped_p = kernels.spread_pairs(*arguments)
    mass[0] += skipped_q + UNDERFLOW * units.scale
    # The sum of the two escaped masses is exact for averages and at least the truth for products.
    escaped = (a.p_inf + b.p_inf) * (1.0 + mass_error + place_error)
    p_inf = escaped + excess / units.scale + skipped_p / units.scale + UNDERFLOW
    return Law(grid, mass, p_inf, a.side, mass_error, place_error, units)


def _with_the_horizons(law: Law, a: Law, b: Law, product: bool) -> Law:
    """A lower law of pairs of nodes of a and b, with those pairs of which one ratio is beyond its horizon.

    All partners of such a ratio x are joined at their barycentre, which is a contraction. For products that is x times
    the partners' P-mass over their Q-mass, hence at least x times their P-mass. A sum is at least x, with at least the
    P-mass of x times the partners' Q-mass.
    """
    partners_a, partners_b = (
        (float(factor.mass @ factor.support) if product else float(factor.mass.sum())) / factor.units.scale
        for factor in (a, b)
    )
    if product:
        partners_a += a.p_inf  # a pair of two ratios beyond their horizons is counted once
    beyond, horizon = law.p_inf, law.horizon
    for own, partners in ((a, partners_b), (b, partners_a)):
        if own.p_inf > 0.0 and partners > 0.5:  # others have little P-mass, and would bring the horizon down to 0
            beyond += own.p_inf * partners
            horizon = min(horizon, own.horizon * partners if product else own.horizon)
    down = 1.0 - (a.size + b.size + 16) * UNIT_ROUNDOFF
    return replace(law, p_inf=beyond * down, horizon=horizon * down)
