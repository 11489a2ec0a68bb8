"""Generators of other libraries: their ends and tails against what they are made of, and floors against the truth."""

from math import comb, cos, exp, log, pi, sin, sqrt
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sampler_laws import RUN_EXAMPLES
from samplers import DECLARED

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.mechanism import Mechanism
from hockeystick.noise import GENERATORS, KnownGenerator, floor
from hockeystick.noise.generators import floor_of_known_batches
from hockeystick.samplers import Sampler

SHIFTS = (0.1, 0.5, 1.0, 2.0, 3.3, 5.0)
JAX = {"jax-bfloat16": ("bfloat16", 7), "jax-float16": ("float16", 10), "jax-float32": ("float32", 23)}
CHANCE = 0.3
"""Of leaving the interval, of a planted generator."""


def poisson(noise: float, rate: float = 0.01, steps: int = 1000) -> Mechanism:
    return Mechanism(sampler=hs.Poisson(sampling_prob=rate, steps=steps), noise_multiplier=noise)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> str:
    """A generator whose numbers leave their interval with the chance ``CHANCE`` at noise multiplier 1, else less."""

    def above(t: float) -> float:
        return CHANCE if t <= 4.01 else 0.1

    generator = KnownGenerator("planted", -9.0, 5.0, None, "made up", 0.0, above, lambda t: 0.0)
    monkeypatch.setitem(GENERATORS, "planted", generator)
    return "planted"


def jax_numbers(dtype: str, bits: int) -> NDArray[np.generic]:
    """Every number of jax.random.normal: its own steps from the uniform bits on, for all of them."""
    jax = pytest.importorskip("jax")
    real = jax.numpy.dtype(dtype)
    low = np.nextafter(np.array(-1.0, real), np.array(0.0, real), dtype=real)
    uniforms = jax.numpy.asarray((np.arange(1 << bits) / (1 << bits)).astype(real))
    scaled = jax.lax.max(jax.numpy.asarray(low), uniforms * (np.array(1.0, real) - low) + low)
    return np.asarray(jax.lax.mul(np.array(np.sqrt(2.0), real), jax.lax.erf_inv(scaled)))


@pytest.mark.parametrize("name", JAX)
def test_the_chance_of_leaving_is_that_of_all_numbers_of_jax_or_a_little_less(name: str) -> None:
    dtype, bits = JAX[name]
    numbers, generator = jax_numbers(dtype, bits), GENERATORS[name]
    assert np.unique(numbers).size == generator.values == 1 << bits
    wide = 1.0 + generator.rounding
    assert generator.lowest * wide <= float(numbers.min()) <= generator.lowest / wide
    assert generator.highest / wide <= float(numbers.max()) <= generator.highest * wide
    for shift in SHIFTS:
        # Noise and sum in the type itself, with every rounding: what a run with one clipping norm 1 would release.
        noise = (numbers * numbers.dtype.type(1.0 / shift)).astype(numbers.dtype)
        up, down = noise + numbers.dtype.type(1.0), noise - numbers.dtype.type(1.0)
        exact = max(float((up > noise.max()).mean()), float((down < noise.min()).mean()))
        assert generator.leaves(shift) <= exact
        if dtype == "float32":
            assert generator.leaves(shift) >= 0.999 * exact


@pytest.mark.parametrize("name", JAX)
def test_jax_draws_no_other_numbers(name: str) -> None:
    dtype, bits = JAX[name]
    numbers = jax_numbers(dtype, bits)
    import jax

    drawn = np.asarray(jax.random.normal(jax.random.key(1), (1 << 18,), jax.numpy.dtype(dtype)))
    assert np.isin(drawn.astype(np.float64), numbers.astype(np.float64)).all()


def test_the_ends_of_jax_float64_are_those_of_its_grid() -> None:
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        for bits, name in ((52, "jax-float64"), (23, "jax-float32"), (10, "jax-float16"), (7, "jax-bfloat16")):
            ends = [mpmath.sqrt(2) * mpmath.erfinv(1 - gap * mpmath.mpf(2) ** (-1 - bits)) for gap in (1, 3)]
            assert GENERATORS[name].lowest == pytest.approx(float(-ends[0]), rel=1e-15)
            assert GENERATORS[name].highest == pytest.approx(float(ends[1]), rel=1e-15)


def box_muller_chance(bits: int, t: float) -> float:
    """P(r cos(a) > t) for all radii and all angles of two numbers of ``bits`` bits, radius by radius."""
    size = 1 << bits
    radii = np.sqrt(-2.0 * np.log(np.arange(1, min(int(size * exp(-0.5 * t * t)) + 2, size) + 1) / size))
    radii = radii[radii > t]
    angles = 1 + 2 * np.floor(size * np.arccos(t / radii) / (2.0 * pi))  # j of cos(2 pi j / size) > t / r
    return float(angles.sum()) / size**2


@pytest.mark.parametrize("shift", [0.5, 1.0, 2.0, 3.3])
def test_the_chance_of_leaving_is_that_of_the_grid_of_24_bits_or_a_little_less(shift: float) -> None:
    generator = GENERATORS["torch-cpu-float32"]
    assert generator.highest == pytest.approx(sqrt(-2.0 * log(2.0**-24)), rel=1e-15)
    exact = box_muller_chance(24, generator.highest - shift)
    assert 0.99 * exact <= generator.leaves(shift) <= exact


def test_the_count_of_the_grid_is_that_of_all_pairs() -> None:
    size, t = 1 << 5, 0.7
    pairs = [sqrt(-2.0 * log(k / size)) * cos(2.0 * pi * j / size) for k in range(1, size + 1) for j in range(size)]
    assert box_muller_chance(5, t) == sum(number > t for number in pairs) / size**2


def test_torch_makes_normal_numbers_of_its_uniform_ones_as_described() -> None:
    torch = pytest.importorskip("torch")

    def seeded() -> object:
        return torch.Generator().manual_seed(5)

    for dtype, bits, error in ((torch.float32, 24, 4e-6), (torch.float64, 53, 1e-14)):
        uniforms = torch.empty(1 << 14, dtype=dtype).uniform_(generator=seeded()).double().numpy()
        assert (uniforms * 2.0**bits % 1.0 == 0.0).all()
        assert (uniforms * 2.0 ** (bits - 1) % 1.0 != 0.0).any()
        first, second = uniforms.reshape(-1, 2, 8).swapaxes(0, 1)
        radii, angles = np.sqrt(-2.0 * np.log(1.0 - first)), 2.0 * pi * second
        numbers = torch.empty(1 << 14, dtype=dtype).normal_(generator=seeded()).double().numpy().reshape(-1, 2, 8)
        assert np.abs(numbers[:, 0] - radii * np.cos(angles)).max() < error
        assert np.abs(numbers[:, 1] - radii * np.sin(angles)).max() < error
    single = torch.empty(1 << 14).normal_(generator=seeded())
    for dtype in (torch.float16, torch.bfloat16):
        assert torch.equal(torch.empty(1 << 14, dtype=dtype).normal_(generator=seeded()), single.to(dtype))


def test_small_tensors_of_torch_have_numbers_of_53_bits() -> None:
    torch = pytest.importorskip("torch")
    uniforms = torch.empty(64, dtype=torch.float64).uniform_(generator=torch.Generator().manual_seed(7)).tolist()
    generator = torch.Generator().manual_seed(7)
    for place in (0, 2):  # two numbers of a pair, from the last uniform number and the one before it
        pair = torch.empty(2).normal_(generator=generator).tolist()
        radius = sqrt(-2.0 * log(1.0 - uniforms[place + 1]))
        angle = 2.0 * pi * uniforms[place]
        assert pair == pytest.approx([radius * cos(angle), radius * sin(angle)], rel=1e-6)
    assert GENERATORS["torch-cpu-small"].highest == pytest.approx(sqrt(106.0 * log(2.0)), rel=1e-15)


def test_secure_mode_of_opacus_ends_twice_as_far_out() -> None:
    pytest.importorskip("opacus")
    import torch
    from opacus.optimizers.optimizer import _generate_noise

    reference, generator = torch.zeros(1 << 12), torch.Generator().manual_seed(3)
    noise = _generate_noise(1.0, reference, generator=generator, secure_mode=True)
    generator = torch.Generator().manual_seed(3)
    torch.normal(0.0, 1.0, size=(1, 1), generator=generator)
    four = [torch.normal(0.0, 1.0, size=reference.shape, generator=generator) for _ in range(4)]
    assert torch.allclose(noise, sum(four) / 2, atol=1e-6)
    assert GENERATORS["opacus-secure-cpu"].highest == 2.0 * GENERATORS["torch-cpu-float32"].highest
    # All four above half of t: less than the chance of their sum, which a normal law shows.
    assert GENERATORS["opacus-secure-cpu"].above(2.0) < 0.0228
    assert GENERATORS["opacus-secure-cpu"].above(2.0) == pytest.approx(0.1587**4, rel=1e-2)


@pytest.mark.parametrize("name", GENERATORS)
def test_tails_fall_and_are_at_most_what_a_normal_law_of_that_grid_has(name: str) -> None:
    from scipy.stats import norm

    generator = GENERATORS[name]
    ts = np.linspace(0.0, generator.highest, 200)
    for chance in (generator.above, generator.below):
        values = np.array([chance(float(t)) for t in ts])
        assert (np.diff(values) <= 0.0).all()
        cell = 2.0 ** -{"jax-bfloat16": 7, "jax-float16": 10, "jax-float32": 23}.get(name, 52)
        assert (values <= norm.sf(ts) * (1.0 + 1e-9) + cell).all()
        assert chance(generator.highest * 1.01 if chance is generator.above else -generator.lowest * 1.01) == 0.0


def test_shifted_numbers_of_torch_leave_as_often_as_said() -> None:
    """2^26 numbers, fixed seed. A right bound fails with a probability below 1e-6 (five standard deviations)."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(11)
    end, count, size = GENERATORS["torch-cpu-float32"].highest, 0, 1 << 22
    for _ in range(16):
        numbers = torch.empty(size).normal_(generator=generator)
        count += int((numbers.double() + 2.0 > end).sum())
    mean = 16 * size * GENERATORS["torch-cpu-float32"].leaves(2.0)
    assert abs(count - mean) < 5.0 * sqrt(mean) + 0.01 * mean


def test_runs_with_numbers_of_jax_leave_as_often_as_the_floor_says() -> None:
    """20,000 runs of 20 steps in bfloat16, fixed seed. A right floor fails with a probability below 1e-6."""
    numbers = jax_numbers("bfloat16", 7).astype(np.float64)
    rng, runs, steps, rate = np.random.default_rng(3), 20_000, 20, 0.1
    noise = rng.choice(numbers, size=(runs, steps))
    released = noise + (rng.random((runs, steps)) < rate)
    share = float((released > numbers.max()).any(axis=1).mean())
    least = floor(poisson(1.0, rate, steps), "jax-bfloat16")
    assert 0.05 < least < share + 5.0 * sqrt(share / runs)


@pytest.mark.parametrize(
    ("name", "noise", "least"),
    [("jax-float32", 1.0, 1.2e-4), ("jax-float32", 2.0, 1.18e-5), ("torch-cpu-float32", 0.5, 8.2e-4)],
)
def test_floors_of_a_thousand_steps(name: str, noise: float, least: float) -> None:
    assert floor(poisson(noise), name) == pytest.approx(least, rel=2e-2)


def test_poisson_is_exact(planted: str) -> None:
    exact = sum(comb(6, j) * 0.2**j * 0.8 ** (6 - j) * (1.0 - (1.0 - CHANCE) ** j) for j in range(7))
    assert floor(poisson(1.0, 0.2, 6), planted) == pytest.approx(exact, rel=1e-8)
    assert floor(poisson(1.0, 0.2, 6), planted) <= exact


SAMPLERS: list[Sampler] = [
    hs.Deterministic(bins=4, epochs=3),
    hs.Deterministic(bins=3, epochs=3, remainder="drop", batch_size=6, num_examples=22),
    hs.Shuffle(batch_size=6, bins=4, epochs=3),
    hs.Shuffle(batch_size=6, bins=3, epochs=3, remainder="drop", num_examples=22),
    hs.Shuffle(batch_size=6, bins=4, epochs=3, remainder="short", num_examples=22),
    hs.Poisson(sampling_prob=0.2, steps=8),
    hs.Poisson(sampling_prob=0.2, steps=8, truncated_batch_size=4, num_examples=24),
    hs.CyclicPoisson(groups=3, sampling_prob=0.5, steps=8),
    hs.CyclicPoisson(groups=3, sampling_prob=0.5, steps=8, partition="independent"),
    hs.BallsInBins(bins=4, epochs=3),
    hs.RandomAllocation(bins=4, participations=2, epochs=2),
    hs.BMinSep(min_sep=3, sampling_prob=0.2, steps=8),
    hs.BMinSep(min_sep=3, sampling_prob=0.2, steps=8, warm_start=False),
    hs.BMinSep(min_sep=3, sampling_prob=0.2, steps=8, truncated_batch_size=4, num_examples=24),
    hs.BMinSep(min_sep=3, sampling_prob=0.2, steps=8, truncated_batch_size=4, num_examples=24, warm_start=False),
    hs.MultiAttribution(min_sep=3, sampling_prob=0.3, steps=8, examples_per_user=1),
    hs.MultiAttribution(min_sep=3, sampling_prob=0.3, steps=8, examples_per_user=1, exclusion="participating"),
    hs.MultiAttribution(
        min_sep=3, sampling_prob=0.9, steps=4, examples_per_user=1, exclusion="participating", warm_up_steps=2
    ),
    hs.MultiAttribution(min_sep=3, sampling_prob=0.3, steps=8, examples_per_user=1, exclusion="example"),
]
SAMPLERS += [
    sampler
    for kind, declared in DECLARED.items()
    if kind not in {sampler.kind for sampler in SAMPLERS}
    for sampler in declared.runs
]
"""Of every kind that is not among them yet, the runs that it declares."""
SIZE, RUNS = RUN_EXAMPLES, 1500


def how_often(sampler: Sampler) -> NDArray[np.int64]:
    """Batches that each example is in, in runs that the sampler draws, shape (RUNS, examples)."""
    rng, size = np.random.default_rng(8), getattr(sampler, "num_examples", None) or SIZE
    counts = np.zeros((RUNS, size), np.int64)
    for run in counts:
        for batch in sampler.batches(size, rng):
            run[batch] += 1
    return counts


@pytest.mark.parametrize("sampler", SAMPLERS, ids=[f"{sampler.kind}-{k}" for k, sampler in enumerate(SAMPLERS)])
def test_floors_are_at_most_the_truth_of_drawn_participations(sampler: Sampler, planted: str) -> None:
    """1,500 drawn runs, fixed seed; a right floor fails with a probability below 1e-6 (five standard deviations)."""
    counts = how_often(sampler)
    leaves = 1.0 - (1.0 - CHANCE) ** counts
    worst = leaves.mean(axis=0).argmax() if sampler.kind in ("deterministic", "cyclic_poisson") else slice(None)
    each = leaves[:, worst].reshape(RUNS, -1).mean(axis=1)
    least = floor(Mechanism(sampler=sampler, noise_multiplier=1.0), planted)
    error = 5.0 * float(each.std()) / sqrt(RUNS)
    assert 0.4 * each.mean() < least <= each.mean() + error + 1e-12
    assert sampler.mean_participations <= counts.mean(axis=0).max() + 0.1
    assert counts.max() <= sampler.most_participations


def test_every_kind_of_sampler_is_among_them() -> None:
    assert {sampler.kind for sampler in SAMPLERS} == set(hs.samplers.SAMPLERS)


@settings(max_examples=60)
@given(
    name=st.sampled_from(sorted(GENERATORS)),
    noise=st.floats(0.2, 5.0),
    more=st.floats(1.0, 3.0),
    rate=st.floats(1e-4, 0.3),
    steps=st.integers(1, 500),
)
def test_the_floor_falls_with_noise_and_grows_with_steps_and_rate(
    name: str, noise: float, more: float, rate: float, steps: int
) -> None:
    least = floor(poisson(noise, rate, steps), name)
    assert 0.0 <= floor(poisson(noise * more, rate, steps), name) <= least <= 1.0
    assert floor(poisson(noise, rate * more, steps), name) >= least
    assert floor(poisson(noise, rate, steps + 10), name) >= least
    assert floor_of_known_batches(poisson(noise, rate, steps), name) >= least


def test_the_smallest_entry_of_the_diagonal_is_what_moves(planted: str, tmp_path: Path) -> None:
    matrix = np.array([[0.5, 0.0], [0.4, 1.0]])
    np.save(tmp_path / "matrix.npy", matrix)
    sampler = hs.Deterministic(bins=2)
    run = Mechanism(strategy=hs.Custom(path=str(tmp_path / "matrix.npy")), sampler=sampler, noise_multiplier=1.0)
    assert floor(run, planted) == pytest.approx(0.1)  # a shift of 0.5, which leaves less often than one of 1
    assert floor(run.with_noise(0.4), planted) == pytest.approx(CHANCE)


@pytest.mark.parametrize(
    "strategy",
    [
        hs.BandedSquareRoot(bands=3),
        hs.ColumnNormalizedBanded(bands=3),
        hs.BandedInverseSquareRoot(bands=3),
        hs.BufferedToeplitz(buffers=2),
        hs.Dense(),
    ],
    ids=lambda strategy: strategy.kind,
)
def test_the_diagonal_is_that_of_the_matrix(strategy: object) -> None:
    matrix = Mechanism(strategy=strategy, sampler=hs.Deterministic(bins=6)).matrix  # type: ignore[arg-type]
    assert np.allclose(matrix.diagonal_entries, np.diag(matrix.materialize()), rtol=1e-14)


def test_trees_have_no_floor(planted: str) -> None:
    run = Mechanism(strategy=hs.BinaryTree(), sampler=hs.Deterministic(bins=4), noise_multiplier=1.0)
    assert floor(run, planted) == 0.0


def test_unknown_generators_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"'generator' argument must be one of jax-float32, .* Got 'numpy'"):
        floor(poisson(1.0), "numpy")


def test_the_sines_of_the_other_half_count_the_same() -> None:
    """P(r sin(a) > t) on the same grid: the angles are a quarter of the circle further."""
    size, t = 1 << 5, 0.7
    grid = [(sqrt(-2.0 * log(k / size)), 2.0 * pi * j / size) for k in range(1, size + 1) for j in range(size)]
    assert sum(r * cos(angle) > t for r, angle in grid) == sum(r * sin(angle) > t for r, angle in grid)
