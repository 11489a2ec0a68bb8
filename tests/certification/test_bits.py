"""Certificates of exact noise: what they say of bits, and that nothing else says it."""

import json

import numpy as np
import pytest
from scipy.stats import norm

import hockeystick as hs
from hockeystick.certificate import Certificate
from hockeystick.certification.verification import verify
from hockeystick.errors import InvalidInputError, UnsupportedError, VerificationError
from hockeystick.evidence.store import EvidenceStore
from hockeystick.interop.deployments_registry import registry_entry
from hockeystick.laws.gaussian import gaussian_delta
from hockeystick.noise.exact import grid
from hockeystick.noise.exact.grid import Grid, grid_of
from hockeystick.report.certificate import document
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix


def run(strategy=None, *, exact=True, sigma=1.0):
    return hs.Mechanism(
        strategy=strategy or hs.Identity(),
        sampler=hs.Poisson(sampling_prob=0.01, steps=100),
        noise_multiplier=sigma,
        exact=exact,
    )


@pytest.fixture(scope="module")
def certificate():
    return hs.certify(run(), delta=1e-5)


def test_it_says_what_of_the_bits_is_proved_assumed_and_not_covered(certificate, tmp_path):
    assert "Everything computed from the released sums, in any arithmetic." in certificate.bits.covered
    assert any("invariance" in sentence for sentence in certificate.bits.assumed)
    assert any("How long" in sentence for sentence in certificate.bits.not_covered)
    assert "bits              noise and sums are covered, if gradients are invariant" in str(certificate)
    assert not any("floating-point" in caveat for caveat in certificate.caveats)
    assert {"noise", "invariance"} <= {one.name for one in certificate.assumptions}
    assert "docs/theory/exact-noise.md" in certificate.references
    rows = {row.name for section in document(certificate).sections for row in section.rows}
    assert {"bits covered", "bits assumed", "bits not covered", "lower end"} <= rows
    assert "How long" in registry_entry(certificate)["deployment"]["dp_variant"]["unprotected_quantities"]
    certificate.save(tmp_path / "exact.json")
    verify(Certificate.load(tmp_path / "exact.json"))


def test_a_certificate_of_other_noise_says_nothing_of_bits():
    plain = hs.certify(run(exact=False), delta=1e-5)
    assert plain.bits is None
    assert "bits" not in plain.content()
    assert any("floating-point" in caveat for caveat in plain.caveats)


def test_the_bounds_are_those_of_the_rounded_matrix():
    """The identity is its own rounding; bands are not, and their sensitivity is that of the rounded ones."""
    assert hs.certify(run(), delta=1e-5).epsilon == hs.certify(run(exact=False), delta=1e-5).epsilon
    banded = run(hs.BandedToeplitz(bands=3), sigma=2.0)
    exact, plain = (hs.certify(one, delta=1e-5) for one in (banded, banded.model_copy(update={"exact": False})))
    assert isinstance(banded.matrix, ToeplitzMatrix)
    assert exact.sensitivity == banded.matrix.max_column_norm != plain.sensitivity
    assert exact.epsilon.upper == pytest.approx(plain.epsilon.upper, rel=1e-5)


@pytest.mark.parametrize("changed", [{"bits": None}, {"mechanism": {"exact": False}}, {"generator": "torch"}])
def test_a_block_that_does_not_belong_to_the_mechanism_is_refused(certificate, changed):
    content = json.loads(certificate.file_text())
    content["mechanism"] |= changed.get("mechanism", {})
    if "bits" in changed:
        del content["bits"]
    if "generator" in changed:
        content["generator"] = {"name": "jax-float32", "lowest": -5.0, "highest": 5.0, "floor": 0.0}
    with pytest.raises(InvalidInputError, match=r"'(bits|generator)' field must be"):
        Certificate.parse_json(json.dumps(content))


def test_a_block_that_says_more_does_not_verify(certificate):
    more = certificate.bits.model_copy(update={"not_covered": ()})
    forged = certificate.model_copy(update={"bits": more}).sealed()
    with pytest.raises(VerificationError, match="bits"):
        verify(forged)


def test_noise_of_another_library_is_not_exact():
    with pytest.raises(InvalidInputError, match=r"'generator' argument must be left out for an exact mechanism"):
        hs.certify(run(), delta=1e-5, generator="jax-float32")


def test_a_strategy_without_whole_numbers_is_refused_before_any_work():
    with pytest.raises(UnsupportedError, match="sum of decaying powers"):
        hs.certify(run(hs.BufferedToeplitz(buffers=2)), delta=1e-5)


def test_a_plan_asks_for_it_and_keeps_it(tmp_path):
    text = """
    [data]
    num_examples = 1000
    batch_size = 10
    epochs = 1
    [sampler]
    kind = "poisson"
    [noise]
    exact = true
    """
    (tmp_path / "plan.toml").write_text(text)
    plan = hs.Plan.load(tmp_path / "plan.toml")
    assert plan.mechanism(1.0).exact
    assert plan.mechanism(1.0).with_noise(2.0).exact
    assert hs.calibrate(plan, epsilon=2.0, delta=1e-5).exact
    (tmp_path / "again.toml").write_text(plan.file_text())
    assert hs.Plan.load(tmp_path / "again.toml") == plan


def test_the_lower_end_of_trees_is_about_all_nodes():
    """Two steps of a tree in one batch: what is released shows less than the nodes do."""
    tree = hs.Mechanism(
        strategy=hs.BinaryTree(), sampler=hs.Deterministic(bins=1, epochs=2), noise_multiplier=2.0, exact=True
    )
    said = hs.certify(tree, delta=1e-5)
    assert "every node of the trees" in said.bits.lower_end
    assert "every node" not in hs.certify(run(), delta=1e-5).bits.lower_end
    released = tree.matrix.solve(np.eye(tree.matrix.rows))  # W, of the mechanism W y
    covariance = released @ released.T
    shift = np.ones(2)
    mu = np.sqrt(shift @ np.linalg.solve(covariance, shift)) / 2.0
    assert gaussian_delta(mu, 1.0, said.epsilon.lower, hs.Side.UPPER) < 1e-5


@pytest.mark.parametrize("form", ["hockeystick-certificate/1", "hockeystick-certificate/2"])
def test_exact_mechanisms_belong_to_format_3(form, certificate):
    content = json.loads(certificate.file_text()) | {"format": form}
    with pytest.raises(InvalidInputError, match=r"field"):
        Certificate.parse_json(json.dumps(content))


@pytest.mark.parametrize(
    "strategy", [hs.BandedToeplitz(bands=3), hs.BandedInverse(bands=2), hs.ColumnNormalizedBanded(bands=3)]
)
def test_a_store_keeps_the_matrices_of_exact_mechanisms(strategy, tmp_path):
    """As the strategy holds them, before they are rounded; the second opening reads them again."""
    for _ in range(2):
        with EvidenceStore.open(tmp_path / "evidence.db") as store:
            pinned = store.pinned(run(strategy, sigma=2.0))
            assert pinned.exact
            assert pinned.matrix.digest == run(strategy, sigma=2.0).matrix.digest
            store.check()


@pytest.mark.parametrize("strategy", [hs.Identity(), hs.BandedSquareRoot(bands=2), hs.BandedInverseSquareRoot(bands=2)])
@pytest.mark.parametrize("asked", [{"epsilon": 0.5}, {"epsilon": 2.0}, {"delta": 1e-3}])
def test_the_lower_end_of_a_run_is_below_the_truth_of_its_whole_numbers(strategy, asked, monkeypatch):
    """Two steps, of one example in both: the law of what is released, summed up over a grid of a quarter."""
    coarse = Grid(exponent=2, scale=1.3 * 4.0, limit=10**6)
    monkeypatch.setattr(grid, "grid_of", lambda matrix, sigma, width: coarse)
    pair = hs.Mechanism(strategy=strategy, sampler=hs.Deterministic(bins=1, epochs=2), noise_multiplier=1.3, exact=True)
    certified = hs.certify(pair, **asked)
    real, found = getattr(certified, "epsilon" if "delta" in asked else "delta").lower, certified.bits.lower
    assert found < real
    matrix = pair.matrix.materialize()
    w = np.arange(-80, 81)
    without = released_law(matrix, type(strategy) is hs.BandedInverseSquareRoot, w, w, coarse.scale)
    with_it = np.zeros_like(without)
    with_it[3:, 3:] = without[:-3, :-3]  # a gradient that lost a step
    if "epsilon" in asked:
        assert 0.0 < found <= (with_it - np.exp(asked["epsilon"]) * without).clip(0.0).sum() <= real + 1e-9
    else:
        assert asked["delta"] <= (with_it - np.exp(found) * without).clip(0.0).sum()


def released_law(matrix, by_sums, first, second, scale):
    """Probabilities of the noise's whole numbers in two steps, shape (numbers, numbers), by cells and quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    cell = (first[:, None] + 0.5 * nodes) * matrix[0, 0]  # of z_1, that rounds to a number of the first step
    density = norm.pdf(cell / scale) / scale * 0.5 * weights * matrix[0, 0]
    past = (cell if by_sums else np.broadcast_to(first[:, None], cell.shape))[..., None]
    if by_sums:  # v_2 = round(W_21 z_1 + W_22 z_2)
        inverse = np.linalg.inv(matrix)
        middle, spread = inverse[1, 0] * past, inverse[1, 1] * scale
    else:  # v_2 = round((z_2 - C_21 v_1) / C_22)
        middle, spread = -matrix[1, 0] / matrix[1, 1] * past, scale / matrix[1, 1]
    ends = [norm.cdf((second + side - middle) / spread) for side in (0.5, -0.5)]
    return np.einsum("an,anb->ab", density, ends[0] - ends[1])


@pytest.mark.parametrize("strategy", [hs.SquareRoot(), hs.BandedInverseSquareRoot(bands=3)])
def test_the_lower_end_of_a_run_is_that_of_a_test_whose_threshold_moves(strategy):
    """As the page has it: P at tau + alpha and Q at tau - alpha, for the best tau of many."""
    steps, epsilon, sigma = 30, 1.0, 6.0
    mechanism = hs.Mechanism(
        strategy=strategy, sampler=hs.Deterministic(bins=3, epochs=10), noise_multiplier=sigma, exact=True
    )
    certified = hs.certify(mechanism, epsilon=epsilon)
    matrix, grid = mechanism.matrix.materialize(), grid_of(mechanism.matrix, sigma, 1)
    mean = matrix[:, ::3].sum(axis=1) * (1.0 - grid.step)
    moves = np.diag(matrix) if isinstance(strategy, hs.SquareRoot) else matrix.sum(axis=1)
    alpha, shift = grid.step / 2.0 * np.linalg.norm(moves) / sigma, np.linalg.norm(mean) / sigma
    tau = np.linspace(-4.0, 8.0, 200_001)
    best = (norm.sf(tau + alpha - shift) - np.exp(epsilon) * norm.sf(tau - alpha)).max()
    assert best * (1.0 - 1e-8) <= certified.bits.lower <= best  # shifts are rounded down by parts of 1e-9
    assert certified.bits.lower < certified.delta.lower * (1.0 - 1e-6)
    assert steps == len(matrix)


def test_a_lower_end_that_is_no_threshold_test_has_no_number(certificate):
    assert certificate.bits.lower is None
    tree = hs.Mechanism(
        strategy=hs.BinaryTree(), sampler=hs.Deterministic(bins=2, epochs=2), noise_multiplier=2.0, exact=True
    )
    assert hs.certify(tree, delta=1e-5).bits.lower is None


def test_the_lower_end_of_a_run_is_shown_and_verified(tmp_path):
    fixed = hs.Mechanism(sampler=hs.Deterministic(bins=4, epochs=2), noise_multiplier=2.0, exact=True)
    said = hs.certify(fixed, delta=1e-5)
    rows = {row.name: row.text for section in document(said).sections for row in section.rows}
    assert rows["lower end of a run"] == f"{said.bits.lower!r}, of the rounded numbers"
    forged = said.model_copy(update={"bits": said.bits.model_copy(update={"lower": 1.01 * said.bits.lower})}).sealed()
    with pytest.raises(VerificationError, match="bits"):
        verify(forged)
    verify(said)
