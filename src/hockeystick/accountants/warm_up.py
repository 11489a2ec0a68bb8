"""Compiling ahead of a measured computation what the accountants of a mechanism run."""

from collections.abc import Collection
from functools import cache

from hockeystick.accountants.registry import ACCOUNTANTS, accountant
from hockeystick.mechanism import Mechanism
from hockeystick.pairs.registry import pair_types, registered


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
