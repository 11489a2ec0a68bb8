"""The option --generator: refusals, numbers and files."""

import pytest

from hockeystick.certificate import Certificate
from hockeystick.noise import GENERATORS, floor

FIXED = {"sampler.kind": '"deterministic"'}


@pytest.fixture
def fixed(cli):
    """Commands on a plan of fixed batches, which needs the Gaussian alone."""
    cli.write_plan(FIXED)
    return cli


def test_a_delta_below_the_floor_is_refused_by_every_command(fixed) -> None:
    options = ("plan.toml", "--generator", "jax-bfloat16")
    for command in (("epsilon", *options), ("delta", *options, "--epsilon", "60")):
        fixed.refuses(*command, says=["jax-bfloat16", "more noise"], code=1)
    for command in ("epsilon", "delta", "calibrate"):
        fixed.refuses(command, "plan.toml", "--generator", "numpy", says=["'generator'", "jax-float32", "'numpy'"])


def test_the_name_is_in_numbers_and_files(fixed) -> None:
    result = fixed("calibrate", "plan.toml", "--generator", "jax-float32", "--json", "--out", "certificate.json")
    certificate = Certificate.load("certificate.json")
    assert certificate.generator is not None
    assert result.json["generator"] == certificate.generator.model_dump()
    assert certificate.generator.floor == floor(certificate.mechanism, "jax-float32") <= certificate.delta
    assert "jax-float32" in fixed("show", "certificate.json").out
    assert "verified" in fixed("verify", "certificate.json").out
    assert "generator" not in fixed("calibrate", "plan.toml", "--json", "--out", "own.json").json


def test_generators_are_listed(cli) -> None:
    listed = cli("list", "generators", "--json").json["generators"]
    assert [row["name"] for row in listed] == list(GENERATORS)
    assert "from -5.4200 to 5.2201" in listed[0]["summary"]
