"""The numbers that sum up the two bounds on one profile, each between a lower and an upper end."""

from math import inf

import numpy as np

from hockeystick.attacks.gaussian import LARGEST_MU, gdp_mu, gdp_regret
from hockeystick.attacks.measures import TOLERANCE, advantage, bayes_error, true_positive_rate
from hockeystick.bounds import Bound
from hockeystick.errors import InvalidInputError
from hockeystick.types import Side

FALSE_POSITIVE_RATES = (1e-1, 1e-2, 1e-3)


def summary(upper: Bound, lower: Bound, *, tolerance: float = TOLERANCE) -> dict[str, tuple[float, float]]:
    """What two bounds on the same profile say of attackers: (at least, at most) for each number.

    ``mu`` and ``regret`` are those of :func:`gdp_mu` and :func:`gdp_regret`, the regret that of the upper end of mu;
    ``advantage``; ``tpr_at_fpr_0.1``, ``..._0.01`` and ``..._0.001``, which are also the limits on reconstruction from
    baselines of the same size; ``bayes_error``, of a guess between two runs that are equally likely.

    Args:
        upper, lower: bounds on one profile.
        tolerance: of the true positive rates; affects tightness and speed only.

    Raises: InvalidInputError when the sides of the bounds are not those.

    >>> import hockeystick as hs
    >>> run = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=2.0)
    >>> both = [hs.bound(run, "gaussian", side=side) for side in hs.Side]
    >>> [round(end, 5) for end in hs.attacks.summary(*both)["bayes_error"]]
    [0.40129, 0.40129]
    """
    if upper.side is not Side.UPPER or lower.side is not Side.LOWER:
        raise InvalidInputError(
            f"The 'upper' and 'lower' arguments must be bounds on these sides. "
            f"Got bounds on the sides {upper.side.value!r} and {lower.side.value!r} instead."
        )
    mu = gdp_mu(upper)
    rates = np.array(FALSE_POSITIVE_RATES)
    least, most = (np.asarray(true_positive_rate(one, rates, tolerance=tolerance)) for one in (lower, upper))
    found = {
        "mu": (gdp_mu(lower), mu),
        "regret": (gdp_regret(upper, mu), gdp_regret(lower, mu)) if mu <= LARGEST_MU else (0.0, inf),
        "advantage": (advantage(lower), advantage(upper)),
    }
    for k, rate in enumerate(FALSE_POSITIVE_RATES):
        found[f"tpr_at_fpr_{rate:g}"] = (float(least[k]), float(most[k]))
    found["bayes_error"] = (float(bayes_error(upper, 0.5)), float(bayes_error(lower, 0.5)))
    return found
