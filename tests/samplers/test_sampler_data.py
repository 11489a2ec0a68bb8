"""What a plan says about the data, and what follows from it for each sampler."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hockeystick.errors import InvalidInputError
from hockeystick.samplers import (
    SAMPLERS,
    BallsInBins,
    BMinSepOptions,
    CyclicPoissonOptions,
    Data,
    DeterministicOptions,
    MultiAttributionOptions,
    Poisson,
    PoissonOptions,
    RandomAllocation,
    RandomAllocationOptions,
    SchemeOptions,
    Shuffle,
    ShuffleOptions,
)
from hockeystick.spec import Spec


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 1000))
def test_whole_epochs_however_the_length_is_given(batch_size: int, bins: int, epochs: int) -> None:
    sizes = {"num_examples": batch_size * bins, "batch_size": batch_size}
    steps = bins * epochs
    for data in (
        Data(**sizes, epochs=epochs),
        Data(**sizes, steps=steps),
        Data(**sizes, epochs=epochs, steps=steps),
    ):
        assert data.bins("balls_in_bins") == bins
        assert data.fixed_batches("shuffle", None) == (batch_size, bins, None)
        assert data.whole_epochs("shuffle", bins) == epochs
        assert data.total_steps("poisson") == steps
        assert float(data.rate) == batch_size / (batch_size * bins)


@given(st.integers(2, 10**9), st.data())
def test_suggested_batch_sizes_divide_the_data(num_examples: int, draw: st.DataObject) -> None:
    batch_size = draw.draw(st.integers(1, num_examples))
    data = Data(num_examples=num_examples, batch_size=batch_size, epochs=1)
    if num_examples % batch_size == 0:
        assert data.fixed_batches("shuffle", None).bins * batch_size == num_examples
        return
    with pytest.raises(InvalidInputError) as error:
        data.fixed_batches("shuffle", None)
    below, above = (int(word) for word in str(error.value).split("; ")[1].split() if word.isdigit())
    assert below < batch_size < above
    assert num_examples % below == num_examples % above == 0


def test_a_batch_size_that_does_not_divide_is_explained() -> None:
    data = Data(num_examples=50_000, batch_size=300, epochs=10)
    with pytest.raises(InvalidInputError) as error:
        ShuffleOptions().sampler(data)
    assert str(error.value) == (
        "The 'data.batch_size' field must divide num_examples = 50000 for kind = 'shuffle' unless 'sampler.remainder' "
        "is given. Got 300 instead; data.batch_size = 250 or 400 would do, and so would sampler.remainder = 'drop' or "
        "'short'."
    )


@pytest.mark.parametrize("options", [DeterministicOptions(), ShuffleOptions(), RandomAllocationOptions()])
def test_schemes_with_epochs_need_whole_ones(options: SchemeOptions) -> None:
    with pytest.raises(InvalidInputError, match=r"multiple of the 5 steps .* Got 12 instead; data.steps = 10 or 15 "):
        options.sampler(Data(num_examples=10, batch_size=2, steps=12))
    with pytest.raises(InvalidInputError, match=r"Got 3 instead; data.steps = 5 would do\.$"):
        options.sampler(Data(num_examples=10, batch_size=2, steps=3))
    with pytest.raises(InvalidInputError, match=r"Got 1.5 instead; data.epochs = 1 or 2 would do\.$"):
        options.sampler(Data(num_examples=10, batch_size=2, epochs=1.5))
    with pytest.raises(InvalidInputError, match=r"keep the run at or below 1000000000 steps.*data.epochs = 200000000 "):
        options.sampler(Data(num_examples=10, batch_size=2, epochs=2 * 10**8 + 1))
    with pytest.raises(InvalidInputError, match=r"epochs = 3, which makes 15 steps\. Got 14 instead; data.steps = 15 "):
        options.sampler(Data(num_examples=10, batch_size=2, epochs=3, steps=14))


def test_poisson_takes_any_rate_and_rounds_the_steps() -> None:
    sampler = PoissonOptions().sampler(Data(num_examples=50_000, batch_size=300, steps=1234))
    assert sampler == Poisson(sampling_prob=0.006, steps=1234)
    assert PoissonOptions().sampler(Data(num_examples=50_000, batch_size=300, epochs=10)).steps == 1667
    both = Data(num_examples=50_000, batch_size=300, epochs=10, steps=1667)  # 1666.67 rounded
    assert PoissonOptions().sampler(both).steps == 1667
    whole = Data(num_examples=50_000, batch_size=300, epochs=3)
    assert PoissonOptions().sampler(whole).steps == 500


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_examples": 100, "batch_size": 20}, "The 'data.epochs' field or the 'data.steps' field has to be given."),
        (
            {"num_examples": 100, "batch_size": 200, "epochs": 1},
            "The 'data.batch_size' field must be at most num_examples = 100. Got 200 instead; data.batch_size = 100 "
            "would do.",
        ),
        (
            {"num_examples": 100, "epochs": 1},
            "The 'data.batch_size' field has to be given, or 'data.batches_per_epoch' or 'data.sampling_prob'.",
        ),
        (
            {"num_examples": 100, "batch_size": 10, "sampling_prob": 0.1, "epochs": 1},
            "The 'data.sampling_prob' field must be left out where 'data.batch_size' is given, from which it follows.",
        ),
        (
            {"num_examples": 0, "batch_size": 1, "epochs": 1},
            "The 'num_examples' field must be at least 1.",
        ),
        ({"num_examples": 10.5, "batch_size": 1, "epochs": 1}, "The 'num_examples' field must be a whole number."),
        ({"batch_size": 1, "epochs": 1}, "The 'num_examples' field is missing and has to be given."),
    ],
)
def test_bad_data_get_one_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        Data(**values)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"epochs": 4, "steps": 19},
            "must agree with epochs = 4, which makes 20 steps. Got 19 instead; data.steps = 20",
        ),
        (
            {"epochs": 10**9},
            "Got 1000000000 epochs of 5 steps instead; data.steps = 1000000000 in place of",
        ),
        ({"epochs": 0.05}, "Got 0.05 epochs of 5 steps instead; data.steps = 1 in place of data.epochs would do."),
    ],
)
def test_lengths_that_do_not_suit_poisson_get_one_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        PoissonOptions().sampler(Data(num_examples=100, batch_size=20, **values))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("spec", "values", "message"),
    [
        (BallsInBins, {"bins": 10**6, "epochs": 10**6}, "The 'epochs' field must keep the run at or below 1000000000"),
        (BallsInBins, {"bins": 0}, "The 'bins' field must be at least 1. Got 0 instead."),
        (BallsInBins, {"bins": 2.0}, "The 'bins' field must be a whole number. Got 2.0 instead."),
        (BallsInBins, {"bins": 2, "epoch": 3}, "The 'epoch' field is not known here"),
        (Shuffle, {"bins": 2}, "The 'batch_size' field is missing"),
        (
            RandomAllocation,
            {"bins": 3, "participations": 4},
            "The 'participations' field must be at most bins = 3. Got 4 instead.",
        ),
        (
            Poisson,
            {"sampling_prob": 0.0, "steps": 1},
            "The 'sampling_prob' field must be above 0. Got 0.0 instead.",
        ),
        (Poisson, {"sampling_prob": 1.5, "steps": 1}, "The 'sampling_prob' field must be at most 1."),
        (Poisson, {"sampling_prob": float("nan"), "steps": 1}, "The 'sampling_prob' field must be a finite number."),
        (
            Poisson,
            {"sampling_prob": 0.5, "steps": 10**10},
            "The 'steps' field must be at most 1000000000.",
        ),
        (
            Poisson,
            {"sampling_prob": 0.5, "steps": 1, "truncated_batch_size": 3},
            "The 'num_examples' field has to be given with 'truncated_batch_size'.",
        ),
        (
            Poisson,
            {"sampling_prob": 0.5, "steps": 1, "truncated_batch_size": 3, "num_examples": 2},
            "The 'truncated_batch_size' field must be at most num_examples = 2. Got 3 instead.",
        ),
    ],
)
def test_bad_fields_get_one_sentence(spec: type[Spec], values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        spec(**values)
    assert str(error.value).startswith(message)


def test_plan_keys_of_another_scheme_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"The 'participations' field is not known here"):
        ShuffleOptions.parse({"kind": "shuffle", "participations": 2})


def test_registry_names_the_kinds() -> None:
    assert {"deterministic", "shuffle", "poisson", "random_allocation", "balls_in_bins"} <= set(SAMPLERS)
    for kind, sampler in SAMPLERS.items():
        assert sampler.model_fields["kind"].default == kind
        assert sampler.__doc__ is not None
        assert "Formal guarantee of batches" in sampler.__doc__


def test_import_is_light() -> None:
    heavy = "{'numba', 'scipy', 'torch', 'jax'}"
    code = f"import sys, hockeystick.samplers; print(sorted({heavy} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        (PoissonOptions(), 30 / 1000),
        (BMinSepOptions(min_sep=4), 30 / 1000),
        (MultiAttributionOptions(min_sep=4, examples_per_user=1), 30 / 1000),
        (CyclicPoissonOptions(groups=8), 8 * 30 / 1000),
    ],
)
def test_rates_are_exact_where_the_batch_size_does_not_divide_the_data(options: SchemeOptions, rate: float) -> None:
    """1000 / 30 is no whole number: a rate of 1 / 33 or of 1 / 34 would be that of another run."""
    sampler: Any = options.sampler(Data(num_examples=1000, batch_size=30, steps=50))
    assert sampler.sampling_prob == rate
