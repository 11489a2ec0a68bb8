"""Matrices from files: what is accepted, what is refused and how, and which file a strategy is about."""

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest

from hockeystick.errors import InvalidInputError
from hockeystick.strategies import custom
from hockeystick.strategies.banded_square_root import BandedSquareRoot
from hockeystick.strategies.custom import Custom

GOOD = np.array([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [0.0, 0.25, 1.0]])


def saved(path: Path, array: object, **options: bool) -> Custom:
    np.save(path, array, **options)  # type: ignore[arg-type]
    return Custom(path=str(path))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", ">f8", "int32", "uint8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_from_a_file(tmp_path: Path, dtype: str, order: str) -> None:
    array = (4.0 * GOOD).astype(dtype, order=order)
    matrix = saved(tmp_path / "c.npy", array).matrix(3)
    assert np.array_equal(matrix.materialize(), 4.0 * GOOD)
    assert matrix.bands == 2
    np.testing.assert_allclose(matrix.solve(4.0 * GOOD), np.eye(3), atol=1e-15)


def changed(row: int, column: int, value: float) -> np.ndarray:
    array = GOOD.copy()
    array[row, column] = value
    return array


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (GOOD[:2], r"must name a square matrix, not an array of shape \(2, 3\)"),
        (GOOD[0], r"must name a square matrix, not an array of shape \(3,\)"),
        (np.zeros((0, 0)), r"must name a square matrix, not an array of shape \(0, 0\)"),
        (GOOD + 0j, "an array of real numbers, not of complex128"),
        (GOOD > 0, "an array of real numbers, not of bool"),
        (np.array([["a"]]), "an array of real numbers, not of str"),
        (changed(1, 0, np.nan), "a matrix of finite numbers"),
        (changed(0, 2, np.inf), "a matrix of finite numbers"),
        (changed(0, 2, 1e-300), "a lower-triangular matrix"),
        (changed(1, 0, -1e-300), "a matrix without negative entries"),
        (changed(1, 1, 0.0), "a matrix that is not singular"),
        (changed(1, 1, 1e-60), "a matrix that is not singular"),
        (changed(1, 0, 1e60), "a matrix of entries of at most 1e"),
        (np.eye(2), r"as many rows as the 3 steps. Got 2 rows instead"),
    ],
)
def test_what_is_no_strategy_is_refused(tmp_path: Path, array: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as refusal:
        saved(tmp_path / "c.npy", array).matrix(3)
    sentence = str(refusal.value)
    assert sentence.startswith("The 'strategy.path' field must name ")
    assert sentence.endswith(" instead.")
    assert "\n" not in sentence


def header_of(shape: tuple[int, ...]) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a file in NumPy's .npy format"),
        (b"1,0\n1,1\n", "a file in NumPy's .npy format"),
        (b"\x93NUMPY\x09\x00" + bytes(64), "a file in NumPy's .npy format"),
        (header_of((3, 3))[:40], "a file in NumPy's .npy format"),
        (header_of((3, 3)) + bytes(71), "a whole .npy file"),
        (header_of((3, 3)) + bytes(73), "a whole .npy file"),
        (header_of((10**6, 10**6)), "a matrix of at most 8192 rows, not 1000000"),
        (header_of((8192, 8192)), "a whole .npy file"),
    ],
)
def test_broken_files_are_refused_before_memory_is_taken(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "c.npy").write_bytes(content)
    with pytest.raises(InvalidInputError, match=f"^The 'strategy.path' field must name {message}"):
        Custom(path=str(tmp_path / "c.npy")).matrix(3)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    opened: list[str] = []

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return opened.append, ("run",)

    array = np.empty((1, 1), dtype=object)
    array[0, 0] = Trap()
    with pytest.raises(InvalidInputError, match="an array of real numbers, not of object"):
        saved(tmp_path / "c.npy", array, allow_pickle=True).matrix(1)
    (tmp_path / "d.npy").write_bytes(b"\x80\x04N.")
    with pytest.raises(InvalidInputError, match=r"in NumPy's .npy format"):
        Custom(path=str(tmp_path / "d.npy")).matrix(1)
    assert opened == []


def test_missing_files_and_files_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match=r"^The 'strategy.path' file .* cannot be read: No such file"):
        Custom(path=str(tmp_path / "none.npy")).matrix(3)
    strategy = saved(tmp_path / "c.npy", GOOD)
    monkeypatch.setattr(custom, "MAX_FILE_BYTES", 100)
    with pytest.raises(InvalidInputError, match=r"^The 'strategy.path' file .* must be at most 100 bytes"):
        strategy.matrix(3)


def test_the_matrix_follows_the_file_and_is_checked_once(tmp_path: Path) -> None:
    strategy = saved(tmp_path / "c.npy", GOOD)
    before = strategy.matrix(3)
    assert strategy.matrix(3) is before
    saved(tmp_path / "c.npy", 2.0 * GOOD)
    assert np.array_equal(strategy.matrix(3).materialize(), 2.0 * GOOD)
    assert np.array_equal(before.materialize(), GOOD)
    for scale in range(3, 9):
        saved(tmp_path / "c.npy", scale * GOOD)
        assert strategy.matrix(3).materialize()[0, 0] == scale


def test_a_pinned_strategy_is_about_one_content(tmp_path: Path) -> None:
    strategy = saved(tmp_path / "c.npy", GOOD)
    pinned = strategy.pinned()
    assert pinned.sha256 == hashlib.sha256((tmp_path / "c.npy").read_bytes()).hexdigest()
    assert pinned.path == strategy.path
    assert pinned.pinned() == pinned
    assert Custom.parse(pinned.model_dump()) == pinned
    assert np.array_equal(pinned.matrix(3).materialize(), GOOD)
    saved(tmp_path / "c.npy", 2.0 * GOOD)
    for call in (lambda: pinned.matrix(3), pinned.pinned):
        with pytest.raises(InvalidInputError, match=r"must name the file with the SHA-256 [0-9a-f]{64}\. Got"):
            call()


def test_digests_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="'sha256' field"):
        Custom(path="c.npy", sha256="abc")
    with pytest.raises(InvalidInputError, match="'path' field"):
        Custom(path="")


def test_other_strategies_have_nothing_to_pin() -> None:
    strategy = BandedSquareRoot(bands=2)
    assert strategy.pinned() is strategy
