"""All accountants: one line each."""

from hockeystick.accountants import (
    bin_filter,
    comparison,
    conditional_composition,
    direct,
    dong_chen_ozgur,
    fresh_epochs,
    gaussian,
    hidden_chain,
    linear_statistic,
    mmcc,
    moment_majorant,
    moment_majorant_cells,
    monte_carlo,
    moving_average,
    participation_windows,
    projection,
    row_filter,
    separated_windows,
    shuffle_clones,
    shuffle_thresholds,
    split_noise,
)
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.published import (
    analytic,
    bin_renyi,
    decomposition,
    generalized_mmcc,
    renyi,
    shuffled_tree,
)
from hockeystick.accountants.retired import RETIRED
from hockeystick.errors import InvalidInputError

ACCOUNTANTS: dict[str, Accountant] = {
    module.ACCOUNTANT.name: module.ACCOUNTANT
    for module in (
        gaussian,
        direct,
        projection,
        linear_statistic,
        row_filter,
        split_noise,
        participation_windows,
        separated_windows,
        fresh_epochs,
        renyi,
        dong_chen_ozgur,
        analytic,
        decomposition,
        comparison,
        moment_majorant,
        moment_majorant_cells,
        hidden_chain,
        moving_average,
        bin_filter,
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


PUBLISHED = frozenset({"renyi", "analytic", "decomposition", "bin_renyi", "generalized_mmcc"})
"""Published methods that are never the best (docs/reference/standing.md): run when named, and by compare."""
DEFAULT = tuple(name for name, one in ACCOUNTANTS.items() if name not in PUBLISHED and one.assumes is None)
"""What certify and calibrate run, ``monte_carlo`` only where it is allowed."""


def accountant(name: str) -> Accountant:
    """The accountant of this name; raises InvalidInputError with the known names otherwise."""
    if name not in ACCOUNTANTS:
        raise InvalidInputError(f"The 'method' field must be one of {', '.join(ACCOUNTANTS)}. Got {name!r} instead.")
    return ACCOUNTANTS[name]


def reference_of(name: str) -> str:
    """Where the proof is of a method that a certificate names, retired ones included."""
    return RETIRED[name].reference if name in RETIRED else ACCOUNTANTS[name].reference


def assumed_by(name: str) -> str | None:
    """What such a method assumes of the run beyond what its mechanism says; none that was retired assumed anything."""
    return None if name in RETIRED else ACCOUNTANTS[name].assumes
