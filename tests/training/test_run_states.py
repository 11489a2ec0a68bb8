"""What a run saves: who can read it, and what is refused when it is loaded."""

import copy
import pickle
import stat

import numpy as np
import pytest
from small_runs import OTHER, finished, mechanism_of, run_of, same

import hockeystick as hs
from hockeystick import noise
from hockeystick.errors import InvalidInputError
from hockeystick.strategies import base
from hockeystick.strategies.optimise import banded_toeplitz, dense
from hockeystick.training import Run


def test_only_the_owner_can_read_a_state(tmp_path):
    run_of().save(tmp_path / "state.npz")
    assert stat.S_IMODE((tmp_path / "state.npz").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["state.npz"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: run_of(OTHER), "another mechanism"),
        (
            lambda: Run(
                mechanism_of(hs.Poisson(sampling_prob=0.1, steps=12), hs.SquareRoot()), num_examples=24, shape=3
            ),
            "another mech",
        ),
        (lambda: run_of(num_examples=25), "a run on 24 examples; this one has 25"),
        (lambda: run_of(shape=4), r"noise of shape \(4,\)"),
        (lambda: run_of(dtype=np.float64), "type float64"),
    ],
    ids=["sampler", "strategy", "examples", "shape", "dtype"],
)
def test_a_state_of_another_run_is_refused(other, message):
    run, resumed = run_of(), other()
    run.noise(next(run.batches()))
    before = resumed.state_dict()
    with pytest.raises(InvalidInputError, match=message):
        resumed.load_state_dict(run.state_dict())
    assert resumed.step == 0
    assert all(np.array_equal(before[name], resumed.state_dict()[name]) for name in before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entropy": np.arange(4, dtype=np.uint64)}, "not those of the saved run"),
        ({"key": np.zeros(32, np.uint8)}, "not those of the saved run"),
        ({"key": np.zeros(31, np.uint8)}, "must be 32 bytes"),
        ({"step": 2}, "for its step"),
        ({"format": 9}, "'format' entry"),
        ({"step": "two"}, "an entry that no run gives"),
    ],
)
def test_a_state_that_was_changed_is_refused(change, message):
    run = run_of()
    run.noise(next(run.batches()))
    with pytest.raises(InvalidInputError, match=message):
        run_of().load_state_dict(run.state_dict() | change)
    incomplete = run.state_dict()
    del incomplete["head"]
    with pytest.raises(InvalidInputError, match="'head' entry of a run's state is missing"):
        run_of().load_state_dict(incomplete)


def test_a_file_that_is_no_state_is_refused(tmp_path):
    (tmp_path / "state.npz").write_text("no state")
    with pytest.raises(InvalidInputError, match="does not hold a run"):
        run_of().load(tmp_path / "state.npz")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        run_of().load(tmp_path / "missing.npz")
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(InvalidInputError, match="does not hold a run: it has one array without a name"):
        run_of().load(tmp_path / "array.npy")


def test_a_file_that_was_cut_short_is_refused(tmp_path):
    """Wherever it was cut, as a copy that was interrupted leaves it."""
    run = run_of()
    run.noise(next(run.batches()))
    run.save(tmp_path / "state.npz")
    whole = (tmp_path / "state.npz").read_bytes()
    for length in range(0, len(whole), 37):
        (tmp_path / "cut.npz").write_bytes(whole[:length])
        with pytest.raises(InvalidInputError, match="does not hold a run"):
            run_of().load(tmp_path / "cut.npz")


def test_the_state_of_another_part_is_refused():
    """Of two processes that both load the state of one, both would have the same noise for parts of one size."""
    first, second = (run_of(shape=6, part=part) for part in ([(0, 3)], [(3, 6)]))
    assert not np.array_equal(first.noise(next(first.batches())), second.noise(next(second.batches())))
    with pytest.raises(InvalidInputError, match="load the state that the same process saved"):
        second.load_state_dict(first.state_dict())
    with pytest.raises(InvalidInputError, match="load the state that the same process saved"):
        run_of().load_state_dict(second.state_dict())
    resumed = run_of(seed=1, shape=6, part=[(3, 6)])
    resumed.load_state_dict(second.state_dict())
    assert same(finished(resumed), finished(second))


@pytest.mark.parametrize("act", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_are_refused(act):
    """They would have the same noise, and no step of theirs would be seen by the other."""
    run = run_of()
    for one in (run, noise.stream(run.mechanism, 3, rng=np.random.default_rng(0))):
        with pytest.raises(InvalidInputError, match="cannot be copied or pickled"):
            act(one)
    assert run.noise(next(run.batches())).shape == (3,)


@pytest.fixture
def fresh_optima():
    """No optimum of another test is known here, and none of this test's later."""
    base._built.cache_clear()
    yield
    base._built.cache_clear()


@pytest.mark.usefixtures("fresh_optima")
@pytest.mark.parametrize("shape", [3, None])
@pytest.mark.parametrize("strategy", [hs.BandedToeplitz(bands=3), hs.Dense()], ids=lambda it: it.kind)
def test_a_run_resumes_where_the_optimiser_finds_other_digits(strategy, shape, tmp_path, monkeypatch):
    """Its matrix, and so its record, are those of the saved run."""
    mechanism = mechanism_of(hs.Poisson(sampling_prob=0.1, steps=12), strategy)
    run = Run(mechanism, num_examples=24, shape=shape, rng=np.random.default_rng(0))
    run.noise(next(run.batches()))
    run.save(tmp_path / "state.npz")
    certificate, rest = hs.certify(mechanism, delta=1e-5, method="gaussian"), finished(run)
    base._built.cache_clear()
    for module, name in ((banded_toeplitz, "optimal_coefficients"), (dense, "optimal_matrix")):
        optimiser = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *sizes, _optimiser=optimiser: _optimiser(*sizes) * (1.0 - 1e-15))
    resumed = Run.resume(tmp_path / "state.npz", mechanism, num_examples=24, shape=shape)
    assert resumed.step == 1
    for (batch, row), (other, other_row) in zip(finished(resumed), rest, strict=True):
        assert np.array_equal(batch, other)
        assert (row is None and other_row is None) or np.array_equal(row, other_row)
    assert resumed.mechanism.matrix.digest == certificate.strategy_digest != mechanism.matrix.digest
    assert resumed.record(certificate).certificate == certificate
