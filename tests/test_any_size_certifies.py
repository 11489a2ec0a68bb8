"""Runs of sizes that no batch size divides certify under every sampler that people use for them.

Reference: the MNIST example of Opacus, sigma = 1.1, delta = 1e-5 and 15 epochs at rate 1/235, by dp_accounting's
privacy loss distributions: epsilon 1.132.
"""

from typing import Any

import pytest

import hockeystick as hs

MNIST = {"num_examples": 60_000, "batch_size": 256, "epochs": 15}
LORA = {"num_examples": 180_000, "batch_size": 2048, "epochs": 3}
SAMPLERS = [
    {"kind": "poisson"},
    {"kind": "balls_in_bins"},
    {"kind": "random_allocation"},
    {"kind": "shuffle", "remainder": "drop"},
    {"kind": "shuffle", "remainder": "short"},
    {"kind": "deterministic", "remainder": "drop"},
    {"kind": "deterministic", "remainder": "short"},
    {"kind": "b_min_sep", "min_sep": 20},
]


def certified(data: dict[str, Any], sampler: dict[str, Any], sigma: float = 1.1) -> hs.Certificate:
    plan = hs.Plan.parse({"data": data, "sampler": sampler, "noise_multiplier": sigma})
    return hs.certify(plan.mechanism(), delta=1e-5)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: "-".join(map(str, sampler.values())))
@pytest.mark.parametrize("data", [MNIST, LORA], ids=["mnist", "lora"])
def test_it_certifies(data: dict[str, Any], sampler: dict[str, Any]) -> None:
    bounds = certified(data, sampler).bounds
    full = certified(data, {"kind": "deterministic", "remainder": "drop"}).bounds.upper
    assert bounds.lower is None or bounds.lower <= bounds.upper
    if sampler["kind"] in ("shuffle", "deterministic"):
        assert bounds.upper == pytest.approx(full, rel=1e-12)  # one participation in an epoch, in known batches
    elif sampler["kind"] != "b_min_sep":
        assert bounds.upper < full


def test_the_rate_of_one_in_235_is_what_others_find() -> None:
    data = {"num_examples": 60_000, "batches_per_epoch": 235, "epochs": 15}
    bounds = certified(data, {"kind": "poisson"}).bounds
    assert bounds.lower is not None
    assert bounds.lower <= 1.1325
    assert bounds.upper >= 1.1315
    assert bounds.upper <= bounds.lower * 1.001


def test_less_than_one_pass_costs_less_than_one() -> None:
    half, whole = (certified(MNIST | {"epochs": epochs}, {"kind": "poisson"}).bounds.upper for epochs in (0.5, 1))
    assert half < whole
