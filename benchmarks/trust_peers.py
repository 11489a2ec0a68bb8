"""``python -m benchmarks.trust_peers``: from which delta the bounds of other libraries cannot be trusted.

The run is STEPS full batches with noise multiplier sqrt(STEPS), together a Gaussian mechanism with mu = 1, whose
epsilon is known to fifty digits. Each library is asked for its bounds at every delta of DELTAS. The table names the
largest delta at which an upper bound is below the exact epsilon, or a lower bound above it, and both numbers there.
Libraries that are not installed are left out; name some to run these alone.
"""

import logging
import math
import sys
import warnings
from collections.abc import Callable

import mpmath

DELTAS = tuple(10.0**-power for power in range(5, 15))
STEPS = (1, 100, 1_000, 10_000)
Bounds = tuple[float | None, float | None]


def exact_epsilon(delta: float) -> float:
    """The epsilon of a Gaussian mechanism with mu = 1 at delta, by bisection of its profile in fifty digits."""
    with mpmath.workdps(50):
        low, high = mpmath.mpf(0), mpmath.mpf(50)
        for _ in range(150):
            middle = (low + high) / 2
            profile = mpmath.ncdf(0.5 - middle) - mpmath.exp(middle) * mpmath.ncdf(-0.5 - middle)
            low, high = (middle, high) if profile > delta else (low, middle)
        return float(high)


def dp_accounting(steps: int) -> Callable[[float], Bounds]:
    """The optimistic and the pessimistic epsilon of privacy loss distributions on the default grid."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    lower, upper = (
        from_gaussian_mechanism(math.sqrt(steps), pessimistic_estimate=side).self_compose(steps)
        for side in (False, True)
    )
    return lambda delta: (lower.get_epsilon_for_delta(delta), upper.get_epsilon_for_delta(delta))


def opacus(steps: int) -> Callable[[float], Bounds]:
    """The upper bound of the PRV accountant at its defaults."""
    from opacus.accountants import PRVAccountant

    def bounds(delta: float) -> Bounds:
        accountant = PRVAccountant()
        accountant.history = [(math.sqrt(steps), 1.0, steps)]
        return None, float(accountant.get_epsilon(delta))

    return bounds


def prv_accountant(steps: int) -> Callable[[float], Bounds]:
    """The lower and the upper bound at an error of .01 in epsilon and a thousandth of delta."""
    from prv_accountant import GaussianMechanism, PRVAccountant

    def bounds(delta: float) -> Bounds:
        accountant = PRVAccountant(
            prvs=GaussianMechanism(math.sqrt(steps)),
            max_self_compositions=steps,
            eps_error=0.01,
            delta_error=delta / 1000,
        )
        lower, _, upper = accountant.compute_epsilon(delta, steps)
        return float(lower), float(upper)

    return bounds


def pld_accounting(steps: int) -> Callable[[float], Bounds]:
    """Both types of bounds of random allocation to one step, which is a full batch, at the defaults."""
    from PLD_accounting import (
        AllocationSchemeConfig,
        BoundType,
        PrivacyParams,
        gaussian_allocation_epsilon_configurable,
    )

    def bounds(delta: float) -> Bounds:
        params = PrivacyParams(sigma=math.sqrt(steps), num_steps=1, num_epochs=steps, delta=delta)
        lower, upper = (
            gaussian_allocation_epsilon_configurable(params=params, config=AllocationSchemeConfig(), bound_type=kind)
            for kind in (BoundType.IS_DOMINATED, BoundType.DOMINATES)
        )
        return float(lower), float(upper)

    return bounds


def pld_accounting_range(steps: int) -> Callable[[float], Bounds]:
    """The bounds of the same run by the function that chooses its grid itself."""
    from PLD_accounting import gaussian_allocation_epsilon_range

    def bounds(delta: float) -> Bounds:
        sigma = math.sqrt(steps)
        upper, lower = gaussian_allocation_epsilon_range(delta=delta, sigma=sigma, num_steps=1, num_epochs=steps)
        return float(lower), float(upper)

    return bounds


def opake(steps: int) -> Callable[[float], Bounds]:
    """The upper bound of the Gaussian mechanism, composed, at the defaults."""
    from opake.dpsgd.accounting import gaussian

    run = gaussian(math.sqrt(steps)) * steps
    return lambda delta: (None, float(run.epsilon_at(delta)))


PEERS = {
    "dp-accounting": dp_accounting,
    "opake": opake,
    "Opacus": opacus,
    "prv-accountant": prv_accountant,
    "PLD-accounting": pld_accounting,
    "PLD-accounting-range": pld_accounting_range,
}


def failure(ask: Callable[[float], Bounds], side: int) -> str:
    """A phrase with the largest delta at which a bound (side 0 lower, 1 upper) is on the wrong side of the truth."""
    answered = False
    for delta in DELTAS:
        try:
            bound = ask(delta)[side]
        except (ValueError, RuntimeError) as error:
            return f"refuses {delta:.0e} ({type(error).__name__})"
        if bound is None:
            return "-"
        answered = True
        exact = exact_epsilon(delta)
        if (bound < exact) if side else (bound > exact):
            return f"from {delta:.0e}: {bound:.4f} for {exact:.4f}"
    return "holds" if answered else "-"


def main() -> int:
    """Print the table of the libraries that are installed; 2 where there is none."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    known = set(sys.argv[1:]) or set(PEERS)
    rows = 0
    print("| library | full batches | lower bound | upper bound |", "|---|---|---|---|", sep="\n")
    for name in sorted(known & set(PEERS)):
        for steps in STEPS:
            try:
                ask = PEERS[name](steps)
                cells = [failure(ask, side) for side in (0, 1)]
            except ImportError:
                break
            print(f"| {name} | {steps:,} | {cells[0]} | {cells[1]} |", flush=True)
            rows += 1
    return 0 if rows else 2


if __name__ == "__main__":
    sys.exit(main())
