"""Plans with [[phase]] tables."""

import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError

POISSON = {"data": {"epochs": 2}, "sampler": {"kind": "poisson"}, "noise_multiplier": 1.0}
BINS = {"data": {"epochs": 1, "batch_size": 50}, "sampler": {"kind": "balls_in_bins"}, "noise_multiplier": 2.0}
SHARED = {"num_examples": 1000, "batch_size": 100}


def phases(*tables, **others):
    return hs.Phases.parse({"data": SHARED, "phase": list(tables), **others})


def test_each_phase_is_a_plan_that_shares_the_data():
    first, second = phases(POISSON, BINS).mechanisms()
    assert (first.sampler.sampling_prob, first.sampler.steps, first.sigma) == (0.1, 20, 1.0)
    assert (second.sampler.bins, second.sampler.epochs, second.sigma) == (20, 1, 2.0)


def test_phases_compose_as_their_mechanisms_do():
    plan = phases(POISSON, BINS, target={"delta": 1e-5})
    assert plan.target.delta == 1e-5
    alone = [hs.certify(mechanism, delta=1e-5).epsilon.upper for mechanism in plan.mechanisms()]
    together = hs.compose(plan.mechanisms(), delta=1e-5)
    assert max(alone) < together.epsilon.upper < sum(alone)
    assert hs.compose(plan.plans, delta=1e-5) == together


def test_a_plan_without_phases_is_one_phase(tmp_path):
    (tmp_path / "plan.toml").write_text(
        "noise_multiplier = 1.0\nsampler.kind = 'poisson'\n[data]\nnum_examples = 1000\nbatch_size = 100\nepochs = 1\n"
    )
    assert [mechanism.sampler.steps for mechanism in hs.Phases.load(tmp_path / "plan.toml").mechanisms()] == [10]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"data": SHARED, "phase": []}, "1 to 1000 tables"),
        ({"data": SHARED, "phase": {"sampler": {}}}, "'phase'"),
        ({"data": SHARED, "phase": [3]}, "'phase'"),
        ({"data": SHARED, "phase": [POISSON], "sampler": {"kind": "poisson"}}, "'sampler' field is not known beside"),
        ({"data": 3, "phase": [POISSON]}, "'data'"),
        ({"data": SHARED, "phase": [POISSON, {**BINS, "data": 3}]}, "Phase 2: The 'data' field must be a table. Got 3"),
        (
            {"data": SHARED, "phase": [{**POISSON, "target": {"delta": 1e-5}}]},
            "Phase 1: The 'target' table must be at top level",
        ),
        ({"data": SHARED, "phase": [POISSON, {**BINS, "noise_multiplier": -1.0}]}, "Phase 2: .*noise_multiplier"),
        ({"data": SHARED, "phase": [POISSON], "target": {"delta": 2.0}}, "'delta'"),
        ({"phase": [POISSON]}, "Phase 1: .*num_examples"),
    ],
)
def test_bad_phases_are_named(values, named):
    with pytest.raises(InvalidInputError, match=named):
        hs.Phases.parse(values)


def test_a_phase_without_noise_is_named():
    quiet = {name: value for name, value in BINS.items() if name != "noise_multiplier"}
    with pytest.raises(InvalidInputError, match="Phase 2: The 'noise_multiplier' field is missing"):
        phases(POISSON, quiet).mechanisms()
