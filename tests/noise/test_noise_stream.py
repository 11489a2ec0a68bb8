"""The stream of a mechanism: what it yields, where it stops, how it continues from a checkpoint."""

import io
import sys
from collections.abc import Mapping

import numpy as np
import pytest

from hockeystick.errors import HockeystickError, InvalidInputError
from hockeystick.mechanism import Mechanism
from hockeystick.noise import NoiseStream, stream
from hockeystick.noise.noise_stream import _seal
from hockeystick.noise.normals import SeededSource
from hockeystick.samplers import BallsInBins
from hockeystick.strategies import BandedInverse, BandedSquareRoot, BandedToeplitz, Custom, Dense, Identity, base
from hockeystick.strategies.optimise import banded_inverse, banded_toeplitz, dense

SIGMA = 1.7


def mechanism(*, bands=5, steps=30, sigma=SIGMA, strategy=None) -> Mechanism:
    chosen = BandedSquareRoot(bands=bands) if strategy is None else strategy
    return Mechanism(strategy=chosen, sampler=BallsInBins(bins=steps), noise_multiplier=sigma)


def rng(seed=0):
    return np.random.default_rng(seed)


def through_a_file(state: Mapping[str, object]) -> dict[str, object]:
    """What comes back from a .npz file that may hold nothing but plain arrays."""
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **state)
    file.seek(0)
    with np.load(file, allow_pickle=False) as loaded:
        return dict(loaded)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_the_noise_is_the_solution_for_the_numbers_of_the_source(shape, dtype):
    """Row t of z is the t-th run of d numbers, and the matrix solves for the rest."""
    run = mechanism()
    z = np.empty((run.sampler.steps, *shape), dtype)
    SeededSource.from_generator(rng()).fill(z)
    expected = SIGMA * run.matrix.solve(z.reshape(len(z), -1).astype(np.float64))
    noise = np.array(list(stream(run, shape, rng=rng(), dtype=dtype)))
    assert noise.shape == z.shape
    assert noise.dtype == dtype
    np.testing.assert_allclose(noise.reshape(len(z), -1), expected, rtol=0.0, atol=40.0 * np.finfo(dtype).eps)


@pytest.mark.parametrize("secure", [False, True])
def test_the_matrix_makes_the_noise_white(secure):
    """C times the noise: mean square, and products of different steps and neighbouring coordinates.

    Each statistic is a mean of N uncorrelated terms with the standard deviation below: six of them, for 2 (1 + 9)
    statistics, are exceeded with a probability below 1e-7.
    """
    if secure:
        pytest.importorskip("cryptography")
    run, d = mechanism(bands=7, steps=40), 20_000
    noise = stream(run, d, rng=None if secure else rng(1), secure=secure)
    white = run.matrix.dot(np.array(list(noise), dtype=np.float64)) / SIGMA
    assert abs(np.mean(white**2) - 1.0) < 6.0 * np.sqrt(2.0 / white.size)
    for lag in range(1, 9):
        products = white[lag:] * white[:-lag]
        assert abs(products.mean()) < 6.0 / np.sqrt(products.size)
    neighbours = white[:, 1:] * white[:, :-1]
    assert abs(neighbours.mean()) < 6.0 / np.sqrt(neighbours.size)


def test_noise_that_is_not_solved_for_would_be_noticed():
    """The statistic of the test above on noise of one band too few is far outside."""
    run, d = mechanism(bands=7, steps=40), 20_000
    noise = np.array(list(stream(mechanism(bands=6, steps=40), d, rng=rng(1))), dtype=np.float64)
    white = run.matrix.dot(noise) / SIGMA
    products = white[6:] * white[:-6]
    assert abs(products.mean()) > 20.0 / np.sqrt(products.size)


def test_steps_are_counted_and_the_end_is_refused():
    noise = stream(mechanism(steps=7), 3, rng=rng())
    for step in range(7):
        assert (noise.step, noise.remaining, noise.steps) == (step, 7 - step, 7)
        noise.next()
    assert noise.remaining == 0
    with pytest.raises(HockeystickError, match="all 7 planned steps"):
        noise.next()
    assert list(noise) == []


def test_given_arrays_stay_as_they_are():
    noise = stream(mechanism(bands=4, steps=30), 5, rng=rng())
    given = [noise.next() for _ in range(30)]
    again = stream(mechanism(bands=4, steps=30), 5, rng=rng())
    for row in given:
        np.testing.assert_array_equal(row, again.next())


def test_out_is_written_and_returned():
    noise, same = (stream(mechanism(), (2, 3), rng=rng()) for _ in range(2))
    out = np.empty((2, 3), np.float32)
    assert noise.next(out) is out
    np.testing.assert_array_equal(out, same.next())


@pytest.mark.parametrize(
    "out",
    [
        np.empty(6, np.float32),
        np.empty((2, 3)),
        np.empty((3, 2), np.float32).T,
        np.broadcast_to(np.float32(0.0), (2, 3)),
        [[0.0] * 3] * 2,
    ],
)
def test_an_out_that_does_not_fit_is_refused_before_a_step_is_taken(out):
    noise = stream(mechanism(), (2, 3), rng=rng())
    with pytest.raises(InvalidInputError, match="'out'"):
        noise.next(out)
    assert noise.step == 0


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("bands", [1, 5, 9])
@pytest.mark.parametrize("taken", [0, 1, 8, 13, 30])
def test_a_checkpoint_continues_bit_for_bit(secure, bands, taken):
    if secure:
        pytest.importorskip("cryptography")
    run = mechanism(bands=bands)
    noise = stream(run, (2, 5), rng=None if secure else rng(), secure=secure)
    for _ in range(taken):
        noise.next()
    state = through_a_file(noise.state())
    expected = list(noise)
    again = NoiseStream.from_state(run, state)
    assert (again.step, again.shape, again.dtype) == (taken, (2, 5), np.float32)
    np.testing.assert_array_equal(list(again), expected)
    # A stream that was continued is checkpointed like any other.
    twice = NoiseStream.from_state(run, through_a_file(NoiseStream.from_state(run, state).state()))
    np.testing.assert_array_equal(list(twice), expected)


def test_a_state_does_not_change_afterwards():
    noise = stream(mechanism(), 4, rng=rng())
    noise.next()
    state = noise.state()
    kept = {name: np.array(value) for name, value in state.items()}
    list(noise)
    for name, value in state.items():
        np.testing.assert_array_equal(value, kept[name])


def test_the_state_is_a_few_rows_however_long_the_run():
    """O(p d): at most a quarter more rows than bands, and one block of 16."""
    d = 1000
    for bands in (1, 2, 16, 32, 100):
        for steps in (200, 5000):
            noise = stream(mechanism(bands=bands, steps=steps), d, rng=rng())
            noise.next()
            assert noise.nbytes <= (1.25 * bands + 16) * d * 4
            size = sum(np.asarray(value).nbytes for value in noise.state().values())
            assert size <= noise.nbytes + 2000  # the rest are digests


def test_streams_from_one_generator_differ_and_repeat_with_its_seed():
    shared = rng()
    first, second = (np.array(list(stream(mechanism(), 50, rng=shared))) for _ in range(2))
    assert not np.intersect1d(first, second).size
    np.testing.assert_array_equal(first, np.array(list(stream(mechanism(), 50, rng=rng()))))


def test_secure_streams_differ():
    pytest.importorskip("cryptography")
    first, second = (np.array(list(stream(mechanism(), 50, secure=True, dtype=np.float64))) for _ in range(2))
    assert not np.intersect1d(first, second).size


def test_secure_noise_without_its_package_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers", None)
    with pytest.raises(InvalidInputError, match="cryptography"):
        stream(mechanism(), 3, secure=True)


@pytest.mark.parametrize("shape", [-1, 0, (3, -1), (2, 0), 2.0, "3", None, (True,), ((2,),)])
def test_bad_shapes_are_refused(shape):
    with pytest.raises(InvalidInputError, match="'shape'"):
        stream(mechanism(), shape, rng=rng())


@pytest.mark.parametrize("dtype", [np.float16, int, np.complex64, "single precision", None])
def test_bad_types_are_refused(dtype):
    with pytest.raises(InvalidInputError, match="'dtype'"):
        stream(mechanism(), 3, rng=rng(), dtype=dtype)


def test_exactly_one_source_has_to_be_named():
    for options in ({}, {"rng": rng(), "secure": True}):
        with pytest.raises(InvalidInputError, match="'rng'"):
            stream(mechanism(), 3, **options)
    with pytest.raises(InvalidInputError, match="'rng'"):
        stream(mechanism(), 3, rng=0)


def test_a_noise_multiplier_is_needed():
    with pytest.raises(InvalidInputError, match="noise_multiplier"):
        stream(mechanism(sigma=None), 3, rng=rng())


def test_too_much_memory_is_refused():
    with pytest.raises(InvalidInputError, match="'max_bytes'"):
        stream(mechanism(), 1000, rng=rng(), max_bytes=10_000)
    state = stream(mechanism(), 1000, rng=rng()).state()
    with pytest.raises(InvalidInputError, match="'max_bytes'"):
        NoiseStream.from_state(mechanism(), state, max_bytes=10_000)


@pytest.mark.parametrize(
    "other",
    [
        mechanism(sigma=2.0),
        mechanism(bands=6),
        mechanism(steps=31),
        mechanism(strategy=Identity()),
        Mechanism(strategy=BandedSquareRoot(bands=5), sampler=BallsInBins(bins=15, epochs=2), noise_multiplier=SIGMA),
    ],
    ids=["sigma", "bands", "steps", "strategy", "sampler"],
)
def test_a_state_of_another_mechanism_is_refused(other):
    state = stream(mechanism(), 3, rng=rng()).state()
    with pytest.raises(InvalidInputError, match=r"another (mechanism|matrix)"):
        NoiseStream.from_state(other, state)


@pytest.mark.parametrize("place", [(0, 0), (29, 0), (29, 29)])
def test_a_matrix_that_changed_is_refused(tmp_path, place):
    """The file behind a custom strategy may change, and its mechanism then reads the same: by one bit of one entry."""
    matrix = BandedSquareRoot(bands=5).matrix(30).materialize() + np.tril(np.full((30, 30), 1e-3))
    np.save(tmp_path / "matrix.npy", matrix)
    run = mechanism(strategy=Custom(path=str(tmp_path / "matrix.npy")))
    state = through_a_file(stream(run, 3, rng=rng()).state())
    NoiseStream.from_state(run, state)
    matrix[place] = np.nextafter(matrix[place], 2.0)
    np.save(tmp_path / "matrix.npy", matrix)
    with pytest.raises(InvalidInputError, match="another matrix"):
        NoiseStream.from_state(run, state)


def nearly_singular(steps):
    """The condition number of triangles of uniform entries grows exponentially with their size."""
    return np.tril(np.random.default_rng(1).random((steps, steps)))


@pytest.mark.parametrize(("dtype", "steps"), [(np.float32, 60), (np.float64, 100), (np.float64, 200)])
def test_noise_that_cannot_be_solved_for_is_refused(tmp_path, dtype, steps):
    np.save(tmp_path / "matrix.npy", nearly_singular(steps))
    run = mechanism(steps=steps, strategy=Custom(path=str(tmp_path / "matrix.npy")))
    with pytest.raises(InvalidInputError, match=r"too close to singular for noise of type float.* use ") as refused:
        stream(run, 3, rng=rng(), dtype=dtype)
    assert ("the type float64" in str(refused.value)) == (dtype is np.float32)


def test_entries_beyond_the_type_are_refused(tmp_path):
    """1e45 is infinite in float32, and the noise would not even be a number."""
    np.save(tmp_path / "matrix.npy", np.array([[1.0, 0.0, 0.0], [1e45, 1.0, 0.0], [1e45, 1.0, 1.0]]))
    run = mechanism(steps=3, strategy=Custom(path=str(tmp_path / "matrix.npy")))
    with pytest.raises(InvalidInputError, match="too close to singular"):
        stream(run, 3, rng=rng())


def test_noise_that_can_be_solved_for_is_not_refused(tmp_path):
    """Moderate conditions, float64 where float32 is not enough, and columns of any scale; the noise is white."""
    good = nearly_singular(60), nearly_singular(12), np.diag(10.0 ** np.linspace(-20.0, 20.0, 60))
    for matrix, dtype in zip(good, (np.float64, np.float32, np.float32), strict=True):
        np.save(tmp_path / "matrix.npy", matrix)
        run = mechanism(steps=len(matrix), strategy=Custom(path=str(tmp_path / "matrix.npy")))
        noise = np.array(list(stream(run, 2, rng=rng(), dtype=dtype)), dtype=np.float64)
        z = np.empty((len(matrix), 2), dtype)
        SeededSource.from_generator(rng()).fill(z)
        np.testing.assert_allclose(matrix @ noise, SIGMA * z, rtol=0.0, atol=0.02)


def test_states_that_do_not_fit_are_refused():
    state = stream(mechanism(bands=9), 3, rng=rng()).state()
    NoiseStream.from_state(mechanism(bands=9), state)
    for name in state:
        with pytest.raises(InvalidInputError, match=r"missing|another"):
            NoiseStream.from_state(mechanism(bands=9), {key: value for key, value in state.items() if key != name})
    for wrong in (
        {"format": 99},
        {"format": "three"},
        {"step": 3},
        {"part": np.array([1, 2, 3])},
        {"shape": np.array([4])},
        {"dtype": "float64"},
        {"dtype": "int32"},
        {"source": "dice"},
        {"solver_solved": 31},
        {"solver_solved": 5, "solver_block_steps": 5},
        {"solver_solved": 2, "solver_block_steps": 1},
        {"solver_solved": -1},
        {"solver_ring": np.zeros((2, 3), np.float32)},
        {"solver_ring": np.where(state["solver_ring"] == state["solver_ring"].flat[4], np.nan, state["solver_ring"])},
        {"solver_ring": np.where(state["solver_ring"] == state["solver_ring"].flat[4], np.inf, state["solver_ring"])},
    ):
        with pytest.raises(InvalidInputError):
            NoiseStream.from_state(mechanism(bands=9), state | wrong)
        with pytest.raises(InvalidInputError, match=r"^(?!.*its seal)"):
            NoiseStream.from_state(mechanism(bands=9), state | wrong | {"seal": _seal(state | wrong)})
    with pytest.raises(InvalidInputError, match=r"must be 5\. Got 2 instead; finish the run with the release"):
        NoiseStream.from_state(mechanism(bands=9), state | {"format": 2})


@pytest.mark.parametrize("kind", [dict, "npz"])
def test_a_step_that_is_set_back_is_refused(kind, tmp_path):
    """Within the block that is kept every step has a row, and two steps with the same noise have none together."""
    whole = stream(mechanism(bands=9), 3, rng=rng())
    states = []
    for _ in range(4):
        whole.next()
        states.append(whole.state())
    if kind == "npz":
        for place, state in enumerate(states):
            np.savez(tmp_path / f"{place}.npz", **state)
        states = [dict(np.load(tmp_path / f"{place}.npz")) for place in range(4)]
    np.testing.assert_array_equal(NoiseStream.from_state(mechanism(bands=9), states[-1]).next(), whole.next())
    assert int(states[3]["solver_solved"]) == int(states[2]["solver_solved"])
    with pytest.raises(InvalidInputError, match="was altered, or put together from two of them"):
        NoiseStream.from_state(mechanism(bands=9), states[3] | {"step": states[2]["step"]})


@pytest.fixture
def fresh_optima():
    """No optimum of another test is known here, and none of this test's later."""
    base._built.cache_clear()
    yield
    base._built.cache_clear()


@pytest.mark.usefixtures("fresh_optima")
@pytest.mark.parametrize("strategy", [BandedToeplitz(bands=3), BandedInverse(bands=3), Dense()], ids=lambda it: it.kind)
def test_a_state_resumes_where_the_optimiser_finds_other_digits(strategy, monkeypatch):
    """With the matrix of the state, bit for bit, and its mechanism refuses the state of that machine's own matrix."""
    run = mechanism(strategy=strategy)
    noise = stream(run, 3, rng=rng())
    noise.next()
    state, rest = through_a_file(noise.state()), list(noise)
    base._built.cache_clear()
    for module, name in (
        (banded_toeplitz, "optimal_coefficients"),
        (banded_inverse, "optimal_inverse_coefficients"),
        (dense, "optimal_matrix"),
    ):
        optimiser = getattr(module, name)

        def an_ulp_off(*arguments, _optimiser=optimiser):
            numbers = _optimiser(*arguments)
            return np.where(numbers != 0.0, np.nextafter(numbers, 0.0), 0.0)

        monkeypatch.setattr(module, name, an_ulp_off)
    here = mechanism(strategy=strategy)
    assert here.matrix.digest != str(state["matrix"])
    resumed = NoiseStream.from_state(here, state)
    assert all(np.array_equal(row, other) for row, other in zip(resumed, rest, strict=True))
    with pytest.raises(InvalidInputError, match="another matrix"):
        NoiseStream.from_state(here.pinned(), state)
    for name in ("strategy", "table"):
        if name == "strategy" or strategy.kind == "dense":
            with pytest.raises(InvalidInputError, match=f"'{name}' entry of a noise state is missing"):
                NoiseStream.from_state(here, {key: value for key, value in state.items() if key != name})
