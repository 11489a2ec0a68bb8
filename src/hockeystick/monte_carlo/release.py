"""Estimate, verify, release: which mechanism to run, and what the choice costs.

Verification is a random test, and the mechanism that runs is chosen by its outcome. The whole of it - test, choose,
run - satisfies (epsilon, delta' + q (1 - delta')) when candidates that are not (epsilon, delta')-private are accepted
with probabilities whose sum is at most q. Unlike a confidence statement this is a guarantee about the released output
itself.

Proof, and what it needs: docs/theory/monte-carlo/release.md (dong-ganesh-2026-b-min-sep, Theorem A.1, without its
assumption that the tests are independent).
"""

from hockeystick.errors import InvalidInputError


def release_delta(delta_prime: float, q: float) -> float:
    """The delta that a release satisfies: ``delta' + q (1 - delta')``, rounded up.

    Args:
        delta_prime: the delta that was verified, in [0, 1].
        q: bound on the probability with which tests accept what they should refuse, in [0, 1].
    """
    _check("delta_prime", delta_prime)
    _check("q", q)
    if delta_prime == 0.0 or q == 0.0:  # exact
        return delta_prime + q
    # Three roundings of positive numbers, 1 - delta' being exact or relatively accurate, and then up.
    return min((delta_prime + q * (1.0 - delta_prime)) * (1.0 + 2.0**-50), 1.0)


def verification_target(delta: float, q: float) -> float:
    """What to verify so that the release satisfies ``delta``: the delta' ``(delta - q) / (1 - q)``, rounded down.

    Raises: InvalidInputError unless ``0 <= q < delta <= 1``.
    """
    _check("delta", delta)
    _check("q", q)
    if not q < delta:
        raise InvalidInputError(f"The 'q' argument must be below delta = {delta!r}. Got {q!r} instead.")
    if q == 0.0:  # exact
        return delta
    # Moved down, relatively to delta, by more than this quotient and release_delta round up together.
    return max(delta * (1.0 - 2.0**-48) - q, 0.0) / (1.0 - q)


def _check(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise InvalidInputError(f"The {name!r} argument must be from 0 to 1. Got {value!r} instead.")
