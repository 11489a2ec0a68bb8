"""Fields have to be named: who leaves the names out hears them, in one sentence."""

from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.samplers import SAMPLERS
from hockeystick.spec import Spec
from hockeystick.strategies import STRATEGIES

PUBLIC = {name: getattr(hs, name) for name in hs.__all__ if isinstance(getattr(hs, name), type)}
KEYWORD_ONLY = {
    name: described
    for name, described in PUBLIC.items()
    if issubclass(described, Spec)
    or (is_dataclass(described) and all(field.kw_only for field in fields(described)) and name != "Recommendation")
}
"""What users make; a recommendation is made by ``recommend``."""


def refusal(described: Any, *values: object, **named: object) -> str:
    with pytest.raises(InvalidInputError) as raised:
        described(*values, **named)
    return str(raised.value)


def test_there_are_such_types() -> None:
    schemes = {described.__name__ for described in (*SAMPLERS.values(), *STRATEGIES.values())}
    options = {"Limits", "MixtureSteps", "MonteCarlo", "SearchPolicy", "Workload"}
    assert schemes | options | {"Mechanism", "Plan", "Unit", "Certificate"} <= KEYWORD_ONLY.keys()


@pytest.mark.parametrize("name", KEYWORD_ONLY)
def test_a_value_without_a_name_is_refused_with_the_name_that_is_missing(name: str) -> None:
    described = KEYWORD_ONLY[name]
    said = refusal(described, 0.1, 3)
    assert said.endswith(f"Got {name}(0.1, 3) instead.")
    with suppress(InvalidInputError):  # where nothing is needed
        described()
        return
    field = refusal(described).split("'")[1]
    assert refusal(described).startswith(f"The {field!r} field is missing and has to be given")
    assert said.startswith(f"The fields of {name} must be given by name, as in {name}({field}=...")


@pytest.mark.parametrize(
    ("described", "values", "said"),
    [
        (
            hs.Poisson,
            (0.1, 3),
            "must be given by name, as in Poisson(sampling_prob=..., steps=...). Got Poisson(0.1, 3)",
        ),
        (hs.BandedToeplitz, (4,), "must be given by name, as in BandedToeplitz(bands=...). Got BandedToeplitz(4)"),
        (hs.Identity, (4,), "There are no fields to give to Identity. Got Identity(4)"),
        (hs.Unit, ("user", 3), "as in Unit(kind=..., examples_per_user=..., neighbours=...). Got Unit('user', 3)"),
        (hs.Plan, ("plan.toml",), "Got Plan('plan.toml') instead; Plan.load reads a file."),
        (
            hs.Workload,
            (0.9,),
            "as in Workload(momentum=..., schedule=..., weight_decay=..., measure=...). Got Workload(0.9)",
        ),
    ],
)
def test_what_it_says(described: Any, values: tuple[object, ...], said: str) -> None:
    assert said in refusal(described, *values)


def test_dataclasses_know_their_fields_as_descriptions_do() -> None:
    assert refusal(hs.Limits, memry=1e9) == "The 'memry' field is not known here (did you mean 'memory'?)."
    assert refusal(hs.MixtureSteps, noise_multiplier=1.0) == "The 'steps' field is missing and has to be given."
    assert replace(hs.SearchPolicy(work=3.0), heavy=1.0) == hs.SearchPolicy(work=3.0, heavy=1.0)
