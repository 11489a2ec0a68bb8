"""Histories and configurations of Opacus, JAX Privacy and opake: round trips, and refusals of what differs."""

from dataclasses import make_dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hockeystick as hs
from hockeystick.errors import HockeystickError, InvalidInputError, UnsupportedError
from hockeystick.interop.jax_privacy import (
    from_jax_privacy,
    generator_from_jax_privacy,
    sampler_from_jax_privacy,
    sampler_to_jax_privacy,
    to_jax_privacy,
)
from hockeystick.interop.opacus import drawn_rate, from_opacus, to_opacus
from hockeystick.interop.opake import from_opake, to_opake

sigmas = st.floats(0.05, 100.0)
rates = st.floats(1e-6, 1.0)
counts = st.integers(1, 10_000)
poisson_runs = st.builds(
    lambda sigma, rate, steps: hs.Mechanism(
        sampler=hs.Poisson(sampling_prob=rate, steps=steps), noise_multiplier=sigma
    ),
    sigmas,
    rates,
    counts,
)


def as_objects(described: object) -> object:
    """A table with a ``type``, and all tables in it, as an object of a class of that name."""
    if not isinstance(described, dict):
        return described
    fields = {name: as_objects(value) for name, value in described.items() if name != "type"}
    return make_dataclass(described["type"], fields)(**fields)


def refused(call, *parts: str) -> None:
    """The call raises one sentence with these parts."""
    with pytest.raises(HockeystickError) as caught:
        call()
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    for part in parts:
        assert part in sentence


# Opacus


@given(st.lists(st.builds(lambda run, length: (run, length), poisson_runs, counts), min_size=1, max_size=5))
def test_opacus_histories_round_trip(drawn: list[tuple[hs.Mechanism, int]]) -> None:
    """Of loaders of any length; the rate comes back as the one that is drawn."""
    runs = [
        hs.Mechanism(
            sampler=hs.Poisson(sampling_prob=drawn_rate(1 / length), steps=run.sampler.steps),
            noise_multiplier=run.sigma,
        )
        for run, length in drawn
    ]
    history = [(run.sigma, 1 / length, run.sampler.steps) for run, length in drawn]
    told = {"history": history, "mechanism": "hockeystick"}
    assert from_opacus(told, poisson_sampling=True) == tuple(runs)
    assert from_opacus(SimpleNamespace(**told), poisson_sampling=True) == tuple(runs)
    assert from_opacus(told | {"history": to_opacus(runs)}, poisson_sampling=True) == tuple(runs)


def test_opacus_without_poisson_sampling_is_refused() -> None:
    refused(lambda: from_opacus([(1.0, 0.01, 10)], poisson_sampling=False), "Poisson", "poisson_sampling=False")


@pytest.mark.parametrize(
    ("history", "named"),
    [
        ([], "history"),
        (None, "history"),
        ({}, "history"),
        ([(1.0, 0.1)], "entries"),
        ([(1.0, 0.1, 0)], "num_steps"),
        ([(1.0, 0.1, 2.5)], "num_steps"),
        ([(0.0, 0.1, 2)], "noise_multiplier"),
        ([(1.0, 1.5, 2)], "sample_rate"),
        ([("a", 0.1, 2)], "noise_multiplier"),
        ([(1.0, 5e-324, 2)], "sample_rate"),
        ([(1.0, np.nan, 2)], "sample_rate"),
        ([(np.True_, 0.1, 2)], "noise_multiplier"),
    ],
)
def test_what_is_no_opacus_history_is_refused(history: object, named: str) -> None:
    with pytest.raises(InvalidInputError, match=named):
        from_opacus(history, poisson_sampling=True)


@pytest.mark.parametrize(
    ("run", "named"),
    [
        (hs.Mechanism(sampler=hs.Shuffle(batch_size=10, bins=10), noise_multiplier=1.0), "shuffle"),
        (hs.Mechanism(sampler=hs.BallsInBins(bins=10), noise_multiplier=1.0), "balls_in_bins"),
        (
            hs.Mechanism(
                sampler=hs.Poisson(sampling_prob=0.1, steps=10, truncated_batch_size=9, num_examples=50),
                noise_multiplier=1.0,
            ),
            "truncat",
        ),
        (
            hs.Mechanism(
                strategy=hs.BandedSquareRoot(bands=2),
                sampler=hs.Poisson(sampling_prob=0.1, steps=10),
                noise_multiplier=1.0,
            ),
            "banded_square_root",
        ),
    ],
)
def test_what_opacus_does_not_account_for_is_refused(run: hs.Mechanism, named: str) -> None:
    refused(lambda: to_opacus([run]), named)


UNITS = [
    hs.Unit(kind="user", examples_per_user=4),
    hs.Unit(neighbours="replace"),
    hs.Unit(kind="user", examples_per_user=1, neighbours="replace"),
]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: f"{unit.kind}-{unit.neighbours}")
@pytest.mark.parametrize("convert", [lambda run: to_opacus([run]), to_jax_privacy, lambda run: to_opake([run])])
def test_units_that_other_libraries_cannot_say_are_refused(unit, convert) -> None:
    """Their epsilon of the description would be for one example: 2.35 where that of these users is 10.95."""
    run = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=5), noise_multiplier=1.0)
    assert convert(run)
    refused(lambda: convert(run.model_copy(update={"unit": unit})), "unit", unit.neighbours)


# JAX Privacy

SAMPLERS = [
    hs.Poisson(sampling_prob=0.01, steps=100),
    hs.Poisson(sampling_prob=0.01, steps=100, truncated_batch_size=20, num_examples=1000),
    hs.CyclicPoisson(groups=4, sampling_prob=0.04, steps=100, partition="equal"),
    hs.CyclicPoisson(groups=4, sampling_prob=0.04, steps=100, partition="independent"),
    hs.BallsInBins(bins=20, epochs=3),
    hs.BMinSep(min_sep=4, sampling_prob=0.1, steps=50),
    hs.BMinSep(min_sep=4, sampling_prob=0.25, steps=50, warm_start=False),
]


WRONG_COUNTS = [True, np.True_, 1.0, 1j, np.array([1]), np.array([]), 10**60, "1", None, 0, -1, np.nan]
WRONG_RATES = [-0.5, 0.0, -0.0, 1.5, np.nan, np.inf, -np.inf, True, np.True_, np.array([0.5]), np.array(0.5), 1j, "0.5"]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: sampler.kind)
@pytest.mark.parametrize("form", [lambda table: table, as_objects], ids=["table", "object"])
def test_jax_privacy_samplers_round_trip(sampler, form) -> None:
    back = sampler_from_jax_privacy(form(sampler_to_jax_privacy(sampler)), num_examples=1000)
    if isinstance(sampler, hs.BMinSep):  # the rate goes through a quotient and back
        assert back.participation_prob == pytest.approx(sampler.participation_prob, rel=1e-14)
        back = back.model_copy(update={"sampling_prob": sampler.sampling_prob})
    assert back == sampler


def test_jax_privacy_b_min_sep_rates_are_those_of_available_examples() -> None:
    """Against their documentation: the expected batch is n / (min_sep - 1 + 1 / sampling_prob)."""
    described = {"type": "BMinSepSampling", "sampling_prob": 0.2, "iterations": 10, "min_sep": 3}
    assert sampler_from_jax_privacy(described).sampling_prob == pytest.approx(1.0 / (2.0 + 5.0), rel=1e-15)


@pytest.mark.parametrize(
    ("described", "named"),
    [
        ({"type": "FixedBatchSampling", "batch_size": 5, "iterations": 9}, "FixedBatchSampling"),
        ({"type": "UserSelectionStrategy"}, "UserSelectionStrategy"),
        ({"type": "BallsInBinsSampling", "iterations": 50, "cycle_length": 20}, "multiple"),
        ({"type": "BallsInBinsSampling", "iterations": 50}, "cycle_length"),
        (sampler_to_jax_privacy(SAMPLERS[2]) | {"truncated_batch_size": 5}, "Truncated"),
        (sampler_to_jax_privacy(SAMPLERS[2]) | {"partition_type": "OTHER"}, "partition_type"),
        (sampler_to_jax_privacy(SAMPLERS[0]) | {"sampling_prob": 0.0}, "sampling_prob"),
        (sampler_to_jax_privacy(SAMPLERS[0]) | {"truncated_batch_size": 5}, "num_examples"),
        *[(sampler_to_jax_privacy(SAMPLERS[0]) | {"cycle_length": wrong}, "cycle_length") for wrong in WRONG_COUNTS],
        *[(sampler_to_jax_privacy(SAMPLERS[5]) | {"min_sep": wrong}, "min_sep") for wrong in WRONG_COUNTS],
        *[(sampler_to_jax_privacy(SAMPLERS[5]) | {"sampling_prob": wrong}, "sampling_prob") for wrong in WRONG_RATES],
        (sampler_to_jax_privacy(SAMPLERS[2]) | {"partition_type": 1}, "partition_type"),
        (object(), "object"),
    ],
)
def test_jax_privacy_samplers_without_a_counterpart_are_refused(described: object, named: str) -> None:
    refused(lambda: sampler_from_jax_privacy(described), named)


def test_samplers_that_jax_privacy_has_not_are_refused() -> None:
    refused(lambda: sampler_to_jax_privacy(hs.RandomAllocation(bins=5)), "random_allocation")


@given(poisson_runs)
def test_jax_privacy_configurations_round_trip(run: hs.Mechanism) -> None:
    assert from_jax_privacy(to_jax_privacy(run)) == run
    assert from_jax_privacy(as_objects(to_jax_privacy(run))) == run


CONFIG = {"type": "BandMFExecutionPlanConfig", "iterations": 10, "strategy": [1.0], "sampling_prob": 0.1}
WRONG_BANDS = [[0.0], [-0.0], [np.nan], [np.inf], [1e-40], [1e39], [True], ["1"], [1j], [None], [], 1.0, None, "1"]
"""JAX Privacy multiplies the noise by the size of the band, in float32: none of these gives noise, or is a list."""


@pytest.mark.parametrize(
    ("described", "named"),
    [
        (CONFIG | {"strategy": [1.0, 0.5]}, "2 bands"),
        *[(CONFIG | {"strategy": wrong}, "strategy") for wrong in WRONG_BANDS],
        (CONFIG | {"column_normalize": True}, "column_normalize"),
        (CONFIG | {"noise_multiplier": np.True_}, "noise_multiplier"),
        (CONFIG | {"accountant": {"neighboring_relation": "replace_one"}}, "replace_one"),
        (CONFIG | {"accountant": {"neighboring_relation": 2}}, "neighboring_relation"),
        (CONFIG | {"accountant": SimpleNamespace(neighboring_relation="REPLACE_ONE")}, "REPLACE_ONE"),
        (CONFIG | {"truncated_batch_size": 5}, "num_examples"),
        (CONFIG | {"iterations": 0}, "iterations"),
        (CONFIG | {"dtype": "bfloat16"}, "jax-bfloat16"),
        (CONFIG | {"dtype": "float16"}, "jax-float16"),
        (CONFIG | {"dtype": "int32"}, "int32"),
        ({"type": "Other"}, "Other"),
    ],
)
def test_jax_privacy_configurations_without_a_counterpart_are_refused(described: object, named: str) -> None:
    refused(lambda: from_jax_privacy(described), named)


def test_a_configuration_names_the_generator_of_its_noise() -> None:
    assert generator_from_jax_privacy(CONFIG) == "jax-float32"
    for dtype in (np.float32, np.dtype("float32"), "float32"):
        assert generator_from_jax_privacy(CONFIG | {"dtype": dtype}) == "jax-float32"
        assert from_jax_privacy(CONFIG | {"dtype": dtype}) == from_jax_privacy(CONFIG)
    assert generator_from_jax_privacy(CONFIG | {"dtype": "bfloat16"}) == "jax-bfloat16"
    refused(lambda: generator_from_jax_privacy({"type": "DPExecutionPlan"}), "DPExecutionPlan")


@pytest.mark.parametrize("band", [1.0, -0.1, 3.0, 1e-6, 1e6, np.float32(0.1)])
@pytest.mark.parametrize("as_list", [list, tuple, np.array])
def test_a_band_of_any_size_is_the_identity(band, as_list) -> None:
    assert from_jax_privacy(CONFIG | {"strategy": as_list([band])}) == from_jax_privacy(CONFIG)


@pytest.mark.parametrize(("band", "normalised"), [(-0.1, False), (1e-6, False), (1e6, False), (0.1, True), (3.0, True)])
def test_noise_of_jax_privacy_is_the_converted_or_refused(band: float, normalised: bool) -> None:
    """Against what the library adds: 30,000 numbers, whose deviation is 2 percent off with chance 1e-12."""
    config = pytest.importorskip("jax_privacy.experimental.execution_plan").BandMFExecutionPlanConfig
    nothing = pytest.importorskip("jax.numpy").zeros(30_000)
    shown = {"iterations": 2, "sampling_prob": 0.5, "noise_multiplier": 2.0, "noise_seed": 1}
    made = config(strategy=np.array([band]), column_normalize=normalised, epsilon=None, delta=None, **shown)
    transform = made.plan.noise_addition_transform
    added, _ = transform.update(nothing, transform.init(nothing))
    if abs(float(np.std(added)) - 2.0) > 5 * 2.0 / np.sqrt(60_000):
        refused(lambda: from_jax_privacy(made), "column_normalize")
    else:
        assert from_jax_privacy(made).sigma == 2.0


def test_types_of_jax_are_read() -> None:
    jnp = pytest.importorskip("jax.numpy")
    config = pytest.importorskip("jax_privacy.experimental.execution_plan").BandMFExecutionPlanConfig
    made = config(
        iterations=10, strategy=np.ones(1), epsilon=None, delta=None, noise_multiplier=1.0, dtype=jnp.bfloat16
    )
    assert generator_from_jax_privacy(made) == "jax-bfloat16"
    refused(lambda: from_jax_privacy(made), "jax-bfloat16", "dtype = float32")


def test_a_configuration_that_is_to_be_calibrated_has_no_noise_yet() -> None:
    assert from_jax_privacy(CONFIG | {"epsilon": 1.0, "delta": 1e-5}).noise_multiplier is None


def test_jax_privacy_plans_are_converted_only_if_they_account_for_their_sampler() -> None:
    events = pytest.importorskip("dp_accounting").dp_event
    step = events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(1.5))
    poisson = events.SelfComposedDpEvent(step, 100)

    def plan(sampler: dict[str, object], event: object) -> dict[str, object]:
        return {"type": "DPExecutionPlan", "batch_selection_strategy": sampler, "dp_event": event}

    good = sampler_to_jax_privacy(SAMPLERS[0])
    assert from_jax_privacy(plan(good, poisson)) == hs.Mechanism(sampler=SAMPLERS[0], noise_multiplier=1.5)
    substituted = plan(good, poisson) | {"neighboring_relation": "REPLACE_ONE"}  # whose noise is twice as large
    refused(lambda: from_jax_privacy(substituted), "REPLACE_ONE")
    bins = {"type": "BallsInBinsSampling", "iterations": 100, "cycle_length": 100}
    refused(lambda: from_jax_privacy(plan(bins, poisson)), "BallsInBinsSampling", "another sampler")
    refused(lambda: from_jax_privacy(plan(good | {"iterations": 101}, poisson)), "another sampler")
    refused(lambda: from_jax_privacy(plan(good | {"sampling_prob": 0.02}, poisson)), "another sampler")
    refused(lambda: from_jax_privacy(plan(sampler_to_jax_privacy(SAMPLERS[2]), poisson)), "several bands")
    fixed = {"type": "FixedBatchSampling", "batch_size": 5, "iterations": 100}
    refused(lambda: from_jax_privacy(plan(fixed, poisson)), "FixedBatchSampling")


# opake

GAUSSIAN = {"type": "Gaussian", "noise_multiplier": 1.2}
STEP = {"type": "Poisson", "inner": GAUSSIAN, "sample_rate": 0.01}

allocations = st.builds(
    lambda sigma, bins, picks, epochs: hs.Mechanism(
        sampler=hs.RandomAllocation(bins=bins, participations=min(picks, bins), epochs=epochs), noise_multiplier=sigma
    ),
    sigmas,
    st.integers(1, 1000),
    st.integers(1, 5),
    st.integers(1, 20),
)
full_batches = st.builds(
    lambda sigma, epochs: hs.Mechanism(sampler=hs.Deterministic(bins=1, epochs=epochs), noise_multiplier=sigma),
    sigmas,
    counts,
)


@given(
    st.lists(st.one_of(poisson_runs, allocations, full_batches), min_size=1, max_size=5, unique_by=lambda m: m.sigma)
)
def test_opake_processes_round_trip(runs: list[hs.Mechanism]) -> None:
    assert from_opake(to_opake(runs)) == tuple(runs)
    assert from_opake(as_objects(to_opake(runs))) == tuple(runs)


def test_opake_phases_that_are_equal_are_counted_together() -> None:
    process = {
        "type": "Composed",
        "left": {"type": "Repeated", "inner": STEP, "count": 5},
        "right": {"type": "Repeated", "inner": {"type": "Composed", "left": STEP, "right": GAUSSIAN}, "count": 3},
    }
    first, second = from_opake(process)
    assert first.sampler == hs.Poisson(sampling_prob=0.01, steps=8)
    assert second.sampler == hs.Deterministic(bins=1, epochs=3)


def test_opake_blocks_are_epochs_of_random_allocation() -> None:
    process = {"type": "KOutOfT", "inner": GAUSSIAN, "k": 4, "n_steps": 40, "allocation": "block"}
    assert from_opake(process)[0].sampler == hs.RandomAllocation(bins=10, epochs=4)
    assert from_opake(process, sampler="KOutOfTSampler") == from_opake(process)
    refused(lambda: from_opake(process | {"n_steps": 41}), "4", "41")


@pytest.mark.parametrize(
    "sampler", ["SequentialBatchSampler", "BallsInBinsSampler", "RandomSampler", {"type": "Shuffled"}]
)
def test_opake_processes_are_refused_for_another_sampler(sampler: object) -> None:
    assert from_opake(STEP, sampler={"type": "PoissonSampler"}) == from_opake(STEP)
    refused(lambda: from_opake(STEP, sampler=sampler), "accounts for 'poisson'")


ALLOCATED = {"type": "KOutOfT", "inner": GAUSSIAN, "k": 4, "n_steps": 40, "allocation": "block"}


@pytest.mark.parametrize("form", [lambda table: table, as_objects], ids=["table", "object"])
@pytest.mark.parametrize(
    ("process", "sampler", "named"),
    [
        (STEP, {"type": "PoissonSampler", "sample_rate": 0.05}, "sample_rate"),
        (STEP, {"type": "PoissonSampler", "truncated_batch_size": 5}, "truncated_batch_size"),
        (STEP, {"type": "PoissonSampler", "n_steps": 2}, "accounts for 1 steps but 2"),
        (STEP, {"type": "PoissonSampler", "sample_rate": np.array([0.01])}, "sample_rate"),
        (ALLOCATED, {"type": "KOutOfTSampler", "k": 4, "t": 40, "allocation": "blocks"}, "allocation"),
        (ALLOCATED, {"type": "KOutOfTSampler", "k": 4, "t": 40, "allocation": "total"}, "allocation|k = 1"),
        (ALLOCATED, {"type": "KOutOfTSampler", "k": 4, "t": 20, "allocation": "block"}, "t = 40"),
        (ALLOCATED, {"type": "KOutOfTSampler", "k": 8, "t": 80, "allocation": "block"}, "k = 4"),
        (
            ALLOCATED | {"allocation": "total"},
            {"type": "KOutOfTSampler", "k": 4, "t": 40, "allocation": "block"},
            "allocation",
        ),
        (
            ALLOCATED | {"allocation": "total"},
            {"type": "KOutOfTSampler", "k": 5, "t": 40, "allocation": "total"},
            "k = 4",
        ),
    ],
)
def test_opake_samplers_that_draw_otherwise_are_refused(process, sampler, named, form) -> None:
    with pytest.raises(UnsupportedError, match=named):
        from_opake(form(process), sampler=form(sampler))


@pytest.mark.parametrize(
    ("process", "sampler"),
    [
        (STEP, {"type": "PoissonSampler", "sample_rate": STEP["sample_rate"], "n_steps": 1}),
        ({"type": "Repeated", "inner": STEP, "count": 9}, {"type": "PoissonSampler", "n_steps": 9}),
        (ALLOCATED, {"type": "KOutOfTSampler", "k": 4, "t": 40, "allocation": "block"}),
        (
            {"type": "Repeated", "inner": ALLOCATED, "count": 2},
            {"type": "KOutOfTSampler", "k": 4, "t": 40, "allocation": "block"},
        ),
        (ALLOCATED | {"allocation": "total"}, {"type": "KOutOfTSampler", "k": 4, "t": 40, "allocation": "total"}),
    ],
)
def test_opake_samplers_that_draw_what_is_accounted_for_are_accepted(process, sampler) -> None:
    assert from_opake(process, sampler=sampler) == from_opake(process)


@pytest.mark.parametrize(
    ("process", "named"),
    [
        ({"type": "AdaClip", "inner": GAUSSIAN}, "AdaClip"),
        ({"type": "MfGaussian", "noise_multiplier": 1.0}, "MfGaussian"),
        (STEP | {"inner": {"type": "AdaClip", "inner": GAUSSIAN}}, "AdaClip"),
        ({"type": "Identity"}, "nothing"),
        ({"type": "Repeated", "inner": STEP, "count": 0}, "count"),
        ({"type": "KOutOfT", "inner": GAUSSIAN, "k": 2, "n_steps": 4, "allocation": "other"}, "allocation"),
        ({}, "''"),
    ],
)
def test_opake_processes_without_a_counterpart_are_refused(process: object, named: str) -> None:
    refused(lambda: from_opake(process), named)


@pytest.mark.parametrize("wrong", [np.nan, 0.5, 0, -1, True, 1j, "1", np.array(1), [1]])
def test_steps_of_an_opake_sampler_are_a_whole_number(wrong: object) -> None:
    refused(lambda: from_opake(STEP, sampler={"type": "PoissonSampler", "n_steps": wrong}), "n_steps")


def test_mechanisms_that_opake_has_not_are_refused() -> None:
    refused(lambda: to_opake([]), "mechanisms")
    refused(lambda: to_opake([hs.Mechanism(sampler=hs.BallsInBins(bins=5), noise_multiplier=1.0)]), "balls_in_bins")
    strategy = hs.BandedSquareRoot(bands=2)
    sampler = hs.Deterministic(bins=5)
    refused(
        lambda: to_opake([hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=1.0)]), "banded_square_root"
    )


def test_the_real_classes_of_jax_privacy_have_these_fields() -> None:
    """Where JAX Privacy is installed: its own samplers, not tables that we wrote."""
    batch_selection = pytest.importorskip("jax_privacy.batch_selection")
    assert (
        sampler_from_jax_privacy(
            batch_selection.CyclicPoissonSampling(sampling_prob=0.04, iterations=100, cycle_length=4)
        )
        == SAMPLERS[2]
    )
    assert sampler_from_jax_privacy(batch_selection.BallsInBinsSampling(iterations=60, cycle_length=20)) == SAMPLERS[4]
    with pytest.raises(UnsupportedError, match="FixedBatchSampling"):
        sampler_from_jax_privacy(batch_selection.FixedBatchSampling(batch_size=5, iterations=9))
