"""Correlated noise from the command line: strategies, bad fields, matrices from files, certificates that name them."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hockeystick.certificate import Certificate

STEPS = 6
STRATEGIES: dict[str, dict[str, Any]] = {
    "banded_square_root": {"bands": 3},
    "banded_inverse_square_root": {"bands": 3},
    "square_root": {},
    "banded_toeplitz": {"bands": 3},
    "column_normalized_banded": {"bands": 3},
    "banded_inverse": {"bands": 3, "min_sep": 2},
    "buffered_toeplitz": {"buffers": 2, "objective": "mean", "min_sep": 3},
    "binary_tree": {},
    "tree_restart": {"height": 2},
    "dense": {"epochs": 2},
    "custom": {"path": "matrix.npy"},
}
MATRIX = np.tril(np.full((STEPS, STEPS), 0.5)) + 0.5 * np.eye(STEPS)
SOON = "0.001"
"""A time budget that leaves only what costs nothing."""


def changed(place: tuple[int, int], value: float) -> np.ndarray[Any, Any]:
    """The good matrix with another entry."""
    matrix = MATRIX.copy()
    matrix[place] = value
    return matrix


@pytest.fixture
def plan(cli: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes a plan of two epochs of three bins with a strategy; nothing is compiled ahead of the question."""
    monkeypatch.setattr("hockeystick.accountants.registry.warm_up", lambda mechanism, methods=None: None)
    np.save("matrix.npy", MATRIX)

    def write(kind: str, fields: dict[str, Any], sampler: str = "balls_in_bins") -> str:
        strategy = {f"strategy.{name}": json.dumps(value) for name, value in {"kind": kind, **fields}.items()}
        size = {"data.num_examples": "60", "data.batch_size": "20", "data.epochs": "2"}
        cli.write_plan(size | strategy | {"sampler.kind": json.dumps(sampler), "mechanism.noise_multiplier": "4.0"})
        return "plan.toml"

    return write


def sealed_with(changes: dict[str, Any], source: str = "cert.json", name: str = "tampered.json") -> str:
    """A certificate with other fields, by dotted name, and a digest that fits them."""
    content = json.loads(Path(source).read_text())
    for place, value in changes.items():
        *tables, field = place.split(".")
        here = content
        for table in tables:
            here = here[table]
        here[field] = value
    Certificate.parse_json(json.dumps(content)).sealed().save(name)
    return name


@pytest.mark.parametrize("sampler", ["balls_in_bins", "deterministic", "random_allocation"])
@pytest.mark.parametrize("kind", STRATEGIES)
def test_every_strategy_has_a_bound(cli: Any, plan: Callable[..., str], kind: str, sampler: str) -> None:
    issued = cli("epsilon", plan(kind, STRATEGIES[kind], sampler), "--method", "gaussian", "--json")
    interval = issued.json["epsilon"]
    assert issued.created == set()
    assert 0.0 < interval["upper"] < 10.0
    assert sampler != "deterministic" or 0.999 * interval["upper"] < interval["lower"] <= interval["upper"]


@pytest.mark.parametrize("kind", [kind for kind in STRATEGIES if kind != "binary_tree"])
def test_strategies_are_refused_with_samplers_that_nobody_analysed(
    cli: Any, plan: Callable[..., str], kind: str
) -> None:
    cli.refuses("epsilon", plan(kind, STRATEGIES[kind], "shuffle"), says=(kind, "shuffle"))
    cli.refuses("calibrate", "plan.toml", says=(kind, "shuffle"))


@pytest.mark.parametrize("kind", [kind for kind, fields in STRATEGIES.items() if "bands" in fields])
def test_bands_fit_in_the_steps(cli: Any, plan: Callable[..., str], kind: str) -> None:
    wrong = {7: "at most the 6 steps", 0: "at least 1", -1: "at least 1", 2.0: "whole number", "2": "whole number"}
    for bands, allowed in wrong.items():
        says = ("'strategy.bands'", allowed, f"Got {bands!r}")
        cli.refuses("compare", plan(kind, STRATEGIES[kind] | {"bands": bands}), says=says)
    cli.refuses("compare", plan(kind, {}), says=("'strategy.bands'", "missing"))


@pytest.mark.parametrize(
    ("kind", "fields", "says"),
    [
        ("banded_inverse", {"bands": 2, "min_sep": 0}, ("min_sep", "at least 1", "Got 0")),
        ("banded_inverse", {"bands": 2, "min_sep": 1.5}, ("min_sep", "whole number", "Got 1.5")),
        ("buffered_toeplitz", {}, ("buffers", "missing")),
        ("buffered_toeplitz", {"buffers": 7}, ("buffers", "at most the 6 steps", "Got 7")),
        ("buffered_toeplitz", {"buffers": 11}, ("buffers", "at most 10", "Got 11")),
        ("buffered_toeplitz", {"buffers": 2, "objective": "min"}, ("objective", "'max' or 'mean'", "Got 'min'")),
        ("tree_restart", {"height": 4}, ("height", "among the 6", "Got 4")),
        ("tree_restart", {"height": 32}, ("height", "at most 31", "Got 32")),
        ("dense", {"epochs": 4}, ("epochs", "divide the 6 steps", "Got 4")),
        ("binary_tree", {"bands": 2}, ("bands", "not known here")),
        ("identity", {"bands": 1}, ("bands", "not known here")),
        ("custom", {}, ("path", "missing")),
        ("custom", {"path": 3}, ("path", "text", "Got 3")),
        ("custom", {"path": "matrix.npy", "sha256": "a" * 64}, ("path", "aaaa")),
    ],
)
def test_fields_of_strategies(
    cli: Any, plan: Callable[..., str], kind: str, fields: dict[str, Any], says: tuple[str, ...]
) -> None:
    cli.refuses("epsilon", plan(kind, fields), "--budget", SOON, says=(f"'strategy.{says[0]}'", *says[1:]))


BAD_MATRICES = {
    "rows": (np.eye(5), "as many rows as the 6 steps"),
    "rectangle": (np.ones((6, 5)), "square"),
    "vector": (np.ones(36), "square"),
    "nothing": (np.ones((0, 0)), "square"),
    "negative": (changed((3, 1), -1e-9), "without negative entries"),
    "upper": (MATRIX.T, "lower-triangular"),
    "above": (changed((1, 3), 1e-300), "lower-triangular"),
    "singular": (changed((2, 2), 0.0), "not singular"),
    "nan": (changed((2, 2), np.nan), "finite"),
    "infinite": (changed((3, 2), np.inf), "finite"),
    "huge": (changed((3, 2), 1e300), "at most 1e+50"),
    "complex": (MATRIX.astype(complex), "real numbers"),
    "text": (np.full((6, 6), "1"), "real numbers"),
}


@pytest.mark.parametrize("name", BAD_MATRICES)
def test_matrices_that_are_none(cli: Any, plan: Callable[..., str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled before they are refused."""
    compiled = "hockeystick.accountants.registry.warm_up"
    monkeypatch.setattr(compiled, lambda *rest: pytest.fail("Kernels were compiled."))
    array, allowed = BAD_MATRICES[name]
    np.save(f"{name}.npy", array)
    says = ("'strategy.path'", allowed) + (() if name == "rows" else (f"'{name}.npy'",))
    for command in ("epsilon", "compare", "calibrate"):
        cli.refuses(command, plan("custom", {"path": f"{name}.npy"}), "--budget", SOON, says=says)


def test_files_that_hold_no_matrix(cli: Any, plan: Callable[..., str]) -> None:
    content = Path("matrix.npy").read_bytes()
    Path("folder.npy").mkdir()
    Path("empty.npy").write_bytes(b"")
    Path("text.npy").write_text("1 2 3")
    Path("short.npy").write_bytes(content[:-8])
    Path("long.npy").write_bytes(content + b"x")
    Path("bomb.npy").write_bytes(content.replace(b"(6, 6)", b"(99999999, 99999999)"))
    np.savez("several.npz", MATRIX)
    for name in ("missing.npy", *sorted(os.listdir())):
        if name not in ("matrix.npy", "plan.toml"):
            path = {"path": name}
            cli.refuses("epsilon", plan("custom", path), "--budget", SOON, says=("'strategy.path'", f"'{name}'"))


class Trap:
    """Pickled, it makes a folder when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("sprung",)


def test_pickled_objects_are_not_read(cli: Any, plan: Callable[..., str]) -> None:
    np.save("object.npy", np.array([[Trap()]], dtype=object), allow_pickle=True)
    cli.refuses("epsilon", plan("custom", {"path": "object.npy"}), says=("real numbers", "object"))
    assert not Path("sprung").exists()


@pytest.mark.parametrize("form", [np.float32, ">f8", np.asfortranarray])
def test_the_same_matrix_in_other_forms(cli: Any, plan: Callable[..., str], form: Any) -> None:
    arguments = ("--method", "gaussian", "--json")
    expected = cli("epsilon", plan("custom", {"path": "matrix.npy"}), *arguments).json["epsilon"]
    np.save("matrix.npy", form(MATRIX) if form is np.asfortranarray else MATRIX.astype(form))
    assert cli("epsilon", "plan.toml", *arguments).json["epsilon"] == expected


def test_a_certificate_is_about_one_file(cli: Any, plan: Callable[..., str]) -> None:
    plan("custom", {"path": "matrix.npy"})
    assert cli("calibrate", "plan.toml", "--method", "gaussian", "--budget", "20", "--out", "cert.json").code == 0
    assert len(json.loads(Path("cert.json").read_text())["mechanism"]["strategy"]["sha256"]) == 64
    for matrix in (MATRIX.astype(np.float32), changed((3, 1), 0.4)):
        np.save("other.npy", matrix)
        sentence = cli.refuses("verify", "cert.json", "--matrix", "other.npy", code=1, says=("'other.npy'",))
        assert hashlib.sha256(Path("other.npy").read_bytes()).hexdigest() not in sentence
    Path("matrix.npy").rename("moved.npy")
    assert cli("verify", "cert.json", "--matrix", "moved.npy", "--json").json["verified"] is True
    cli.refuses("verify", "cert.json", "--matrix", "matrix.npy", says=("--matrix", "'matrix.npy'", "No such file"))


@pytest.mark.parametrize(
    "command", [("verify", "cert.json"), ("evidence", "verify", "store", "--certificate", "cert.json")]
)
def test_the_path_in_a_certificate_is_never_opened(
    cli: Any, plan: Callable[..., str], command: tuple[str, ...]
) -> None:
    """It is a stranger's: a pipe would block, a device may do anything, and a digest would tell what a file says."""
    plan("custom", {"path": "matrix.npy"})
    assert cli("epsilon", "plan.toml", "--method", "gaussian", "--out", "cert.json").code == 0
    Path("matrix.npy").unlink()
    os.mkfifo("matrix.npy")
    cli.refuses(*command, says=("'--matrix' option is missing",))
    cli.refuses(*command, "--matrix", "matrix.npy", says=("'--matrix' file 'matrix.npy'", "not an ordinary file"))
    cli.refuses(*command, "--matrix", os.devnull, says=("not an ordinary file",))


def test_a_matrix_is_refused_where_none_is_needed(cli: Any, claim: str) -> None:
    cli.refuses("verify", claim, "--matrix", "matrix.npy", says=("'--matrix' option does not apply",))
    cli.refuses("evidence", "verify", "store", "--matrix", "matrix.npy", says=("--certificate, which is missing",))


def test_a_failed_calibration_writes_nothing(cli: Any, plan: Callable[..., str]) -> None:
    np.save("matrix.npy", changed((5, 0), -1.0))
    cli.refuses("calibrate", plan("custom", {"path": "matrix.npy"}), says=("negative",))
    cli.refuses("calibrate", plan("dense", {}), "--method", "comparison", "--budget", "1e-6", code=1)


@pytest.fixture
def claim(cli: Any, plan: Callable[..., str]) -> str:
    """A certificate of the Gaussian bound for three bands."""
    made = cli("epsilon", plan("banded_square_root", {"bands": 3}), "--method", "gaussian", "--out", "cert.json")
    assert made.code == 0
    assert cli("verify", "cert.json").code == 0
    return "cert.json"


def test_tampered_claims_do_not_verify(cli: Any, claim: str) -> None:
    upper = json.loads(Path(claim).read_text())["epsilon"]["upper"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"mechanism.strategy": {"kind": "square_root"}}, "epsilon.upper"),
        ({"mechanism.strategy.bands": 4}, "epsilon.upper"),
        ({"mechanism.noise_multiplier": 3.9}, "epsilon.upper"),
        ({"mechanism.strategy": {"kind": "identity"}}, "gives no"),
        ({"assumptions": []}, "assumptions"),
        ({"mechanism.strategy.bands": 2, "epsilon.lower": 0.0}, "numbers"),
        ({"sensitivity": 1.0}, "sensitivity"),
        ({"epsilon.upper": 0.999 * upper}, "epsilon.upper"),
        ({"method.upper": "direct"}, "direct"),
        ({"method.upper": "nobody"}, "nobody"),
        ({"method.lower": "bin_renyi"}, "bin_renyi"),
        ({"adjacency": "add_remove"}, "adjacency"),
    ]
    for changes, says in wrong:
        tampered = sealed_with(changes)
        cli.refuses("verify", tampered, code=1, says=(says,))


def test_a_claim_of_a_matrix_that_is_none(cli: Any, claim: str) -> None:
    text = Path(claim).read_text()
    Path(claim).write_text(text.replace('"bands": 3', '"bands": 7'))
    cli.refuses("verify", claim, says=("'strategy.bands'", "at most the 6 steps"))
    Path(claim).write_text(text.replace('"bands": 3', '"bands": 2'))
    cli.refuses("verify", claim, code=1, says=("altered",))


@pytest.mark.parametrize(
    ("method", "sampler"),
    [
        ("direct", "balls_in_bins"),
        ("projection", "balls_in_bins"),
        ("renyi", "balls_in_bins"),
        ("shuffle_clones", "balls_in_bins"),
        ("comparison", "deterministic"),
        ("bin_renyi", "deterministic"),
        ("conditional_composition", "deterministic"),
    ],
)
def test_methods_that_do_not_apply(cli: Any, plan: Callable[..., str], method: str, sampler: str) -> None:
    plan("banded_square_root", {"bands": 2}, sampler)
    for command in ("epsilon", "delta", "calibrate"):
        cli.refuses(command, "plan.toml", "--method", method, says=(method, "does not apply"))


def test_a_budget_that_is_over_leaves_the_gaussian(cli: Any, plan: Callable[..., str]) -> None:
    answer = cli("epsilon", plan("binary_tree", {}), "--budget", "1e-6", "--json").json
    assert answer["method"]["upper"] == "gaussian"
    answer = cli("delta", "plan.toml", "--epsilon", "0", "--budget", "1e-6", "--json").json
    assert 0.0 < answer["delta"]["upper"] <= 1.0


def test_extreme_questions(cli: Any, plan: Callable[..., str]) -> None:
    plan("banded_square_root", {"bands": 2}, "deterministic")
    cli.refuses("epsilon", "plan.toml", "--noise-multiplier", "0.01", code=1, says=("0.01", "more noise"))
    for sigma, delta, most in (("4", "0.5", 1e-6), ("1e6", "1e-30", 1e-3), ("1e6", "1e-5", 1e-3)):
        interval = cli("epsilon", "plan.toml", "--noise-multiplier", sigma, "--delta", delta, "--json").json["epsilon"]
        assert 0.0 <= (interval["lower"] or 0.0) <= interval["upper"] <= most


def test_compare_is_ordered_and_consistent(cli: Any, plan: Callable[..., str]) -> None:
    plan("banded_square_root", {"bands": 2})
    rows = cli("compare", "plan.toml", "--budget", "20", "--json").json["bounds"]
    upper = [row["epsilon"] for row in rows if row["side"] == "upper" and row["epsilon"] is not None]
    lower = [row["epsilon"] for row in rows if row["side"] == "lower" and row["epsilon"] is not None]
    assert upper == sorted(upper)
    assert max(lower) <= min(upper)


@pytest.mark.parametrize("wait", [1.0, 3.0])
def test_an_interrupted_optimisation_leaves_nothing(
    cli: Any, plan: Callable[..., str], tmp_path: Path, wait: float
) -> None:
    plan("dense", {})
    cli.write_plan({"data.num_examples": "2000", "data.batch_size": "1", "strategy.kind": '"dense"'})
    before = sorted(os.listdir(tmp_path))
    with subprocess.Popen(
        [sys.executable, "-m", "hockeystick", "calibrate", "plan.toml", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    lines = [line for line in err.splitlines() if not line.startswith("hockeystick: ")]
    assert lines == ["Interrupted; no file was left half written."]
    assert (process.returncode, json.loads(out)) == (130, {"error": lines[0], "exit_code": 130})
    assert sorted(os.listdir(tmp_path)) == before
