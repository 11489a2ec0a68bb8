"""All accountants: one line each."""

from hockeystick.accountants import (
    analytic,
    bin_renyi,
    comparison,
    conditional_composition,
    decomposition,
    direct,
    dong_chen_ozgur,
    gaussian,
    linear_statistic,
    projection,
    renyi,
    shuffle_clones,
    shuffle_thresholds,
    shuffled_tree,
    split_noise,
)
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.mmcc import accountant as mmcc
from hockeystick.accountants.mmcc import generalized as generalized_mmcc
from hockeystick.accountants.moment_majorant import accountant as moment_majorant
from hockeystick.accountants.moment_majorant import cells as moment_majorant_cells
from hockeystick.accountants.monte_carlo import accountant as monte_carlo
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


def accountant(name: str) -> Accountant:
    """The accountant of this name; raises InvalidInputError with the known names otherwise."""
    if name not in ACCOUNTANTS:
        raise InvalidInputError(f"The 'method' field must be one of {', '.join(ACCOUNTANTS)}. Got {name!r} instead.")
    return ACCOUNTANTS[name]
