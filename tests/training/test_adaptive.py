"""The adaptive optimisers against plain references, and what the certificate rests on: norms of contributions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.training import IndependentAdam, Run, ScaledAdam, clipped, noise_variance
from hockeystick.training.adaptive import split_norm

EXAMPLES, SIZE, CLIP, RATE = 40, 6, 1.5, 0.05
BETAS = (0.8, 0.95)
MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=4), sampler=hs.Poisson(sampling_prob=0.2, steps=25), noise_multiplier=0.7
)
DATA = np.random.default_rng(0).standard_normal((EXAMPLES, SIZE)) * 10.0 ** np.linspace(-2, 1, SIZE)


def run_of(numbers: int, seed: int = 1) -> Run:
    return Run(MECHANISM, num_examples=EXAMPLES, shape=numbers, rng=np.random.default_rng(seed), dtype=np.float64)


def shortened_to(vector: list[float], norm: float) -> list[float]:
    length = math.sqrt(sum(number**2 for number in vector))
    return [number * min(1.0, norm / length) if length else number for number in vector]


def reference_scaled(relative: bool, floor: float) -> list[float]:
    """Adam with scales, number by number, as a textbook would have it; gradients are weights minus data."""
    run = run_of(SIZE)
    weights, first, second = [0.0] * SIZE, [0.0] * SIZE, [0.0] * SIZE
    for step, batch in enumerate(run.batches(), start=1):
        hat = [v / (1.0 - BETAS[1] ** (step - 1)) if step > 1 else 0.0 for v in second]
        if relative:
            typical = math.sqrt(sum(hat) / SIZE)
            inverse = [math.sqrt(v) + floor * typical for v in hat]
            size = math.sqrt(sum(one**2 for one in inverse) / SIZE)
            inverse = [one / size if size else 1.0 for one in inverse]
        else:
            inverse = [math.sqrt(v) + floor for v in hat]
        total = [0.0] * SIZE
        for example in batch:
            scaled = [(weights[i] - DATA[example, i]) / inverse[i] for i in range(SIZE)]
            total = [a + b for a, b in zip(total, shortened_to(scaled, CLIP), strict=True)]
        noise = run.noise(batch)
        for i in range(SIZE):
            gradient = (total[i] + CLIP * noise[i]) * inverse[i] / (0.2 * EXAMPLES)
            first[i] = BETAS[0] * first[i] + (1.0 - BETAS[0]) * gradient
            second[i] = BETAS[1] * second[i] + (1.0 - BETAS[1]) * gradient**2
            m, v = first[i] / (1.0 - BETAS[0] ** step), second[i] / (1.0 - BETAS[1] ** step)
            weights[i] -= RATE * m / (math.sqrt(v) + 1e-8)
    return weights


@pytest.mark.parametrize(("relative", "floor"), [(True, 0.1), (True, 2.0), (False, 0.3)])
def test_scaled_adam_is_the_textbook_s(relative, floor):
    run, weights = run_of(SIZE), np.zeros(SIZE)
    adam = ScaledAdam(learning_rate=RATE, betas=BETAS, floor=floor, relative=relative)
    for batch in run.batches():
        total = clipped((weights - DATA[batch]) * adam.scale, CLIP).sum(axis=0)
        weights += adam.step((total + CLIP * run.noise(batch)) / run.expected_batch_size)
    assert np.allclose(weights, reference_scaled(relative, floor), rtol=0, atol=1e-4)  # clipping takes a millionth more
    assert np.abs(weights).max() > 0.2


def reference_independent(share: float, floor: float) -> list[float]:
    run = run_of(2 * SIZE)
    weights, first, second = [0.0] * SIZE, [0.0] * SIZE, [0.0] * SIZE
    norm = CLIP / math.sqrt(1.0 + share**2)
    for step, batch in enumerate(run.batches(), start=1):
        total, squares = [0.0] * SIZE, [0.0] * SIZE
        for example in batch:
            kept = shortened_to([weights[i] - DATA[example, i] for i in range(SIZE)], norm)
            total = [a + b for a, b in zip(total, kept, strict=True)]
            squares = [a + b * b for a, b in zip(squares, kept, strict=True)]
        noise = run.noise(batch) * CLIP
        for i in range(SIZE):
            gradient = (total[i] + noise[i]) / (0.2 * EXAMPLES)
            square = (squares[i] + noise[SIZE + i] * norm / share) / (0.2 * EXAMPLES)
            first[i] = BETAS[0] * first[i] + (1.0 - BETAS[0]) * gradient
            second[i] = BETAS[1] * second[i] + (1.0 - BETAS[1]) * square
        hat = [max(v, 0.0) / (1.0 - BETAS[1] ** step) for v in second]
        typical = math.sqrt(sum(hat) / SIZE)
        for i in range(SIZE):
            weights[i] -= RATE * first[i] / (1.0 - BETAS[0] ** step) / (math.sqrt(hat[i]) + floor * typical)
    return weights


@pytest.mark.parametrize(("share", "floor"), [(1.0, 0.5), (0.3, 0.2)])
def test_independent_adam_is_the_textbook_s(share, floor):
    run, weights = run_of(2 * SIZE), np.zeros(SIZE)
    adam = IndependentAdam(learning_rate=RATE, clip_norm=CLIP, betas=BETAS, share=share, floor=floor)
    for batch in run.batches():
        total = adam.contributions(weights - DATA[batch]).sum(axis=0)
        weights += adam.step((total + CLIP * run.noise(batch)) / run.expected_batch_size)
    assert np.allclose(weights, reference_independent(share, floor), rtol=0, atol=1e-4)
    assert np.abs(weights).max() > 0.2


NUMBERS = st.floats(width=32) | st.just(math.nan) | st.just(math.inf)


@given(
    rows=st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=5),
    norm=st.floats(1e-3, 1e3),
    share=st.floats(0.05, 20.0),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_nobody_contributes_more_than_the_norm(rows, norm, share, dtype):
    """For any numbers at all; in float32 the products are rounded, which the millionth covers."""
    given_rows = np.array(rows, dtype=dtype)
    kept = clipped(given_rows, norm).astype(np.float64)
    assert np.linalg.norm(kept, axis=1).max() <= norm * (1.0 + 2.0**-50)
    adam = IndependentAdam(learning_rate=1.0, clip_norm=norm, share=share)
    both = adam.contributions(given_rows)
    assert both.shape == (len(rows), 6)
    assert np.linalg.norm(both.astype(np.float64), axis=1).max() <= norm * (1.0 + 2.0**-50)


@pytest.mark.parametrize(("dtype", "norm"), [(np.float32, 1e-30), (np.float64, 1e-140)])
def test_the_smallest_norms_hold_too(dtype, norm):
    """Against lengths of hypot, whose squares do not underflow; rows that are mostly of numbers whose squares do."""
    rng = np.random.default_rng(0)
    sizes = norm * 10.0 ** rng.uniform(-8, 8, size=(200, 1)) * 10.0 ** rng.uniform(-6, 0, size=(200, 30))
    kept = clipped((sizes * rng.choice([-1.0, 1.0], size=sizes.shape)).astype(dtype), norm).astype(np.float64)
    assert max(math.hypot(*row) for row in kept) <= norm * (1.0 + 2.0**-50)


def test_short_rows_are_left_alone():
    rows = np.array([[0.3, 0.4], [0.0, 0.0]])
    assert np.array_equal(clipped(rows, 0.5000001), rows)


@pytest.mark.parametrize("share", [0.1, 1.0, 3.0])
def test_the_joint_norm_is_attained_and_no_more(share):
    """The largest norm of gradient and weighted squares over the ball: at a single coordinate."""
    norm, weight = split_norm(2.0, share)
    one = np.array([norm, 0.0, 0.0])
    assert np.linalg.norm(np.concatenate([one, weight * one**2])) == pytest.approx(2.0, rel=1e-12)
    assert np.linalg.norm(weight * one**2) == pytest.approx(share * norm, rel=1e-12)
    others = np.random.default_rng(0).standard_normal((1000, 3))
    others *= norm / np.linalg.norm(others, axis=1, keepdims=True)
    assert np.linalg.norm(np.concatenate([others, weight * others**2], axis=1), axis=1).max() <= 2.0


def test_a_scale_is_a_function_of_what_was_released():
    """Two data sets, the same releases: the same scales and steps. The optimiser is told nothing else."""
    one, other = (ScaledAdam(learning_rate=RATE) for _ in range(2))
    for released in np.random.default_rng(0).standard_normal((5, SIZE)):
        assert np.array_equal(one.scale, other.scale)
        assert np.array_equal(one.step(released), other.step(released.copy()))


@pytest.mark.parametrize("decades", [0.0, 3.0])
def test_relative_scales_keep_the_total_variance_of_the_noise(decades):
    """The mean of 1 / scale^2 is 1, so noise of the same size in scaled coordinates has the same total afterwards."""
    adam = ScaledAdam(learning_rate=RATE, floor=0.1)
    assert adam.scale == 1.0
    spread = 10.0 ** np.linspace(0.0, decades, SIZE)
    for _ in range(3):
        adam.step(spread / adam.scale)
    assert np.mean(1.0 / adam.scale**2) == pytest.approx(1.0, rel=1e-12)
    assert adam.scale.max() / adam.scale.min() == pytest.approx(1.0) if decades == 0.0 else adam.scale.max() < 15.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: (ScaledAdam(learning_rate=RATE), SIZE),
        lambda: (IndependentAdam(learning_rate=RATE, clip_norm=CLIP), 2 * SIZE),
    ],
    ids=["scaled", "independent"],
)
def test_states_resume(make):
    (whole, numbers), (first, _), (second, _) = make(), make(), make()
    released = np.random.default_rng(0).standard_normal((6, numbers))
    for row in released[:3]:
        whole.step(row)
        first.step(row)
    second.load_state_dict(first.state_dict())
    for row in released[3:]:
        assert np.array_equal(whole.step(row), second.step(row))


@pytest.mark.parametrize(
    "strategy", [hs.Identity(), hs.BandedSquareRoot(bands=4), hs.BandedInverseSquareRoot(bands=3), hs.BinaryTree()]
)
def test_the_variance_of_the_noise_is_that_of_the_rows_of_the_inverse(strategy):
    mechanism = hs.Mechanism(strategy=strategy, sampler=hs.Poisson(sampling_prob=0.1, steps=9), noise_multiplier=1.5)
    inverse = mechanism.matrix.solve(np.eye(mechanism.matrix.rows))
    assert np.allclose(inverse @ mechanism.matrix.materialize(), np.eye(9))
    assert np.allclose(noise_variance(mechanism), 1.5**2 * (inverse**2).sum(axis=1), rtol=1e-9)


def test_subtracting_the_variance_leaves_a_bias_with_correlated_noise():
    """Two steps of gradient descent on w^2 / 2 from 0, exactly: w_1 = -r e_0, so E[g_1 e_1] = -r E[e_0 e_1].

    C = [[1, 0], [a, 1]] has the inverse [[1, 0], [-a, 1]], so e_0 = z_0 and e_1 = z_1 - a z_0: E[e_0 e_1] = -a sigma^2.
    The numbers of the theory page, with moments of z by Gauss-Hermite quadrature, which is exact for squares.
    """
    sigma, rate, a = 1.3, 0.4, 0.5
    strategy = hs.BandedSquareRoot(bands=2)
    mechanism = hs.Mechanism(strategy=strategy, sampler=hs.Poisson(sampling_prob=0.1, steps=2), noise_multiplier=sigma)
    assert np.array_equal(mechanism.matrix.materialize(), [[1.0, 0.0], [a, 1.0]])
    nodes, parts = np.polynomial.hermite_e.hermegauss(4)
    z, other = np.meshgrid(sigma * nodes, sigma * nodes)
    probability = np.outer(parts, parts) / parts.sum() ** 2
    e_0, e_1 = z, other - a * z
    gradient = -rate * e_0
    noisy = gradient + e_1
    bias = float((probability * noisy**2).sum() - (probability * gradient**2).sum()) - noise_variance(mechanism)[1]
    assert bias == pytest.approx(2.0 * rate * a * sigma**2, rel=1e-9)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ScaledAdam(learning_rate=0.0), "'learning_rate' argument must be positive"),
        (lambda: ScaledAdam(learning_rate=1.0, betas=(0.9, 1.0)), "'betas' argument must be two numbers"),
        (lambda: ScaledAdam(learning_rate=1.0, floor=math.inf), "'floor' argument must be positive and finite"),
        (lambda: IndependentAdam(learning_rate=1.0, clip_norm=1.0, share=-1.0), "'share' argument must be positive"),
        (lambda: IndependentAdam(learning_rate=1.0, clip_norm=math.nan), "'clip_norm' argument must be positive"),
        (lambda: clipped(np.ones((1, 1)), 0.0), "'norm' argument must be positive"),
        (lambda: clipped(np.full((1, 4), 1e-170), 1e-200), "'norm' argument must be at least 1e-140 for float64"),
        (lambda: clipped(np.full((1, 4), 1e-30, np.float32), 1e-31), "must be at least 1e-30 for float32"),
        (lambda: clipped(np.ones((1, 1), np.float16), 1.0), "must be of float32 or float64. Got float16"),
    ],
)
def test_bad_settings_are_refused(make, said):
    with pytest.raises(InvalidInputError, match=said):
        make()
