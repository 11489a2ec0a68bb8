"""Audits of noise: every bet is fair, correct noise passes, and planted faults are found."""

from weakref import ref

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

import hockeystick as hs
from hockeystick.audit import whiteness
from hockeystick.audit.parts import audit_part
from hockeystick.errors import InvalidInputError, UnsupportedError

LEVEL = 1e-3
CORRECT = 1e-6
"""The level of audits of correct noise: N of them alarm falsely with probability at most N 1e-6."""
STEPS, SIZE = 100, 500
SIGMA = 2.0
STRATEGIES = {
    "identity": hs.Identity(),
    "banded": hs.BandedSquareRoot(bands=8),
    "full": hs.SquareRoot(),
    "inverse": hs.BandedInverseSquareRoot(bands=8),
    "general": hs.ColumnNormalizedBanded(bands=2),
    "tree": hs.BinaryTree(),
    "trees": hs.TreeRestart(height=4),
}


def mechanism(name, steps=STEPS):
    sampler = hs.BMinSep(min_sep=10, sampling_prob=0.03, steps=steps)
    return hs.Mechanism(strategy=STRATEGIES[name], sampler=sampler, noise_multiplier=SIGMA)


def rows(name, seed=0, size=SIZE):
    return np.array(list(hs.noise.stream(mechanism(name), size, rng=np.random.default_rng(seed))))


@pytest.mark.parametrize("name", STRATEGIES)
def test_correct_noise_raises_no_alarm(name):
    """All of these together fail falsely with probability at most 1.4e-5."""
    for seed in range(2):
        verdict = hs.audit.noise(rows(name, seed), mechanism(name), level=CORRECT)
        assert not verdict.refuted, str(verdict)
        assert verdict.samples == STEPS * SIZE


def test_a_run_that_ended_early_and_a_stream_are_read():
    """False failure with probability at most 2e-6."""
    claimed = mechanism("banded")
    assert not hs.audit.noise(rows("banded")[:37], claimed, level=CORRECT).refuted
    stream = hs.noise.stream(claimed, (4, 25), rng=np.random.default_rng(1))
    assert not hs.audit.noise(stream, claimed, level=CORRECT).refuted


@pytest.mark.parametrize("name", ["banded", "inverse", "tree"])
def test_exact_noise_is_read_in_clipping_norms(name):
    """False failure with probability at most 6e-6."""
    claimed = mechanism(name).model_copy(update={"exact": True})
    stream = hs.noise.stream(claimed, SIZE, rng=np.random.default_rng(2))
    assert not hs.audit.noise(stream, claimed, level=CORRECT).refuted
    part = audit_part("noise", claimed, num_examples=100, certificate=None, samples=1, level=CORRECT, seed=3)
    assert not part.refuted


def test_every_bet_is_fair_by_enumeration():
    """A bet is a likelihood ratio of one normal number given the earlier ones: Gauss-Hermite quadrature of it is 1.

    The weight is exact for polynomials of degree 119; an exponential of a square of up to 0.45 converges as 0.9^k.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(150)
    weights = weights / weights.sum()
    u = nodes[:, None]
    moderate = np.abs(whiteness.SCALES - 1.0) < 0.15
    assert weights @ np.exp(whiteness._scale(u))[:, moderate] == pytest.approx(np.ones(moderate.sum()), rel=1e-6)
    for known in (-1.0, 0.3, 2.0):
        paid = np.exp(whiteness._correlated(np.full_like(u, known), u))
        assert weights @ paid == pytest.approx(np.ones(whiteness.SHIFTS.size), rel=1e-9)


@pytest.mark.parametrize("scale", [0.01, 0.25, 0.5, 1.2, 1.5, 2.0, 4.0, 10.0])
def test_the_bets_on_the_scale_are_fair_by_integration(scale):
    """The ratio times the standard normal density is the density of N(0, scale^2): they are compared point by point."""
    at = np.linspace(-3.0, 3.0, 13) * scale
    paid = whiteness._scale(at[:, None])[:, np.isclose(whiteness.SCALES, scale)]
    if not paid.size:
        return
    normal = np.exp(-0.5 * at**2)
    assert np.exp(paid[:, 0]) * normal == pytest.approx(np.exp(-0.5 * (at / scale) ** 2) / scale, rel=1e-9)


@pytest.mark.parametrize("size", [2, 3, 7, 64, 65])
def test_bets_at_a_distance_are_products_of_bets_on_the_next_number(size):
    """Against the sums themselves, over the bets of which the test above shows that they are fair."""
    for seed in range(3):
        u = np.random.default_rng(seed).standard_normal(size)
        u[size // 2 :] += seed * u[: size - size // 2]
        worth = [
            np.exp(sum(whiteness._correlated(u[j - s, None, None], u[j, None, None])[0] for j in range(s, size)))
            for s in range(1, size)
        ]
        assert np.exp(whiteness._at_distances(u)) == pytest.approx(np.mean(worth), rel=1e-9)
    assert whiteness._at_distances(np.ones(1)) == 0.0


def test_the_bets_on_the_shape_are_fair():
    """Either outcome of one coin of chance p, weighted by it."""
    for chance in (0.5, 0.0027):
        hit = np.exp(whiteness._share(np.array([[True]]), chance))[0]
        miss = np.exp(whiteness._share(np.array([[False]]), chance))[0]
        assert chance * hit + (1 - chance) * miss == pytest.approx(np.ones(whiteness.ODDS.size), rel=1e-12)


def test_the_bets_on_numbers_next_to_zero_are_fair():
    """What a number in the range and one outside pay, weighted by their chances."""
    inside, outside = (
        np.exp(whiteness._payments(np.array([[size * whiteness.NEXT_TO_ZERO]]), 1)["middle"][0, -2:])
        for size in (0.999, 1.001)
    )
    chance = ndtr(whiteness.NEXT_TO_ZERO) - ndtr(-whiteness.NEXT_TO_ZERO)
    assert chance * inside + (1.0 - chance) * outside == pytest.approx(np.ones(2), rel=1e-12)


def test_the_bets_on_an_end_are_fair():
    """One number in each of the intervals between thresholds, of either sign, weighted by its chance."""
    bounds = np.concatenate([[-np.inf], -whiteness.ENDS[::-1], whiteness.ENDS, [np.inf]])
    inside = np.concatenate([[-9.0], 0.5 * (bounds[1:-2] + bounds[2:-1]), [9.0]])
    below = ndtr(bounds[:-1]), ndtr(bounds[1:])
    above = ndtr(-bounds[:-1]), ndtr(-bounds[1:])
    chances = np.where(inside < 0.0, below[1] - below[0], above[0] - above[1])  # no difference of numbers close to 1
    paid = np.exp(whiteness._ends(inside[:, None]))
    assert paid.shape == (inside.size, 3 * whiteness.ENDS.size)
    assert chances @ paid == pytest.approx(np.ones(paid.shape[1]), rel=1e-12)
    # Where the threshold is all but certain not to be passed, that proves little: what is passed has to cost a lot.
    assert (paid[-1, : whiteness.ENDS.size] < 0.011).all()
    assert (paid[0, whiteness.ENDS.size :] < 0.011).all()


def test_numbers_beyond_thresholds_are_counted():
    u = 6.0 * np.random.default_rng(0).standard_normal((3, 1000))
    u[0, :2] = whiteness.ENDS[5], np.nextafter(whiteness.ENDS[5], 9.0)  # at a threshold is not beyond it
    np.testing.assert_array_equal(whiteness._beyond(u), (u[:, :, None] > whiteness.ENDS).sum(axis=1))


def test_bets_on_an_end_seldom_pay_for_normal_numbers():
    """Each of 400 runs reaches 20 with probability at most 1/20; more than 43 have one of at most 1e-5."""
    allowed, runs = 43, 400
    assert binom.sf(allowed, runs, 0.05) < 1e-5
    rng = np.random.default_rng(0)
    worth = [whiteness._best(whiteness._ends(rng.standard_normal((20, 400)))).max() for _ in range(runs)]
    assert sum(logarithm >= np.log(20.0) for logarithm in worth) <= allowed


def test_bets_at_a_distance_seldom_pay_for_normal_numbers():
    """As above: each of 400 runs reaches 20 with probability at most 1/20, and the mean of their worth is about 1.

    Worths above 20 are cut, so that the mean of 400 has a deviation of at most .22; it exceeds 2 with chance 1e-5."""
    allowed, runs = 43, 400
    rng = np.random.default_rng(0)
    worth = np.exp([whiteness._at_distances(rng.standard_normal(300)) for _ in range(runs)])
    assert (worth >= 20.0).sum() <= allowed
    assert np.minimum(worth, 20.0).mean() < 2.0


@pytest.mark.parametrize("name", ["identity", "banded", "tree"])
def test_coordinates_that_are_looked_at_in_turn_say_what_all_at_once_do(name, monkeypatch):
    claimed, noise = mechanism(name), rows(name).astype(np.float32)
    noise[:, 100] = noise[:, 63] = noise[:, 64]  # the last one of the first turn and the first of the next
    together = hs.audit.noise(noise.astype(np.float64), claimed)
    monkeypatch.setattr(whiteness, "AT_A_TIME", 1)
    evidence = {finding.name: finding.evidence for finding in hs.audit.noise(noise, claimed).findings}
    assert evidence == pytest.approx({finding.name: finding.evidence for finding in together.findings}, abs=1e-6)


@pytest.mark.parametrize("name", ["identity", "tree"])
def test_coordinates_that_were_looked_at_are_not_kept(name, monkeypatch):
    """In float64 those of all rows would take twice the memory of rows in float32: the last turn's are enough."""
    seen: list[ref] = []
    make = whiteness._whitener

    def watched(matrix, count):
        whitened, pivots = make(matrix, count)

        def remembered(x):
            assert sum(array() is not None for array in seen) <= 1
            u = whitened(x)
            seen.append(ref(u if u.base is None else u.base))
            return u

        return remembered, pivots

    monkeypatch.setattr(whiteness, "_whitener", watched)
    monkeypatch.setattr(whiteness, "AT_A_TIME", 1)
    hs.audit.noise(rows(name), mechanism(name))
    assert len(seen) > 4


@pytest.mark.parametrize("most", [300, 2000])
def test_distances_are_between_the_first_numbers_of_the_first_rows(most, monkeypatch):
    """A part of a row where it has more than are compared, else whole rows."""
    given = []

    def remembered(u):
        given.append(u)
        return 0.0

    monkeypatch.setattr(whiteness, "MOST_AT_DISTANCES", most)
    monkeypatch.setattr(whiteness, "AT_A_TIME", 1)
    monkeypatch.setattr(whiteness, "_at_distances", remembered)
    noise = rows("identity")
    hs.audit.noise(noise, mechanism("identity"))
    np.testing.assert_allclose(given[0], noise.ravel()[:most] / SIGMA)


def test_a_mixture_over_the_row_of_a_fault_costs_at_most_its_stake():
    """A bet that pays e from row 3 on, and nothing at all before, is worth its share of the stake times that."""
    paid = np.array([[-np.inf], [-np.inf], [-np.inf], [1.0], [1.0]])
    worth = whiteness._best(paid)
    assert worth[2] == pytest.approx(np.log(0.5 * 2 / 5))
    assert np.exp(worth[4]) == pytest.approx(0.1 * np.exp(2.0) + 0.1 * np.exp(1.0))


def repeated(name):
    noise = rows(name)
    noise[50] = noise[20]
    return noise


def repeated_before_c(name):
    z = np.random.default_rng(0).standard_normal((STEPS, SIZE))
    z[50] = z[20]
    return SIGMA * mechanism(name).matrix.solve(z)


def skipped(name):
    noise = rows(name)
    noise[30] = 0.0
    return noise


def negated(name):
    noise = rows(name)
    noise[50] = -noise[20]
    return noise


def copied(target, source, sign=1.0):
    """The same parameters have, in every row, the noise of others."""

    def make(name):
        noise = rows(name)
        noise[:, target] = sign * noise[:, source]
        return noise

    return make


def overlapping(name):
    """The counter of the generator moves on by half a row."""
    stream = np.random.default_rng(0).standard_normal(SIZE // 2 * (STEPS + 1))
    z = np.stack([stream[t * (SIZE // 2) :][:SIZE] for t in range(STEPS)])
    return SIGMA * mechanism(name).matrix.solve(z)


def another_key(name):
    return np.concatenate([rows(name, 0)[:50], rows(name, 1)[50:]])


def from_the_start_again(name):
    return np.concatenate([rows(name)[:50], rows(name)[:50]])


def multiplied(name):
    return SIGMA * mechanism(name).matrix.dot(np.random.default_rng(0).standard_normal((STEPS, SIZE)))


def of_two_ranks(*shares):
    """The sum of what two processes add, each of them noise of its own times its share of the variance."""

    def make(name):
        return np.sum([share**0.5 * rows(name, rank) for rank, share in enumerate(shares)], axis=0)

    return make


def sharded(name):
    """Each of two processes holds half of the parameters; the second one adds nothing."""
    return np.concatenate([rows(name, size=SIZE // 2), np.zeros((STEPS, SIZE // 2))], axis=1)


def left_out(name):
    """A head of one percent of the parameters is trained without noise."""
    noise = rows(name)
    noise[:, -SIZE // 100 :] = 0.0
    return noise


FAULTS = {
    "sigma too small by 2 percent": (lambda name: 0.98 * rows(name, size=1000), "scale"),
    "sigma divided by the batch": (lambda name: rows(name) / 20.0, "scale"),
    "a row reused": (repeated, "repeated_rows"),
    "a row of z reused": (repeated_before_c, "repeated_rows"),
    "minus a row used before": (negated, "repeated_rows"),
    "two equal halves": (copied(slice(250, 500), slice(0, 250)), "repeated_blocks"),
    "a half and its negative": (copied(slice(250, 500), slice(0, 250), -1.0), "repeated_blocks"),
    "forty parameters with the noise of others": (copied(slice(410, 450), slice(17, 57)), "repeated_blocks"),
    "rows that overlap": (overlapping, "repeated_blocks"),
    "noise skipped once": (skipped, "repeated_rows"),
    "the stream from the start again": (from_the_start_again, "repeated_rows"),
    "noise skipped on one of two ranks": (of_two_ranks(0.5, 0.0), "scale"),
    "noise skipped on the rank that adds it": (of_two_ranks(0.0, 0.0), "repeated_rows"),
    "noise added on both ranks": (of_two_ranks(1.0, 1.0), "scale"),
    "noise skipped on the shard of one rank": (sharded, "scale"),
    "no noise in one percent of the parameters": (left_out, "middle"),
    "one number for a tensor": (lambda name: np.repeat(rows(name, size=5), 100, axis=1), "coordinates"),
    "one number for two parameters": (lambda name: np.repeat(rows(name, size=250), 2, axis=1), "coordinates"),
    "uniform noise": (
        lambda name: (
            SIGMA * mechanism(name).matrix.solve(np.random.default_rng(0).uniform(-(3**0.5), 3**0.5, (100, 500)))
        ),
        "middle",
    ),
    "a constant added": (lambda name: rows(name) + 0.2, "mean"),
}


@pytest.mark.parametrize("name", ["identity", "banded"])
def test_two_ranks_that_share_the_noise_raise_no_alarm(name):
    """False failure with probability at most 1e-6 for each strategy."""
    assert not hs.audit.noise(of_two_ranks(0.5, 0.5)(name), mechanism(name), level=CORRECT).refuted


@pytest.mark.parametrize("name", ["identity", "banded"])
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found_within_100_000_numbers(fault, name):
    make, finding = FAULTS[fault]
    verdict = hs.audit.noise(make(name), mechanism(name), level=LEVEL)
    assert finding in verdict.broken
    assert verdict.samples <= 100_000


def drawn_again(z):
    rng = np.random.default_rng(1)
    while (beyond := np.abs(z) > 4.5).any():
        z[beyond] = rng.standard_normal(int(beyond.sum()), dtype=np.float32)
    return z


@pytest.mark.parametrize(
    ("name", "ended"),
    [("identity", lambda z: np.clip(z, -4.5, 4.5)), ("banded", drawn_again)],
    ids=["clipped", "drawn"],
)
def test_an_end_of_the_noise_at_4_5_is_found(name, ended):
    """In 2.5 million numbers. No chance of missing it: no number is beyond 4.51, so that each makes the bets richer."""
    z = ended(np.random.default_rng(0).standard_normal((STEPS, 25_000), dtype=np.float32))
    noise = (SIGMA * mechanism(name).matrix.solve(z.astype(np.float64))).astype(np.float32)
    verdict = hs.audit.noise(noise, mechanism(name), level=LEVEL)
    assert verdict.broken == ("ends",)
    assert "false-alarm probability at most 0.001" in str(verdict)


@pytest.mark.parametrize(("fault", "finding"), [(another_key, "earlier_rows"), (multiplied, "earlier_rows")])
def test_faults_of_correlated_noise_are_found(fault, finding):
    """Another key at a resume, and C in place of its inverse; without correlation neither is a fault."""
    assert finding in hs.audit.noise(fault("banded"), mechanism("banded"), level=LEVEL).broken


def test_noise_without_correlation_is_told_from_correlated_noise():
    assert hs.audit.noise(rows("identity"), mechanism("banded"), level=LEVEL).refuted
    assert hs.audit.noise(rows("banded"), mechanism("identity"), level=LEVEL).refuted


def test_numbers_that_are_not_finite_are_a_finding():
    for value in (np.nan, np.inf):
        assert hs.audit.noise([[1.0, value]], mechanism("identity")).broken == ("not_finite",)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([], "at least one"),
        ([[1.0], [1.0, 2.0]], "one size"),
        ([[1.0]] * (STEPS + 1), "at most 100 rows"),
        ([[]], "size"),
    ],
)
def test_bad_input_is_named(given, says):
    with pytest.raises(InvalidInputError, match=says):
        hs.audit.noise(given, mechanism("identity"))


def test_a_tree_that_is_too_long_is_refused():
    with pytest.raises(UnsupportedError, match="2048"):
        hs.audit.noise([[1.0]], mechanism("tree", steps=2049))


def test_a_mechanism_without_noise_is_refused():
    with pytest.raises(InvalidInputError, match="noise_multiplier"):
        hs.audit.noise([[1.0]], hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.1, steps=3)))
