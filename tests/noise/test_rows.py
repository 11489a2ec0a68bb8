"""Where rows live changes nothing about the noise: bits, checkpoints, threads and parts."""

import os
import tracemalloc

import numpy as np
import pytest

from hockeystick.errors import InvalidInputError
from hockeystick.mechanism import Mechanism
from hockeystick.noise import MappedFile, Memory, NoiseStream, Replay, columns, rows, stream
from hockeystick.noise.draws import Draws
from hockeystick.noise.normals import SeededSource
from hockeystick.samplers import BallsInBins
from hockeystick.strategies import (
    BandedInverseSquareRoot,
    BandedSquareRoot,
    BinaryTree,
    BufferedToeplitz,
    Identity,
    SquareRoot,
)

STEPS = 20
SIZE = columns.STRETCH + 300
STRATEGIES = {
    "identity": Identity(),
    "bands": BandedSquareRoot(bands=6),
    "bands of the inverse": BandedInverseSquareRoot(bands=6),
    "full": SquareRoot(),
    "buffers": BufferedToeplitz(buffers=2),
    "tree": BinaryTree(),
}


def mechanism(name):
    return Mechanism(strategy=STRATEGIES[name], sampler=BallsInBins(bins=STEPS), noise_multiplier=1.3)


def made(name, **options):
    return stream(mechanism(name), options.pop("shape", SIZE), rng=np.random.default_rng(5), **options)


@pytest.fixture(scope="module")
def reference():
    """The noise of every structure, with its rows in memory, by one thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        return {name: np.array(list(made(name))) for name in STRATEGIES}


@pytest.fixture
def places(tmp_path):
    return {"memory": Memory(), "file": MappedFile(tmp_path), "replay": Replay()}


@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("place", ["memory", "file", "replay"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_the_noise_has_the_same_bits_everywhere(name, place, threads, places, reference, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setattr(columns, "STRETCH", 1000 if threads == "3" else columns.STRETCH)
    np.testing.assert_array_equal(np.array(list(made(name, rows=places[place]))), reference[name])


def test_rows_are_runs_of_the_source_s_numbers(reference):
    """However many stretches a row has: no number is in two rows, and none is left out."""
    z = np.empty((STEPS, SIZE), np.float32)
    SeededSource.from_generator(np.random.default_rng(5)).fill(z, scale=1.3)
    np.testing.assert_array_equal(reference["identity"], z)


@pytest.mark.parametrize("after", ["memory", "file", "replay"])
@pytest.mark.parametrize("before", ["memory", "file", "replay"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_checkpoint_continues_with_its_rows_anywhere(name, before, after, places, reference):
    noise = made(name, rows=places[before])
    for _ in range(11):
        noise.next()
    again = NoiseStream.from_state(mechanism(name), noise.state(), rows=places[after])
    np.testing.assert_array_equal(np.array(list(again)), reference[name][11:])


@pytest.mark.parametrize("place", ["memory", "file", "replay"])
@pytest.mark.parametrize("name", ["bands", "bands of the inverse", "tree"])
def test_parts_together_are_the_whole(name, place, places, reference):
    """As for the parameters that two processes share out: some of each, in stretches that begin anywhere."""
    first, second = [(0, 7), (100, 5000), (5001, SIZE)], [(7, 100), (5000, 5001)]
    for part in (first, second):
        noise = made(name, shape=(2, SIZE // 2), rows=places[place], part=part)
        expected = np.concatenate([reference[name][:, start:stop] for start, stop in part], axis=1)
        assert noise.shape == expected[0].shape
        np.testing.assert_array_equal(np.array([noise.next() for _ in range(9)]), expected[:9])
        again = NoiseStream.from_state(mechanism(name), noise.state(), rows=places[place])
        np.testing.assert_array_equal(np.array(list(again)), expected[9:])


@pytest.mark.parametrize("part", [[], [(3, 3)], [(0, 5), (4, 6)], [(5, 6), (0, 2)], [(0, 11)], [(-1, 2)]])
def test_parts_that_cannot_be_are_refused(part):
    with pytest.raises(InvalidInputError, match="'part' parameter must be ascending"):
        made("bands", shape=10, part=part)


def test_replay_keeps_nothing_and_says_what_it_costs():
    """Rows of z that are made again for each step, as the docstring counts them."""
    for name, cost in {
        "identity": lambda t: 1,
        "bands": lambda t: t + 1,
        "buffers": lambda t: t + 1,
        "tree": lambda t: (t + 1) & -(t + 1),
    }.items():
        noise = made(name, shape=3, rows=Replay())
        assert noise.nbytes == 0
        assert sum(np.asarray(value).nbytes for value in noise.state().values()) < 2000
        for step in range(STEPS):
            asked = rows_asked_for(noise)
            assert asked == cost(step), (name, step)
    noise = made("bands of the inverse", shape=3, rows=Replay())
    counts = [rows_asked_for(noise) for _ in range(STEPS)]
    block = 2  # of steps that are solved together: a replay begins with a whole one
    assert all(min(t + 1, 6) <= asked <= min(t + 1, 6) + block - 1 for t, asked in enumerate(counts))


def rows_asked_for(noise):
    asked = []

    class Counted(Draws):
        def __call__(self, rows, first, column):
            asked.append(len(rows))
            noise._draws(rows, first, column)

        def moved(self, columns):
            assert columns == 0
            return self

    noise._rows.row(noise.step, Counted(noise._draws.source, 1.0, 1, []), None)
    noise._step += 1
    return sum(asked)


def test_memory_is_counted_before_it_is_taken():
    """Far more than any machine has, refused at once."""
    with pytest.raises(InvalidInputError, match=r"keeps 8 arrays .* 3.2e\+16 bytes.*'max_bytes'.* Got 1000000 instead"):
        made("bands", shape=10**15, max_bytes=10**6)
    with pytest.raises(InvalidInputError, match="'max_bytes'"):
        made("bands", shape=10, rows=Memory(max_bytes=8 * 10 * 4 - 1))
    assert made("bands", shape=10, rows=Memory(max_bytes=8 * 10 * 4)).nbytes == 8 * 10 * 4


@pytest.mark.parametrize("place", ["memory", "file", "replay"])
def test_a_row_that_is_not_copied_is_the_same(place, places, reference):
    noise = made("bands", rows=places[place])
    for row in reference["bands"]:
        np.testing.assert_array_equal(noise.next(copy=False), row)


def test_a_file_without_room_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match=r"room for a file of 3.2e\+16 bytes: "):
        made("bands", shape=10**15, rows=MappedFile(tmp_path))
    with pytest.raises(InvalidInputError, match=r"room for a file of .* bytes: No such file"):
        made("bands", rows=MappedFile(tmp_path / "missing"))


def test_a_file_leaves_nothing_behind(tmp_path):
    noise = made("bands", rows=MappedFile(tmp_path))
    noise.next()
    assert list(tmp_path.iterdir()) == []
    assert noise.nbytes == 8 * SIZE * 4


def test_the_state_of_a_file_is_in_a_file(tmp_path):
    """Not in memory, for which the rows are too many, and not the rows themselves, which go on."""
    noise = made("bands", rows=MappedFile(tmp_path))
    noise.next()
    tracemalloc.start()
    state = noise.state()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < noise.nbytes / 10
    assert list(tmp_path.iterdir()) == []
    before = state["solver_ring"].copy()
    for _ in range(9):
        noise.next()
    np.testing.assert_array_equal(state["solver_ring"], before)


def test_threads_follow_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert columns.threads() == 3
    for said in ("", "0", "many"):
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert columns.threads() >= 1


def test_an_error_in_a_thread_is_raised(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")

    def work(start, stop):
        if start:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        columns.over_columns(work, 8 * columns.STRETCH)


def test_a_replayed_dense_matrix_is_probed_once(monkeypatch):
    """Each stretch has a solver of its own; the check of the matrix is not theirs."""
    prototype = rows.Replayed(made("bands", shape=1)._rows.solver, 5)
    assert type(prototype.solver.resized(5)) is type(prototype.solver)
    assert prototype.solver.resized(5).solved().shape == (0, 5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore")  # of forks of processes with threads, which the child does not need
@pytest.mark.parametrize("place", ["memory", "file"])
def test_a_fork_gets_no_noise_and_leaves_the_rows_alone(place, places, reference):
    """It would have the same noise, and write to the same mapped rows."""
    noise = made("bands", rows=places[place])
    noise.next()
    child = os.fork()
    if child == 0:
        refused = 0
        try:
            noise.next()
        except InvalidInputError:
            refused = 7
        finally:
            os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    for expected in reference["bands"][1:6]:
        np.testing.assert_array_equal(noise.next(), expected)
