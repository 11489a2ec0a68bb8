"""Lower bounds for what a run with exact noise releases, which is a rounding of the real mechanism's output.

Proof: docs/theory/exact-noise.md, "Lower bounds". Errs downward: the grid is the coarsest that any number of parameters
has, the length of the moves is rounded up, and the profile is a lower one.
"""

import numpy as np

from hockeystick.accountants.gaussian import at_sensitivity
from hockeystick.bounds import Bound
from hockeystick.certificate import Interval
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.registry import dominating_pair
from hockeystick.types import Direction, Kind, Side

ROUNDING = 1e-9
"""Far above the relative rounding of a norm and of sums of entries."""


def lower_end_of_run(
    mechanism: Mechanism, epsilon: float | Interval, delta: float | Interval, method: str | None
) -> float | None:
    """What the lower end of a certificate is for the released numbers; None where its bound is no threshold test.

    A test of ``a . y`` against a threshold, with a of norm 1, is one of ``a . (C w)`` with a threshold that moves by at
    most alpha either way. With public batches both laws are Gaussian, so their shift gets shorter by ``2 alpha``; and
    by a grid step for each clipping norm, as gradients of that norm may have a step less.

    Args:
        mechanism: exact, with a noise multiplier.
        epsilon, delta: of the claim, one of them an interval.
        method: that gave its lower end.
    """
    from hockeystick.noise.exact.grid import grid_of
    from hockeystick.strategies.matrix.dyadic import feeds_back

    matrix = mechanism.matrix
    if method != "gaussian" or matrix.rows != matrix.steps:
        return None
    pair, step = dominating_pair(mechanism), grid_of(matrix, mechanism.sigma, 1).step
    reach = matrix.diagonal_entries if feeds_back(matrix) else matrix.dot(np.ones(matrix.steps))
    alpha = step / 2.0 * float(np.linalg.norm(reach)) * (1.0 + ROUNDING)
    shift = pair.full_sensitivity * (1.0 - pair.sensitivity_error - ROUNDING) * (1.0 - step) - 2.0 * alpha
    profile = at_sensitivity(pair.noise_multiplier, max(shift, 0.0), Side.LOWER)
    bound = Bound("gaussian", Side.LOWER, Kind.DETERMINISTIC, 1.0, "", dict.fromkeys(Direction, profile))
    if isinstance(epsilon, Interval):
        assert not isinstance(delta, Interval)
        return min(bound.epsilon(delta), epsilon.lower or 0.0)
    assert isinstance(delta, Interval)
    return min(bound.delta(epsilon), delta.lower or 0.0)
