"""What an attacker gains, as functions of a :class:`~hockeystick.bounds.Bound` on a privacy profile.

An upper bound on the profile limits every attacker: error rates are at least, and rates of success at most, what these
functions say. A lower bound says the opposite: some attacker does at least as well. Proofs: docs/theory/attacks.md.
"""

from hockeystick.attacks.measures import (
    advantage,
    bayes_error,
    reconstruction_success,
    true_positive_rate,
    type_two_error,
)
from hockeystick.attacks.numbers import gdp_mu, gdp_regret, summary
from hockeystick.lazily import loaded

__all__ = [
    "advantage",
    "bayes_error",
    "gdp_mu",
    "gdp_regret",
    "reconstruction_success",
    "summary",
    "true_positive_rate",
    "type_two_error",
]


def __getattr__(name: str) -> object:
    return loaded(__name__, {}, name, rooms=__all__)
