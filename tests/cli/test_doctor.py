"""doctor: what it finds in this environment, what it knows from elsewhere, and what makes an installation unfit."""

from dataclasses import replace
from importlib.metadata import version

import mpmath as mp
import pytest

from hockeystick import doctor


@pytest.fixture(scope="module")
def findings() -> doctor.Findings:
    return doctor.examine()


def test_this_installation_is_healthy(findings: doctor.Findings) -> None:
    assert findings.healthy, findings.problems
    assert len(findings.checks) == 3
    assert {package.name: package.installed for package in findings.core} == {
        package.name: version(package.name) for package in findings.core
    }
    assert {"numpy", "scipy", "numba", "pydantic"} <= {package.name for package in findings.core}
    assert {"torch", "opacus"} == {package.name for package in findings.extras["torch"]}
    assert not set(doctor.TOOLS) & set(findings.extras)


def test_the_command_prints_it(cli, findings: doctor.Findings) -> None:
    shown = cli("doctor")
    assert shown.code == 0
    assert shown.out.splitlines()[-1] == "healthy"
    assert f"numpy {version('numpy')}\n" in shown.out
    content = cli("doctor", "--json").json
    assert content["healthy"] is True
    assert content["cores"] == findings.cores
    assert [check["passed"] for check in content["checks"]] == [True, True, True]


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_the_known_delta_is_the_integral_of_the_positive_part(mu: float, epsilon: float) -> None:
    """int max(p - e^eps q, 0), by quadrature in 30 digits from where the densities cross."""
    with mp.workdps(30):
        crossing = epsilon / mu + mu / 2
        exact = mp.quad(lambda x: mp.npdf(x, mu) - mp.exp(epsilon) * mp.npdf(x), [crossing, crossing + 5, mp.inf])
    assert doctor.gaussian_delta(mu, epsilon) == pytest.approx(float(exact), rel=1e-9)


def test_a_bound_on_the_wrong_side_or_too_wide_is_a_problem(findings: doctor.Findings) -> None:
    closed, published = findings.checks[0], findings.checks[2]
    for wrong in (
        replace(closed, upper=closed.known * (1.0 - 1e-6)),  # below the truth
        replace(closed, lower=closed.known * (1.0 + 1e-6)),  # above it
        replace(closed, upper=closed.known * 1.01),  # useless
        replace(closed, lower=float("nan")),
        replace(published, upper=1.2601),
        replace(published, lower=2.0),
    ):
        assert not wrong.passed
        (problem,) = doctor.problems_of((), findings.cache, (wrong,))
        assert wrong.source in problem


def test_the_one_poisson_batch_is_known_from_the_densities(findings: doctor.Findings) -> None:
    """(1 - q) N(0, s^2) + q N(1, s^2) against N(0, s^2), by quadrature beside the published formula."""
    q, sigma, epsilon = mp.mpf("0.1"), mp.mpf("0.8"), mp.mpf("0.5")
    with mp.workdps(30):
        crossing = sigma**2 * mp.log1p((mp.exp(epsilon) - 1) / q) + mp.mpf("0.5")
        exact = mp.quad(
            lambda x: q * mp.npdf(x, 1, sigma) + (1 - q - mp.exp(epsilon)) * mp.npdf(x, 0, sigma),
            [crossing, crossing + 4, mp.inf],
        )
    assert findings.checks[1].known == pytest.approx(float(exact), rel=1e-9)


def test_versions_outside_their_range_are_named(findings: doctor.Findings) -> None:
    old = doctor.Package(name="numpy", installed="1.25.0", supported=">=1.26", fits=False)
    gone = doctor.Package(name="numba", installed=None, supported=">=0.60", fits=False)
    problems = list(doctor.problems_of((old, gone), findings.cache, ()))
    assert problems == [
        "numpy 1.25.0 is installed; hockeystick supports >=1.26.",
        "numba is missing; hockeystick supports >=0.60.",
    ]
    warnings = list(doctor.warnings_of({"plot": (old, gone)}))  # an extra may be left out
    assert warnings == ["numpy 1.25.0 is installed; the extra 'plot' supports >=1.26."]


def test_the_range_of_a_version_is_that_of_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version", lambda name: "1.25.0" if name == "numpy" else version(name))
    core, _ = doctor.packages()
    assert [package.name for package in core if not package.fits] == ["numpy"]


def test_a_cache_that_cannot_be_written_is_a_problem(
    cli, findings: doctor.Findings, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    def refuse(dir):  # a read-only folder stops root from nothing
        raise PermissionError(dir)

    monkeypatch.setattr(doctor, "TemporaryFile", refuse)
    assert doctor.kernel_cache() is None
    shown = cli("doctor")
    assert shown.code == 1
    assert "problem: No folder for compiled kernels can be written; set NUMBA_CACHE_DIR" in shown.out
    assert shown.out.splitlines()[-1] == "not healthy"
