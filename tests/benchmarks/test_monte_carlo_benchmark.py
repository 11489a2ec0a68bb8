"""The Monte Carlo benchmark: its cases, its naive samplers, its extrapolation and real processes. No times asserted."""

import json
from importlib.util import find_spec
from math import exp, log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _root_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def test_every_case_is_a_mechanism_with_a_family() -> None:
    from benchmarks.monte_carlo_cases import CASES
    from benchmarks.monte_carlo_naive import pair_of
    from hockeystick.monte_carlo.families import family_of

    kinds = {case.sampler["kind"] for case in CASES.values() if case.quick}
    assert kinds == {case.sampler["kind"] for case in CASES.values() if not case.quick}
    for name, case in CASES.items():
        assert name.startswith("quick") is case.quick
        pair = pair_of(case)
        assert isinstance(pair, family_of(pair).pair)
        assert all(0.0 < target.failure < 1.0 < target.budget for target in case.targets.values())


def _example() -> Any:
    """Three steps, two bands, sigma = 2."""
    columns = np.array([[1.0, 0.5], [1.0, 0.5], [1.0, 0.0]])
    return SimpleNamespace(noise_multiplier=2.0, columns=columns, matrix=ToeplitzMatrix(np.array([1.0, 0.5]), 3))


def _exact_delta(patterns: dict[tuple[int, ...], float], epsilon: float) -> float:
    """delta of remove for the example by a grid over the three outputs, from the law of the participations."""
    axis = np.linspace(-13.0, 15.0, 141)
    y = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1)
    matrix = np.array([[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.5, 1.0]])
    ratio = np.zeros(y.shape[:-1])
    for taken, chance in patterns.items():
        shift = matrix @ np.array(taken)
        ratio += chance * np.exp((y @ shift - 0.5 * shift @ shift) / 4.0)
    density = np.exp(-0.125 * (y**2).sum(axis=-1)) * (axis[1] - axis[0]) ** 3 / (8.0 * np.pi) ** 1.5
    return float((density * np.maximum(ratio - exp(epsilon), 0.0)).sum())


RATE = 0.3


def _independent() -> dict[tuple[int, ...], float]:
    taken = list(np.ndindex(2, 2, 2))
    return {steps: RATE ** sum(steps) * (1.0 - RATE) ** (3 - sum(steps)) for steps in taken}


def _renewed() -> dict[tuple[int, ...], float]:
    """Steps that are two apart, warm: available first at step 1 or, with weight RATE, at step 2."""
    q, warm = RATE, 1.0 / (1.0 + RATE)
    early = {
        (0, 0, 0): (1 - q) ** 3,
        (1, 0, 0): q * (1 - q),
        (1, 0, 1): q * q,
        (0, 1, 0): (1 - q) * q,
        (0, 0, 1): (1 - q) ** 2 * q,
    }
    late = {(0, 0, 0): (1 - q) ** 2, (0, 1, 0): q, (0, 0, 1): (1 - q) * q}
    return {batches: warm * (early[batches] + q * late.get(batches, 0.0)) for batches in early}


@pytest.mark.parametrize("kind", ["poisson", "b_min_sep", "balls_in_bins"])
def test_plain_numpy_samples_the_law(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a sum over all participations and a grid of outputs; 5 standard errors, so 1 in a million for a seed."""
    from benchmarks import monte_carlo_naive
    from benchmarks.monte_carlo_cases import Case

    pair = _example()
    if kind == "poisson":
        pair.sampling_prob, patterns = RATE, _independent()
    elif kind == "b_min_sep":
        pair.min_sep, pair.participation_prob, patterns = 2, RATE, _renewed()
        pair.first_available = np.array([1.0, RATE]) / (1.0 + RATE)
    else:
        matrix = np.array([[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.5, 1.0]])
        pair.bins, pair.gram = 3, matrix.T @ matrix
        patterns = dict.fromkeys([(1, 0, 0), (0, 1, 0), (0, 0, 1)], 1.0 / 3.0)
    assert sum(patterns.values()) == pytest.approx(1.0)
    monkeypatch.setattr(monte_carlo_naive, "pair_of", lambda case: pair)
    draw, batch = monte_carlo_naive.plain_numpy(Case(mechanism={"sampler": {"kind": kind}}, easy=0.1, batch=1000))
    assert batch == 1000
    values = -np.expm1(np.minimum(0.1 - draw(200_000), 0.0))
    exact = _exact_delta(patterns, 0.1)
    assert abs(values.mean() - exact) < 5.0 * values.std() / np.sqrt(values.size)


def test_our_naive_kernels_and_plain_numpy_agree() -> None:
    """On the quick cases, by Chernoff intervals of failure probability 1e-6 that have to overlap."""
    from benchmarks.monte_carlo import disagreements
    from benchmarks.monte_carlo_cases import CASES
    from benchmarks.monte_carlo_measure import rate
    from benchmarks.monte_carlo_naive import NUMPY, OURS

    records = [
        {"case": name, "contestant": who, **rate(name, who, 0.2)}
        for name, case in CASES.items()
        if case.quick
        for who in (OURS, NUMPY)
    ]
    assert all(record["status"] == "ok" and record["rate"] >= record["slowest"] > 0.0 for record in records)
    assert all(record["lower"] < record["value"] < record["upper"] for record in records)
    assert disagreements(records) == []
    ours = next(record for record in records if record["contestant"] == OURS)
    wrong = {**ours, "contestant": "wrong", "value": 0.9, "lower": 0.89, "upper": 0.91}
    assert len(disagreements([ours, wrong])) == 1


@pytest.mark.parametrize(("delta", "ratio", "failure"), [(1e-5, 0.1, 1e-6), (1e-9, 0.25, 1e-9), (1e-2, 0.02, 0.05)])
def test_the_extrapolated_samples(delta: float, ratio: float, failure: float) -> None:
    from benchmarks.monte_carlo_measure import samples_for

    rough = 2.0 * log(2.0 / failure) * ((2.0 + ratio) / ratio) ** 2 / delta
    assert samples_for(delta, ratio, failure) == pytest.approx(rough, rel=0.04)


@pytest.mark.weekly
def test_a_quick_run_prints_clean_json(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.monte_carlo import main

    assert main(["--quick", "--only", "bins", "--seconds", "0.1", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["disagreements"] == []
    rates = {record["contestant"]: record for record in document["rates"]}
    assert rates["hockeystick"]["status"] == rates["numpy"]["status"] == "ok"
    assert rates["hockeystick"]["peak_mb_tenfold"] >= rates["hockeystick"]["peak_mb"] > 0.0
    if find_spec("jax_privacy") is None:
        assert rates["jax-privacy"]["status"] == "not installed"
    ours = [record for record in document["bounds"] if record["contestant"] == "hockeystick"]
    assert [record["target"] for record in ours] == ["delta 1e-5", "eps 2 to 20%"]
    for record in ours:
        assert record["status"] == "ok"
        assert 0.0 < record["lower"] <= record["upper"] <= record["lower"] * (1.0 + record["ratio"]) * (1.0 + 1e-9)
        assert record["samples"] > 0
    assert 0.5e-5 < ours[0]["upper"] < 2e-5
    assert ours[0]["tenfold"] > 3.0
    naive = [record for record in document["bounds"] if record["status"] == "extrapolated"]
    assert all(record["cpu"] == pytest.approx(record["samples"] / record["rate"]) for record in naive)
    assert {"hockeystick, naive", "numpy, naive"} <= {record["contestant"] for record in naive}
    assert [record["target"] for record in document["bounds"] if "certify" in record["contestant"]] == ["eps 2 to 20%"]
    assert "samples/s" in printed.err


def test_a_missing_peer_a_failure_a_timeout_and_an_unknown_case_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks import monte_carlo
    from benchmarks.monte_carlo_cases import CASES, Target
    from benchmarks.monte_carlo_naive import NotOffered, jax_privacy_renewal, suits

    assert monte_carlo.child(["--one", "nobody"], 60.0)["status"].startswith("failed: ")
    assert monte_carlo.child(["--one", "numpy"], 0.01) == {"status": "timeout after 0.01 s"}
    monkeypatch.setattr(monte_carlo, "find_spec", lambda package: None)
    name, case = next(iter(CASES.items()))
    records = list(monte_carlo.rates(name, case, 1.0, 5.0))
    assert {record["status"] for record in records} == {"not installed"}
    assert monte_carlo.rate_line(records[0]).endswith("not installed")
    monkeypatch.setattr(monte_carlo, "child", lambda arguments, timeout: {"status": "timeout after 5 s"})
    (only,) = monte_carlo.bounds(name, "none", Target(epsilon=1.0), {"numpy": 1.0}, 1.0, False)
    assert monte_carlo.bound_line(only).endswith("timeout after 5 s")
    assert monte_carlo.main(["--only", "nothing"]) == 2
    assert "'nothing'" in capsys.readouterr().err
    poisson = next(case for case in CASES.values() if case.sampler["kind"] == "poisson")
    assert not suits("jax-privacy, q=1", poisson)
    if find_spec("jax_privacy") is not None:
        with pytest.raises(NotOffered):
            jax_privacy_renewal(poisson)
