"""get_noise_multiplier has Opacus' arguments, and hs.calibrate and hs.certify take a plan with its target."""

import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError

ASKED = {"target_epsilon": 3.0, "target_delta": 1e-5, "sample_rate": 0.1}
DATA = {"data": {"num_examples": 60, "batch_size": 6, "epochs": 2}, "sampler": {"kind": "poisson"}}


def plan_of(**target):
    return hs.Plan.parse(DATA | {"target": target})


def test_it_is_the_calibrated_noise():
    noise = hs.get_noise_multiplier(**ASKED, steps=20)
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=20), noise_multiplier=noise)
    certificate = hs.certify(run, delta=1e-5)
    assert certificate.epsilon.upper <= 3.0
    assert certificate.epsilon.lower > 3.0 - 0.01  # Opacus' epsilon_tolerance
    assert noise == hs.get_noise_multiplier(**ASKED, epochs=2, epsilon_tolerance=0.5)


@pytest.mark.parametrize(
    ("sample_rate", "epochs", "steps"), [(1 / 93, 10, 930), (1 / 99, 1, 99), (0.28, 10, 36), (0.9, 0.1, 1)]
)
def test_steps_are_rounded_up(sample_rate, epochs, steps, monkeypatch):
    """Where ``int(epochs / sample_rate)`` has one step fewer, or none."""
    seen = []

    def calibrate(mechanism, **_):
        seen.append(mechanism.sampler.steps)
        return mechanism.with_noise(1.0)

    monkeypatch.setattr("hockeystick.calibration.opacus.calibrate", calibrate)
    hs.get_noise_multiplier(**ASKED | {"sample_rate": sample_rate}, epochs=epochs)
    assert seen == [steps]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, "Exactly one of 'epochs' and 'steps'"),
        ({"epochs": 1, "steps": 10}, "Exactly one of 'epochs' and 'steps'"),
        ({"epochs": 0}, "'epochs' field must be positive"),
        ({"epochs": 1, "sample_rate": 1.5}, "'sample_rate' field must be above 0 and at most 1"),
        ({"steps": 1, "sample_rate": 1.5}, "'sample_rate' field must be above 0 and at most 1"),
        ({"steps": 1, "sample_rate": "0.1"}, "'sample_rate' field must be a number"),
        ({"steps": 1, "target_epsilon": "3"}, "'target_epsilon' field must be a number"),
        ({"steps": 1, "target_epsilon": 701.0}, "'target_epsilon' field must be above 0 and at most 700"),
        ({"steps": 1, "target_delta": 1.0}, "'target_delta' field must be from 1e-30 to below 1"),
        ({"steps": 1, "accountant": "moments"}, "'accountant' argument must be"),
        ({"steps": 1, "epsilon_tolerance": 0.0}, "'epsilon_tolerance' field must be above 0"),
        ({"steps": 1, "target_epsilon": -1.0}, "'target_epsilon' field must be above 0"),
    ],
)
def test_bad_arguments_are_named(changed, message):
    with pytest.raises(InvalidInputError, match=message):
        hs.get_noise_multiplier(**ASKED | changed)


def test_another_accountant_is_not_used():
    with pytest.warns(UserWarning, match="accountant='rdp' is not used: epsilon is hockeystick's"):
        hs.get_noise_multiplier(**ASKED, steps=1, accountant="rdp")


def test_plans_bring_their_target():
    plan = plan_of(epsilon=3.0, delta=1e-5)
    run = hs.calibrate(plan)
    assert run == hs.calibrate(plan.mechanism(), epsilon=3.0, delta=1e-5)
    noisy = plan.model_copy(update={"noise_multiplier": run.sigma})
    assert hs.certify(noisy) == hs.certify(run, delta=1e-5)
    assert hs.certify(noisy, epsilon=3.0) == hs.certify(run, epsilon=3.0)
    only_epsilon = noisy.model_copy(update={"target": plan_of(epsilon=3.0).target})
    assert hs.certify(only_epsilon) == hs.certify(run, epsilon=3.0)
    assert hs.bound(noisy, "direct").epsilon(1e-5) == hs.bound(run, "direct").epsilon(1e-5)


def test_what_is_missing_is_named():
    for plan, name in (
        (plan_of(delta=1e-5), "epsilon"),
        (plan_of(epsilon=1.0), "delta"),
        (plan_of().mechanism(), "epsilon"),
    ):
        with pytest.raises(
            InvalidInputError, match=rf"The '{name}' argument has to be given, or a plan whose \[target\] has it"
        ):
            hs.calibrate(plan)
    with pytest.raises(InvalidInputError, match="Exactly one of 'delta' and 'epsilon' must be given"):
        hs.certify(plan_of())
    with pytest.raises(InvalidInputError, match="'noise_multiplier' field is missing"):
        hs.certify(plan_of(epsilon=1.0, delta=1e-5))
    for act in (hs.calibrate, hs.certify, hs.compare, hs.profile):
        with pytest.raises(InvalidInputError, match="must be a Mechanism or a Plan"):
            act("plan.toml")
