"""The benchmark of random runs: its inversion is right, and a bound on the wrong side of it is noticed."""

import pytest

from benchmarks import random_runs
from benchmarks.trust_peers import exact_epsilon

FEW = 1 << 16


def test_full_batches_are_the_gaussian_mechanism() -> None:
    assert random_runs.inverted(1.0, 2.0, 4, 1e-5, FEW) == pytest.approx(exact_epsilon(1e-5), rel=1e-6)


def test_runs_are_the_same_each_time_and_within_their_ranges() -> None:
    for kind in random_runs.KINDS:
        runs = random_runs.random_runs(kind)
        assert runs == random_runs.random_runs(kind)
        assert len(runs) == 30
        assert all(0.1 <= run.epsilon <= 10.0 and run.sampler.steps >= 10 for run in runs)


@pytest.mark.parametrize(("factor", "code"), [(1.0, 0), (1.001, 1), (0.999, 1)])
def test_a_bound_on_the_wrong_side_is_noticed(monkeypatch, capsys, factor: float, code: int) -> None:
    """The first run that contours answer has sides a millionth apart."""
    run = random_runs.random_runs("poisson")[1]
    monkeypatch.setattr(random_runs, "random_runs", lambda kind, count, seed: [run][:count])
    inverted = random_runs.inverted
    monkeypatch.setattr(random_runs, "inverted", lambda *asked: factor * inverted(*asked, places=FEW))
    assert random_runs.main(["poisson", "--runs", "1", "--repeats", "1", "--invert"]) == code
    printed = capsys.readouterr().out
    assert "inverted" in printed
    assert "gap in percent median" in printed
