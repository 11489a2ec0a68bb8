"""Listings of strategies, samplers, accountants, generators, and of which accountant supports which combination."""

from collections.abc import Callable
from inspect import getdoc


def listing(topic: str) -> list[dict[str, str]]:
    """Rows with a name and a one-line summary for one of the topics of ``hockeystick list``."""
    return _TOPICS[topic]()


def _strategies() -> list[dict[str, str]]:
    from hockeystick.strategies import STRATEGIES

    return [{"name": kind, "summary": _first_line(family)} for kind, family in STRATEGIES.items()]


def _samplers() -> list[dict[str, str]]:
    from hockeystick.samplers import SAMPLERS

    return [{"name": kind, "summary": _first_line(scheme)} for kind, scheme in SAMPLERS.items()]


def _accountants() -> list[dict[str, str]]:
    from hockeystick.accountants.registry import DEFAULT, every_accountant

    return [
        {
            "name": accountant.name,
            "sides": " and ".join(side.value for side in accountant.sides),
            "runs": "default" if accountant.name in DEFAULT else "named",
            "summary": f"{' and '.join(side.value for side in accountant.sides)}: {accountant.summary}",
            "errs": accountant.errs,
            "reference": accountant.reference,
        }
        for accountant in every_accountant().values()
    ]


def _support() -> list[dict[str, str]]:
    from hockeystick.accountants.registry import every_accountant
    from hockeystick.pairs.registry import PAIRS, pair_types

    rows = []
    for strategy, sampler in PAIRS:
        kinds = pair_types(strategy, sampler)
        names = [
            accountant.name
            for accountant in every_accountant().values()
            if any(accountant.covers(kind) for kind in kinds)
        ]
        rows.append({"name": f"{strategy} with {sampler}", "summary": ", ".join(names)})
    return rows


def _generators() -> list[dict[str, str]]:
    from hockeystick.noise.generators import GENERATORS

    return [
        {
            "name": generator.name,
            "summary": f"from {generator.lowest:.4f} to {generator.highest:.4f}: {generator.established}",
        }
        for generator in GENERATORS.values()
    ]


def _first_line(thing: type) -> str:
    return (getdoc(thing) or "").split("\n")[0].replace("``", "'")


_TOPICS: dict[str, Callable[[], list[dict[str, str]]]] = {
    "strategies": _strategies,
    "samplers": _samplers,
    "accountants": _accountants,
    "support": _support,
    "generators": _generators,
}
