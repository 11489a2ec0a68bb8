"""Kernels on a device: the bits and the whole numbers of the processor, on a GPU or in Triton's interpreter."""

import importlib

import numpy as np
import pytest

from hockeystick.mechanism import Mechanism
from hockeystick.noise import NoiseStream, stream
from hockeystick.noise.devices.choice import reason_against
from hockeystick.noise.exact import solvers
from hockeystick.noise.normals import MASK, NormalSource, SeededSource
from hockeystick.noise.rows import Memory
from hockeystick.samplers import Deterministic
from hockeystick.strategies import BandedInverseSquareRoot, BandedSquareRoot, ColumnNormalizedBanded, Identity

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("triton", reason="needs triton")

import torch
import triton

from hockeystick.noise.devices.columns import solve_again

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
SIGMA, STEPS = 1.7, 5
STRATEGIES = {
    "bands": BandedSquareRoot(bands=4),
    "every column its own": ColumnNormalizedBanded(bands=3),
    "bands of the inverse": BandedInverseSquareRoot(bands=3),
    "identity": Identity(),
}

if not CUDA and tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 9):
    pytest.skip("Triton's interpreter rounds a fused product and sum twice before 3.9", allow_module_level=True)


@pytest.fixture(scope="module", autouse=True)
def kernels():
    """The module of kernels: where there is no GPU, made for the interpreter, whoever has imported it already."""
    from hockeystick.noise.devices import kernels, steps, words

    with pytest.MonkeyPatch.context() as patched:
        if not CUDA:
            patched.setenv("TRITON_INTERPRET", "1")
            patched.setattr(steps, "LANES", 512)  # so that a program is as large as a row
            importlib.reload(words)
            importlib.reload(kernels)
        yield kernels
    if not CUDA:
        importlib.reload(words)
        importlib.reload(kernels)


@pytest.fixture
def steps(kernels):
    from hockeystick.noise.devices import steps

    return steps


def on_device(**options):
    from hockeystick.training.torch import OnDevice

    return OnDevice(DEVICE, **options)


def mechanism(name, *, exact):
    sampler = Deterministic(bins=STEPS)
    return Mechanism(strategy=STRATEGIES[name], sampler=sampler, noise_multiplier=SIGMA, exact=exact)


def rng(seed=1):
    return np.random.default_rng(seed)


def of(source, run, rows, width=700, dtype="float32"):
    return NoiseStream(run, (width,), "int32" if run.exact else dtype, source, rows, None)


@pytest.mark.parametrize(
    ("dtype", "first"),
    [("float32", 0), ("float32", 1000), ("float32", 2**35 - 100), ("float32", 2**45 + 77), ("float64", 2**35 - 100)],
)
def test_numbers_have_the_bits_of_the_processor(steps, dtype, first):
    """At the start of a tile and within one, and around 2**32 blocks, where the counter's high half begins."""
    source, right = SeededSource(np.arange(4, dtype=np.uint64)), np.empty(333, dtype)
    source.fill(right, first, SIGMA)
    drawn = torch.full((333,), np.nan, dtype=getattr(torch, dtype), device=DEVICE)
    steps.normals(drawn, source, first, SIGMA)
    assert np.array_equal(drawn.cpu().numpy(), right)


@pytest.mark.parametrize(
    ("name", "replay", "exact"),
    [
        ("bands", False, False),
        ("bands", False, True),
        ("every column its own", False, True),
        ("bands of the inverse", False, False),
        ("bands of the inverse", False, True),
        ("bands of the inverse", True, False),
        ("identity", False, True),
    ],
)
def test_rows_are_those_in_memory_and_no_number_is_drawn_there(name, replay, exact, monkeypatch):
    """Of a width that is no multiple of anything, for more steps than the ring has rows; no column is in doubt here."""
    run = mechanism(name, exact=exact)
    right = list(stream(run, 701, rng=rng()))
    monkeypatch.setattr(NormalSource, "fill", lambda *given: pytest.fail("the processor drew numbers"))
    noise = stream(run, 701, rng=rng(), rows=on_device(replay=replay))
    for row in right:
        np.testing.assert_array_equal(noise.next(), row)
    assert noise.nbytes == 0 or not replay


@pytest.mark.parametrize(
    ("name", "replay", "exact"), [("every column its own", False, False), ("bands of the inverse", True, True)]
)
def test_parts_have_their_columns_of_the_whole_noise(name, replay, exact, steps, monkeypatch):
    """Also where sums are made a stretch of columns at a time, whose end is within a range."""
    monkeypatch.setattr(steps, "STRETCH", 200)
    run, part = mechanism(name, exact=exact), ((100, 103), (411, 700))
    whole = stream(run, 1501, rng=rng())
    noise = stream(run, 1501, rng=rng(), rows=on_device(replay=replay), part=part)
    for _ in range(3):
        row = whole.next()
        np.testing.assert_array_equal(noise.next(), np.concatenate([row[start:stop] for start, stop in part]))


@pytest.mark.parametrize(("name", "exact"), [("bands", True), ("bands of the inverse", False)])
def test_states_are_those_of_rows_in_memory_and_go_there_and_back(name, exact):
    run = mechanism(name, exact=exact)
    here, there = stream(run, 333, rng=rng()), stream(run, 333, rng=rng(), rows=on_device())
    for _ in range(3):
        here.next()
        there.next()
    states = here.state(), there.state()
    assert all(np.array_equal(value, states[1][key]) for key, value in states[0].items())
    moved = NoiseStream.from_state(run, states[0], rows=on_device())
    back = NoiseStream.from_state(run, states[1], rows=Memory())
    for _ in range(2):
        row = here.next()
        np.testing.assert_array_equal(moved.next(), row)
        np.testing.assert_array_equal(back.next(), row)


def test_float64_has_the_bits_of_the_processor():
    run = mechanism("bands", exact=False)
    here, there = (stream(run, 333, rng=rng(), dtype="float64", rows=rows) for rows in (Memory(), on_device()))
    for _ in range(2):
        np.testing.assert_array_equal(there.next(), here.next())


class TailHeavy(SeededSource):
    """An eighth of the words of level 0 are far in the tail, at positions that the kernels do not take for ordinary."""

    def words(self, first, count, level=0):
        words = super().words(first, count, level)
        if level:
            return words
        k = words & np.uint64(MASK)
        return np.where(k < 2**60, (words & np.uint64(1 << 63)) | (k % np.uint64(2**20)), words)

    def _fill_from_level_0(self, out, first, scale):
        return NormalSource._fill_from_level_0(self, out, first, scale)


@pytest.mark.skipif(CUDA, reason="a compiled kernel has its constants for good")
@pytest.mark.parametrize("name", ["bands", "bands of the inverse", "replayed"])
def test_what_is_far_in_the_tail_takes_its_bits_from_the_processor(name, kernels, steps, monkeypatch):
    """The kernels take k < 2**60 for the tail, where the source of the processor has numbers that are."""
    monkeypatch.setattr(kernels, "TAIL", triton.language.constexpr(float(2**60)))
    run = mechanism("bands of the inverse" if name == "replayed" else name, exact=False)
    source = TailHeavy(np.arange(4, dtype=np.uint64))
    noise = of(source, run, on_device(replay=name == "replayed"), width=155)
    right = of(source, run, Memory(), width=155)
    for _ in range(3):
        row = right.next()
        np.testing.assert_array_equal(noise.next(), row)
        assert np.abs(row).max() > 6.0 * SIGMA
    numbers, right = torch.empty(155, device=DEVICE), np.empty(155, np.float32)
    source.fill(right, 9, SIGMA)
    steps.normals(numbers, source, 9, SIGMA)
    np.testing.assert_array_equal(numbers.numpy(), right)


@pytest.mark.parametrize(
    ("name", "replay"),
    [
        ("bands", False),
        ("every column its own", False),
        ("bands of the inverse", False),
        ("bands of the inverse", True),
    ],
)
def test_numbers_as_wrong_as_they_may_be_change_nothing(name, replay, steps, monkeypatch):
    """All moved by nine tenths of an error of .05 grid steps: a tenth of what kernels guess is in doubt.

    That is more than there is room for. The processor is right about its numbers, and decides.
    """
    run = mechanism(name, exact=True)
    right = [row for row, _ in zip(stream(run, 155, rng=rng()), range(3), strict=False)]
    noise = stream(run, 155, rng=rng(), rows=on_device(replay=replay))
    error = 0.05 / (SIGMA * 2**20)
    table = steps.inverse_distribution_table().copy()
    table[:, -1] += 0.9 * error * (2.0 * (np.arange(len(table)) % 2) - 1.0)
    monkeypatch.setattr(steps, "inverse_distribution_table", lambda: table)
    monkeypatch.setattr(steps, "ERROR", error)
    monkeypatch.setattr(solvers, "ERROR", error)
    monkeypatch.setattr(steps, "ROOM", 1)
    asked = []

    def decide(*given):
        asked.append(given[4])
        solve_again(*given)

    monkeypatch.setattr(steps, "solve_again", decide)
    for row in right:
        np.testing.assert_array_equal(noise.next(), row)
    assert replay or 0.05 * 155 * 3 < sum(map(len, asked)) < 0.5 * 155 * 3


def test_a_wide_cell_is_in_doubt(kernels, steps):
    """What feedback adds for a cell is at least half its width, of every k that a kernel decides.

    And what it adds for the size of a number is above the error of five operations with it.
    """
    from hockeystick.noise.exact.enclosure import upper_quantiles

    for k in (2**20, 3 * 2**21, 2**30, 2**41, 2**55, 2**62 + 12345, MASK):
        low, high, places = upper_quantiles(k, 64)
        assert (high - low) / 2**places / 2.0 <= kernels.CELL.value / (k + 0.5) + steps.ERROR / 100.0
    assert kernels.ROUNDOFF.value >= 5.0 * 2.0**-53


def test_the_reason_is_said_where_the_processor_draws(monkeypatch):
    assert reason_against(DEVICE, "seeded") is None
    assert "those of a keyed one are AES" in reason_against("cuda", "keyed")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "of type 'mps'" in reason_against("mps", "seeded")
    monkeypatch.setattr("hockeystick.noise.devices.choice.find_spec", lambda name: None)
    assert "'triton' is not installed" in reason_against("cuda", "seeded")
