"""Certificates of optimised strategies verify where the optimiser finds other last digits, and for their matrix alone.

Another machine is played by an optimiser whose result is an ulp off, by one that starts or stops elsewhere, and, in a
process of its own, by another kernel of the BLAS.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hockeystick import (
    BandedInverse,
    BandedToeplitz,
    BufferedToeplitz,
    Certificate,
    ColumnNormalizedBanded,
    Dense,
    Deterministic,
    Mechanism,
    Poisson,
    certify,
    verify,
)
from hockeystick.certificate.certificate import FORMAT
from hockeystick.cli.main import main
from hockeystick.errors import InvalidInputError, VerificationError
from hockeystick.report.certificate import shown
from hockeystick.strategies import base, companion, optimised
from hockeystick.strategies.optimise import banded_inverse, banded_toeplitz, buffered, column_normalized, dense
from hockeystick.strategies.optimised import Held

STRATEGIES: dict[str, Any] = {
    "banded_toeplitz": BandedToeplitz(bands=4),
    "banded_inverse": BandedInverse(bands=3),
    "banded_inverse_apart": BandedInverse(bands=3, min_sep=6),
    "buffered_toeplitz": BufferedToeplitz(buffers=2),
    "column_normalized_banded": ColumnNormalizedBanded(bands=3),
    "dense": Dense(),
    "dense_epochs": Dense(epochs=2),
}
IN_FILES = {"column_normalized_banded", "dense", "dense_epochs"}


def run(name: str) -> Mechanism:
    """Twelve steps with this strategy."""
    return Mechanism(strategy=STRATEGIES[name], sampler=Deterministic(bins=6, epochs=2), noise_multiplier=2.0)


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    """What a new process knows of optima and of files."""
    base._built.cache_clear()
    companion._places.clear()
    companion._tables.clear()


def an_ulp_off(patch: pytest.MonkeyPatch) -> None:
    """Every number of every optimiser's result moves to the next double."""

    def moved(module: Any, name: str) -> None:
        optimiser: Callable[..., Any] = getattr(module, name)

        def other(*arguments: Any) -> Any:
            result = optimiser(*arguments)
            numbers = result if isinstance(result, tuple) else (result,)
            shifted = tuple(np.where(array != 0.0, np.nextafter(array, 0.0), 0.0) for array in numbers)
            return shifted if isinstance(result, tuple) else shifted[0]

        patch.setattr(module, name, other)

    moved(banded_toeplitz, "optimal_coefficients")
    moved(banded_inverse, "optimal_inverse_coefficients")
    moved(buffered, "optimal_buffers")
    moved(column_normalized, "optimal_columns")
    moved(dense, "optimal_matrix")
    moved(dense, "optimal_matrix_for_epochs")


def another_start(patch: pytest.MonkeyPatch) -> None:
    """Every search starts elsewhere, or stops elsewhere: the fixed point of the dense optimum forgets its start."""
    for module in (banded_toeplitz, banded_inverse, column_normalized, dense):
        minimise = module.minimise

        def elsewhere(function: Any, start: Any, subject: str, *, _search: Any = minimise, **options: Any) -> Any:
            return _search(function, start * 1.001, subject, **options)

        patch.setattr(module, "minimise", elsewhere)
    begin = buffered._start
    patch.setattr(buffered, "_start", lambda *arguments: begin(*arguments) * 1.001)
    patch.setattr(dense, "CLOSE", 1e-6)


@pytest.mark.parametrize("elsewhere", [an_ulp_off, another_start])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_certificate_verifies_where_the_optimiser_finds_other_digits(
    name: str, elsewhere: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = certify(run(name), delta=1e-5, method="gaussian")
    issued.save(tmp_path / "certificate.json")
    forget()
    elsewhere(monkeypatch)
    assert run(name).matrix.digest != issued.strategy_digest  # else this is no other machine
    loaded = Certificate.load(tmp_path / "certificate.json")
    assert loaded == issued
    assert loaded.format == FORMAT
    assert verify(loaded) is loaded
    assert loaded.mechanism.matrix.digest == issued.strategy_digest
    assert loaded.mechanism.is_of(run(name))
    assert not loaded.mechanism.is_of(run(name).with_noise(2.5))
    files = [path.name for path in tmp_path.glob("*.npy")]
    assert files == ([companion.file_name(issued.strategy_digest)] if name in IN_FILES else [])
    assert (files[0] if files else "coefficients are in the certificate") in shown(loaded)


def test_a_subsampled_certificate_verifies_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only the Gaussian for known batches."""
    mechanism = Mechanism(
        strategy=BandedToeplitz(bands=2), sampler=Poisson(sampling_prob=0.2, steps=6), noise_multiplier=2.0
    )
    issued = certify(mechanism, delta=1e-5)
    assert issued.method.upper != "gaussian"
    issued.save(tmp_path / "certificate.json")
    forget()
    an_ulp_off(monkeypatch)
    verify(Certificate.load(tmp_path / "certificate.json"))


ELSEWHERE = """
import sys
import hockeystick as hs
loaded = hs.Certificate.load(sys.argv[1])
planned = hs.Mechanism(
    strategy=type(loaded.mechanism.strategy).parse(loaded.mechanism.strategy.model_dump(exclude={"held"})),
    sampler=loaded.mechanism.sampler,
    noise_multiplier=2.0,
)
hs.verify(loaded)
print(planned.matrix.digest == loaded.strategy_digest)
"""


@pytest.mark.parametrize("name", ["banded_inverse", "dense"])
def test_a_certificate_verifies_with_another_kernel_of_the_blas(name: str, tmp_path: Path) -> None:
    """Whether its optimum differs is up to the machine that runs this; the certificate verifies in either case."""
    certify(run(name), delta=1e-5, method="gaussian").save(tmp_path / "certificate.json")
    for kernel in ("Nehalem", "Haswell"):
        done = subprocess.run(
            [sys.executable, "-c", ELSEWHERE, str(tmp_path / "certificate.json")],
            env=os.environ | {"OPENBLAS_CORETYPE": kernel},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() in ("True", "False")


ISSUED = """
import sys
from pathlib import Path
from hockeystick import certify
from test_held_matrices import of_all_families
for place, mechanism in enumerate(of_all_families()):
    certify(mechanism, delta=1e-5, method="gaussian").save(Path(sys.argv[1]) / f"{place}.json")
"""
VERIFIED = """
import sys
from pathlib import Path
from pytest import MonkeyPatch
from hockeystick import Certificate, verify
from test_held_matrices import another_start, of_all_families
another_start(MonkeyPatch())
for place, mechanism in enumerate(of_all_families()):
    loaded = verify(Certificate.load(Path(sys.argv[1]) / f"{place}.json"))
    print(loaded.mechanism.is_of(mechanism), mechanism.matrix.digest != loaded.strategy_digest)
"""


def of_all_families() -> list[Mechanism]:
    """Thirty mechanisms: every family of optimised strategies, at two sizes of its own and three numbers of epochs."""
    found = []
    for epochs in (2, 3, 4):
        strategies = (
            BandedToeplitz(bands=2),
            BandedToeplitz(bands=4),
            BandedInverse(bands=3),
            BandedInverse(bands=3, min_sep=6),
            BufferedToeplitz(buffers=1),
            BufferedToeplitz(buffers=2),
            ColumnNormalizedBanded(bands=2),
            ColumnNormalizedBanded(bands=3),
            Dense(),
            Dense(epochs=epochs),
        )
        sampler = Deterministic(bins=6, epochs=epochs)
        found += [Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=2.0) for strategy in strategies]
    return found


@pytest.mark.weekly
@pytest.mark.parametrize(("here", "there"), [("Haswell", "Nehalem"), ("Nehalem", "Haswell")])
def test_certificates_of_every_family_verify_with_another_kernel_and_start(
    here: str, there: str, tmp_path: Path
) -> None:
    """Thirty in each direction; from the other start the optimiser ends at other digits."""
    lines: dict[str, list[str]] = {}
    for kernel, script in ((here, ISSUED), (there, VERIFIED)):
        paths = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
        environment = os.environ | {"OPENBLAS_CORETYPE": kernel, "PYTHONPATH": paths}
        command = [sys.executable, "-c", script, str(tmp_path)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        lines[script] = done.stdout.splitlines()
    assert len(lines[VERIFIED]) == 30
    assert all(line.startswith("True ") for line in lines[VERIFIED])
    assert sum(line.endswith(" True") for line in lines[VERIFIED]) >= 20  # else this is no other machine


EXPERIMENTS = Path(__file__).parents[2] / "experiments"
STORED = (
    "dong-ganesh-2026-figure-4/certificates/cyclic-bands-4-1-direct.json",
    "dong-ganesh-2026-figure-4/certificates/cyclic-bands-16-8-direct.json",
    "dong-ganesh-2026-figure-4/certificates/bins-bands-16-2-moment_majorant.json",
    "dong-ganesh-2026-figure-4/certificates/min-sep-30-bands-16-2-monte_carlo.json",
    "dong-ganesh-2026-figure-5/certificates/unamplified-2-gaussian.json",
    "dong-ganesh-2026-figure-5/certificates/by-example-2-separated_windows.json",
)


@pytest.mark.weekly
@pytest.mark.parametrize("kernel", ["Nehalem", "Haswell"])
@pytest.mark.parametrize("name", STORED)
def test_stored_certificates_of_optimised_strategies_verify_with_other_kernels_of_the_blas(
    name: str, kernel: str
) -> None:
    command = [sys.executable, "-m", "hockeystick", "verify", str(EXPERIMENTS / name)]
    environment = os.environ | {"OPENBLAS_CORETYPE": kernel}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "verified: recomputed" in done.stdout


def edited(certificate: Certificate, change: Callable[[dict[str, Any]], object]) -> Certificate:
    """The sealed certificate with another content."""
    content = certificate.content()
    change(content)
    return Certificate.parse_json(json.dumps(content)).sealed()


def coefficients(content: dict[str, Any]) -> list[float]:
    """The held coefficients of a certificate's content."""
    held: list[float] = content["mechanism"]["strategy"]["held"]["coefficients"]
    return held


def test_other_numbers_are_another_matrix() -> None:
    """By one ulp of one number; with the digest changed too, the bounds are those of the other matrix."""
    honest = certify(run("banded_toeplitz"), delta=1e-5, method="gaussian")
    verify(honest)
    places = range(len(coefficients(honest.content())))
    for place in places:

        def move(content: dict[str, Any], place: int = place) -> None:
            coefficients(content)[place] = float(np.nextafter(coefficients(content)[place], 2.0))

        with pytest.raises(VerificationError, match="'strategy_digest' field is of another matrix than the"):
            verify(edited(honest, move))
    larger = edited(honest, lambda content: coefficients(content).__setitem__(1, 0.9))
    digest = larger.mechanism.matrix.digest
    with pytest.raises(VerificationError, match=r"'epsilon\.upper' field claims"):
        verify(edited(larger, lambda content: content.update(strategy_digest=digest)))
    with pytest.raises(VerificationError, match="'strategy_digest' field claims"):
        verify(edited(honest, lambda content: content.update(strategy_digest=None)))


def test_the_sensitivity_is_that_of_the_held_matrix() -> None:
    """A matrix that no optimiser found is as good a mechanism; nothing is taken from the family's name."""
    held = Held(coefficients=(1.5, 2.0, 0.0, 0.25))
    strategy = BandedToeplitz(bands=4, held=held)
    mechanism = Mechanism(strategy=strategy, sampler=Deterministic(bins=6, epochs=2), noise_multiplier=8.0)
    certificate = certify(mechanism, delta=1e-5, method="gaussian")
    assert certificate.sensitivity == pytest.approx(np.sqrt(1.5**2 + 2.0**2 + 0.25**2), rel=1e-12)
    assert mechanism.pinned() == mechanism
    verify(certificate)
    unit = edited(certificate, lambda content: content.update(sensitivity=1.0))
    with pytest.raises(VerificationError, match="'sensitivity' field claims"):
        verify(unit)


def verified(path: Path, *options: str) -> int:
    """The exit code of ``hockeystick verify``."""
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(path), *options])
    return int(ended.value.code or 0)


def test_a_matrix_in_a_file_is_found_beside_the_certificate_or_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    issued = certify(run("dense"), delta=1e-5, method="gaussian")
    issued.save(tmp_path / "certificate.json")
    (tmp_path / "away").mkdir()
    name = companion.file_name(issued.strategy_digest or "")
    assert issued.recompute == f"hockeystick verify CERTIFICATE --matrix {name}"
    elsewhere = tmp_path / "away" / "matrix.npy"
    (tmp_path / name).rename(elsewhere)
    forget()
    an_ulp_off(monkeypatch)
    assert verified(tmp_path / "certificate.json") == 1
    assert name in capsys.readouterr().err
    assert verified(tmp_path / "certificate.json", "--matrix", str(elsewhere)) == 0
    forget()
    table = np.load(elsewhere)
    table[3, 1] = np.nextafter(table[3, 1], 0.0)
    np.save(tmp_path / name, table)
    capsys.readouterr()
    assert verified(tmp_path / "certificate.json") == 1
    assert "must be that of the matrix in its file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"no array", "array of doubles"),
        (np.eye(12, dtype=np.float32), "array of doubles"),
        (np.ones((12, 12)), "zero above the diagonal"),
        (np.eye(11), r"entries of shape \(12, 12\)"),
        (-np.eye(12), "without negative numbers"),
        (np.eye(12) * np.nan, "finite numbers"),
        (np.eye(12) * 1e-60, "everywhere on the diagonal"),
        (b"cut", "whole .npy file"),
    ],
)
def test_a_file_of_no_such_matrix_is_refused(content: Any, says: str, tmp_path: Path) -> None:
    issued = certify(run("dense"), delta=1e-5, method="gaussian")
    issued.save(tmp_path / "certificate.json")
    path = tmp_path / companion.file_name(issued.strategy_digest or "")
    whole = path.read_bytes()
    if isinstance(content, bytes):
        path.write_bytes(whole[:-8] if content == b"cut" else content)
    else:
        np.save(path, content)
    base._built.cache_clear()
    with pytest.raises(VerificationError, match=says):
        verify(issued)


@pytest.mark.parametrize(
    ("strategy", "held", "says"),
    [
        (BandedToeplitz(bands=2), {"coefficients": (1.0, 0.5, 0.25)}, r"coefficients of shape \(2,\)"),
        (BandedToeplitz(bands=2), {"coefficients": (1.0, -0.5)}, "without negative numbers"),
        (BandedToeplitz(bands=2), {"coefficients": (0.0, 0.5)}, "everywhere on the diagonal"),
        (BandedInverse(bands=2), {"inverse_coefficients": (1.0, 0.5)}, "without negative entries"),
        (BandedInverse(bands=2), {"inverse_coefficients": (-1.0, 0.5)}, "without negative numbers"),
        (BufferedToeplitz(buffers=1), {"scales": (-0.1,), "decays": (0.5,), "diagonal": 1.0}, "without negative"),
        (BufferedToeplitz(buffers=1), {"scales": (0.1,), "decays": (1.5,), "diagonal": 1.0}, "decays from 0 to 1"),
        (BufferedToeplitz(buffers=1), {"scales": (0.1,), "decays": (0.5,), "diagonal": 0.0}, "on the diagonal"),
    ],
)
def test_held_numbers_of_no_such_matrix_are_refused(strategy: Any, held: dict[str, Any], says: str) -> None:
    mechanism = Mechanism(
        strategy=strategy.model_copy(update={"held": Held(**held)}), sampler=Deterministic(bins=6), noise_multiplier=1.0
    )
    with pytest.raises(InvalidInputError, match=says):
        _ = mechanism.matrix


@pytest.mark.parametrize(
    ("kind", "held"),
    [
        (BandedToeplitz, {"inverse_coefficients": [1.0, 0.5]}),
        (BandedToeplitz, {}),
        (BufferedToeplitz, {"digest": "0" * 64}),
        (BufferedToeplitz, {"scales": [0.1], "decays": [0.5]}),
        (Dense, {"coefficients": [1.0]}),
    ],
)
def test_held_numbers_are_those_of_the_family(kind: Any, held: dict[str, Any]) -> None:
    size = {BandedToeplitz: {"bands": 2}, BufferedToeplitz: {"buffers": 1}, Dense: {}}[kind]
    with pytest.raises(InvalidInputError, match=r"'strategy\.held' field of"):
        kind.parse(size | {"held": held})


def test_many_coefficients_go_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimised, "LARGEST", 3)
    issued = certify(run("banded_toeplitz"), delta=1e-5, method="gaussian")
    assert issued.mechanism.strategy.companion == issued.strategy_digest
    issued.save(tmp_path / "certificate.json")
    forget()
    an_ulp_off(monkeypatch)
    verify(Certificate.load(tmp_path / "certificate.json"))


def test_a_plan_may_hold_the_numbers() -> None:
    strategy = BandedToeplitz.parse({"bands": 2, "held": {"coefficients": [0.9, 0.1]}})
    assert strategy.matrix(3).materialize().tolist() == [[0.9, 0.0, 0.0], [0.1, 0.9, 0.0], [0.0, 0.1, 0.9]]
