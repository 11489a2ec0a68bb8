"""All accountants of the library, one line each, and the one place that asks for those of the papers.

Also what compiles the kernels of accountants ahead of a measured computation.
"""

from collections.abc import Collection
from functools import cache

from hockeystick.accountants import (
    backward_induction,
    bin_filter,
    comparison,
    conditional_composition,
    direct,
    dong_chen_ozgur,
    fresh_epochs,
    gaussian,
    linear_statistic,
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
    without_replacement,
)
from hockeystick.accountants.base import Accountant
from hockeystick.accountants.retired import RETIRED
from hockeystick.errors import InvalidInputError, UnsupportedError, shortened
from hockeystick.mechanism import Mechanism
from hockeystick.misspelt import nearby
from hockeystick.pairs.registry import pair_types, registered

INSTALL_PAPERS = "run pip install . in your clone of hockeystick"
"""How to get the methods of the papers."""

OTHER_METHODS = {"moments": "renyi", "pld": "direct", "prv": "direct", "rdp": "renyi"}
"""What other libraries call what these accountants do."""

ACCOUNTANTS: dict[str, Accountant] = {
    module.ACCOUNTANT.name: module.ACCOUNTANT
    for module in (
        gaussian,
        direct,
        without_replacement,
        backward_induction,
        projection,
        linear_statistic,
        row_filter,
        split_noise,
        participation_windows,
        separated_windows,
        fresh_epochs,
        dong_chen_ozgur,
        comparison,
        moment_majorant,
        moment_majorant_cells,
        moving_average,
        bin_filter,
        conditional_composition,
        shuffle_thresholds,
        shuffle_clones,
        monte_carlo,
    )
}
DEFAULT = tuple(name for name, accountant in ACCOUNTANTS.items() if accountant.assumes is None)
"""What certify and calibrate run, ``monte_carlo`` only where it is allowed."""


@cache
def published() -> dict[str, Accountant]:
    """Methods of the literature that are never the best here: run when they are named, and by compare.

    Empty where the package that has them, which stands beside the papers, is not installed.
    """
    try:
        from hockeystick_papers import ACCOUNTANTS as of_papers
    except ModuleNotFoundError as error:
        if error.name != "hockeystick_papers":
            raise
        return {}
    return of_papers


def every_accountant() -> dict[str, Accountant]:
    """Those of the library and, where they are installed, of the papers."""
    return ACCOUNTANTS | published()


def accountant(name: str) -> Accountant:
    """The accountant of this name; raises InvalidInputError with those that resemble it otherwise."""
    given = shortened(name)
    name = name if isinstance(name, str) else given
    if name in ACCOUNTANTS:
        return ACCOUNTANTS[name]
    known = every_accountant()
    if name in known:
        return known[name]
    retired = RETIRED.get(name)
    if retired is not None and retired.in_papers:
        raise UnsupportedError(
            f"The method {name!r} is in the package hockeystick_papers, which is not installed; {INSTALL_PAPERS}."
        )
    gone = "" if retired is None else f", which was retired in {retired.since},"
    near = nearby(OTHER_METHODS.get(name, name), known) if retired is None else []
    hint = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
    raise InvalidInputError(
        "The 'method' field must be the name of an accountant, as 'hockeystick list accountants' shows them. "
        f"Got {given}{gone} instead{hint}."
    )


def reference_of(name: str) -> str:
    """Where the proof is of a method that a certificate names, retired ones included."""
    return RETIRED[name].reference if name in RETIRED else ACCOUNTANTS[name].reference


def assumed_by(name: str) -> str | None:
    """What such a method assumes of the run beyond what its mechanism says."""
    return RETIRED[name].assumes if name in RETIRED else ACCOUNTANTS[name].assumes


def warm_up(mechanism: Mechanism | None = None, methods: Collection[str] | None = None) -> None:
    """Compile the kernels, or load them from the cache: up to a minute the first time on a machine, then a second.

    A second call in the same process costs nothing.

    Args:
        mechanism: compile also what the accountants that cover it run on their own.
        methods: the accountants that will run; None for all of the library.
    """
    _warm_up_laws()
    key = None if mechanism is None else registered(mechanism.strategy.kind, mechanism.sampler.kind)
    if key is None:
        return
    for name in ACCOUNTANTS if methods is None else methods:
        if any(accountant(name).covers(kind) for kind in pair_types(*key)):
            _warm_up_one(name)


@cache
def _warm_up_laws() -> None:
    from hockeystick.laws.warm_up import compile_kernels

    compile_kernels()


@cache
def _warm_up_one(name: str) -> None:
    """Once in a process, however many mechanisms the accountant covers."""
    accountant(name).warm_up()
