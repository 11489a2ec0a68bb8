"""All accountants: one line each."""

from hockeystick.accountants import (
    comparison,
    direct,
    gaussian,
    linear_statistic,
    projection,
    shuffle_thresholds,
    split_noise,
)
from hockeystick.accountants import moment_majorant as moment_majorant
from hockeystick.accountants import moment_majorant_cells as moment_majorant_cells
from hockeystick.accountants import monte_carlo as monte_carlo
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.published import (
    analytic,
    bin_renyi,
    conditional_composition,
    decomposition,
    dong_chen_ozgur,
    renyi,
    shuffle_clones,
    shuffled_tree,
)
from hockeystick.accountants.published import generalized_mmcc as generalized_mmcc
from hockeystick.accountants.published import mmcc as mmcc
from hockeystick.errors import InvalidInputError

ACCOUNTANTS: dict[str, Accountant] = {
    module.ACCOUNTANT.name: module.ACCOUNTANT
    for module in (
        gaussian,
        direct,
        projection,
        linear_statistic,
        split_noise,
        renyi,
        dong_chen_ozgur,
        analytic,
        decomposition,
        comparison,
        moment_majorant,
        moment_majorant_cells,
        bin_renyi,
        conditional_composition,
        mmcc,
        generalized_mmcc,
        shuffle_thresholds,
        shuffle_clones,
        shuffled_tree,
        monte_carlo,
    )
}


PUBLISHED = frozenset({"renyi", "dong_chen_ozgur", "analytic", "decomposition"})
"""Published methods that are never the best (docs/reference/standing.md): run when named, and by compare."""
DEFAULT = tuple(name for name in ACCOUNTANTS if name not in PUBLISHED)
"""What certify and calibrate run."""


def accountant(name: str) -> Accountant:
    """The accountant of this name; raises InvalidInputError with the known names otherwise."""
    if name not in ACCOUNTANTS:
        raise InvalidInputError(f"The 'method' field must be one of {', '.join(ACCOUNTANTS)}. Got {name!r} instead.")
    return ACCOUNTANTS[name]
