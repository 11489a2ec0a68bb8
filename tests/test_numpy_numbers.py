"""numpy's numbers are numbers, in specifications and in questions; anything else gets one sentence."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.laws.law import Law
from hockeystick.laws.randomisers import allocated, laplace_law, pure_law

PLAN = {
    "data": {"num_examples": np.int64(100), "batch_size": np.int32(10), "epochs": np.uint8(2)},
    "sampler": {"kind": "poisson"},
    "noise_multiplier": np.float32(2.0),
}
RUN = hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=1.0)


@pytest.fixture(scope="module")
def bound() -> hs.Bound:
    return hs.bound(RUN, "gaussian")


def test_specs_take_numpy_integers_and_floats() -> None:
    sampler = hs.Poisson(sampling_prob=np.float64(0.1), steps=np.int64(100))
    assert sampler == hs.Poisson(sampling_prob=0.1, steps=100)
    assert (type(sampler.sampling_prob), type(sampler.steps)) == (float, int)
    assert "np." not in sampler.requirement
    mechanism = hs.Mechanism(sampler=sampler, strategy=hs.BandedSquareRoot(bands=np.int16(3)), noise_multiplier=2.0)
    assert mechanism.with_noise(np.float32(0.5)).sigma == 0.5
    assert hs.Plan.parse(PLAN).mechanism() == hs.Plan.parse(
        {
            "data": {"num_examples": 100, "batch_size": 10, "epochs": 2},
            "sampler": {"kind": "poisson"},
            "noise_multiplier": 2.0,
        }
    ).mechanism(np.float64(2.0))


@pytest.mark.parametrize("wrong", [np.bool_(True), np.float64(3.0), np.array(3), np.array([3]), np.str_("3"), [3]])
def test_what_is_no_whole_number_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidInputError, match=r"^The 'bins' field must be a whole number\. Got [^\n]* instead\.$"):
        hs.BallsInBins(bins=wrong)


@pytest.mark.parametrize("wrong", [np.True_, np.False_, True, np.array([0.5]), np.str_("0.5"), 1j, [0.5]])
def test_what_is_no_number_is_refused(wrong: object) -> None:
    for made in (
        lambda: hs.Poisson(sampling_prob=wrong, steps=10),
        lambda: RUN.with_noise(wrong),
        lambda: hs.Mechanism(sampler=hs.Deterministic(bins=10), noise_multiplier=wrong),
    ):
        with pytest.raises(InvalidInputError, match=r" must be a number\. Got [^\n]* instead\.$"):
            made()


def test_questions_take_numpy_numbers() -> None:
    assert hs.Question(delta=np.float64(1e-5)) == hs.Question(delta=1e-5)
    assert type(hs.Question(epsilon=np.int64(1)).epsilon) is float
    assert hs.certify(RUN, delta=np.float64(1e-5)).epsilon == hs.certify(RUN, delta=1e-5).epsilon


@pytest.mark.parametrize("wrong", [[1e-5], (1e-5,), np.array([1e-5]), np.eye(9) - 1.0, "1e-5", True, {}, 1j])
def test_one_question_is_one_number(wrong: object) -> None:
    for call in (
        lambda: hs.Question(delta=wrong),
        lambda: hs.certify(RUN, delta=wrong),
        lambda: hs.compare(RUN, delta=wrong),
    ):
        with pytest.raises(InvalidInputError, match=r"^The 'delta' field must be a number\. Got [^\n]* instead\.$"):
            call()


def test_bounds_broadcast_over_arrays(bound: hs.Bound) -> None:
    epsilons = np.array([[0.0, 1.0, 2.5], [4.0, 6.0, 700.0]])
    deltas = bound.delta(epsilons)
    assert deltas.shape == (2, 3)
    assert deltas.tolist() == [[bound.delta(float(epsilon)) for epsilon in row] for row in epsilons]
    wanted = [1e-3, 1e-5]
    assert bound.epsilon(wanted).tolist() == [bound.epsilon(delta) for delta in wanted]
    assert bound.delta([]).shape == (0,)
    assert bound.delta((np.int64(1),)) == [bound.delta(1.0)]
    assert type(bound.delta(np.float32(1.0))) is type(bound.epsilon(np.float64(0.5))) is float


@pytest.mark.parametrize("wrong", [["1"], [True], [[0.5], [0.5, 0.1]], np.array(["a"]), [None], [1j], [{}]])
def test_arrays_of_anything_else_are_refused(bound: hs.Bound, wrong: object) -> None:
    for call, name in ((bound.delta, "epsilon"), (bound.epsilon, "delta")):
        with pytest.raises(InvalidInputError, match=rf"^The '{name}' field must be a number or an array of numbers\."):
            call(wrong)


@pytest.mark.parametrize("wrong", ["1", None, True, {0.5}, 1j])
def test_bounds_of_no_number_are_refused(bound: hs.Bound, wrong: object) -> None:
    for call, name in ((bound.delta, "epsilon"), (bound.epsilon, "delta")):
        with pytest.raises(InvalidInputError, match=rf"^The '{name}' field must be a number\. Got .* instead\.$"):
            call(wrong)
    for call, name in ((bound.delta, "epsilon"), (bound.epsilon, "delta")):
        with pytest.raises(InvalidInputError, match=rf"^The '{name}' field must be .* Got -0.5 instead\.$"):
            call([0.5, -0.5])


POISSON = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=10), noise_multiplier=1.0)
SINGLE, WIDE = np.float32(0.1), np.int32(60_000)


@pytest.mark.parametrize(
    ("use", "number"),
    [
        (lambda epsilon: hs.calibrate(POISSON, epsilon=epsilon, delta=1e-5), SINGLE),
        (lambda near: hs.bound(POISSON, "direct").epsilon(1e-5, near), SINGLE),
        (lambda delta: hs.Resolution(8, delta).tail, SINGLE),
        (lambda seconds: hs.Deadline(seconds).seconds, SINGLE),
        (lambda rate: hs.last_iterate(sampling_prob=rate, steps=9, noise_multiplier=1.0), SINGLE),
        (lambda noise: hs.last_iterate(sampling_prob=0.5, steps=9, noise_multiplier=noise), SINGLE),
        (
            lambda rate: hs.group_privacy_poisson(group_size=3, sampling_prob=rate, steps=9, noise_multiplier=1.0),
            SINGLE,
        ),
        (lambda norm: group_of(4, displaced_norm=norm), SINGLE),
        (lambda noise: numbers_of(laplace_law(noise, hs.Side.UPPER, hs.Resolution(8))), SINGLE),
        (
            lambda count: numbers_of(allocated(pure_law(1.0, hs.Side.LOWER), 2, hs.Resolution(8), epochs=count)),
            np.int32(3),
        ),
        (lambda count: group_of(count, batch_size=count), WIDE),  # their product is not an int32
        (lambda count: hs.MixtureStep((1.0,), (1.0,), count).count ** 2, WIDE),
    ],
)
def test_numbers_of_numpy_are_computed_with_as_those_of_python(use: Callable[[Any], Any], number: np.generic) -> None:
    """A float32 rounds all that it is multiplied with, and products of int32 overflow."""
    answer = use(number)
    assert answer == use(number.item())
    assert not isinstance(answer, np.float32)


def numbers_of(law: Law) -> tuple[Any, ...]:
    return law.support.tolist(), law.mass.tolist(), law.p_inf, law.mass_error, law.place_error


def group_of(size: int, batch_size: int = 10, displaced_norm: float = 1.0) -> hs.MixtureSteps:
    return hs.group_privacy_fixed(
        group_size=size,
        batch_size=batch_size,
        num_examples=10**8,
        steps=2,
        noise_multiplier=50.0,
        displaced_norm=displaced_norm,
    )
