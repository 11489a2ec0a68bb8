"""Tuples of histories: what they have in common against enumeration, and their bounds against the truth."""

import pickle
from itertools import product
from math import exp, log, sqrt

import numpy as np
import pytest
from history_oracle import assert_same, chances_of, histories, interval, limited, whole_of
from wide_cases import CASES, columns, pair_of

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.moments import tuple_moments
from hockeystick.moments.tuple_moments import POWERS
from hockeystick.monte_carlo.far import tuples
from hockeystick.monte_carlo.far.columns import Columns
from hockeystick.monte_carlo.far.draws import draw_tuple
from hockeystick.monte_carlo.far.limits import BLOCKS, TAILS, WORTH, Limits, chance_of_others, fewest
from hockeystick.monte_carlo.far.proposals import rates
from hockeystick.monte_carlo.far.tuples import CAPS, MISSING, Tuples, log_missed
from hockeystick.monte_carlo.renewal.family import FAMILY
from hockeystick.monte_carlo.weighing import OTHER_SHARE, TILTED_SHARE, log_largest
from hockeystick.monte_carlo.weight_bounds import ENDLESS
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.types import Direction

SMALL = [*CASES, pair_of(6, 2, 0.05, 6.0), pair_of(8, 3, 0.02, 3.0, slowness=0.1)]
NOISY = [
    pair_of(6, 2, 0.3, 8.0),
    pair_of(6, 2, 0.3, 8.0, warm=False),
    pair_of(7, 3, 0.25, 8.0, slowness=0.2),
    pair_of(7, 5, 0.4, 6.0),
    pair_of(4, 6, 0.4, 5.0),
]
"""Those for which something is sampled: M is no larger than a few."""


def of(pair: RenewalMixture, order: int, cap: float, rate: float = 0.0) -> Tuples:
    own = columns(pair)
    return Tuples(
        direction=Direction.REMOVE,
        pair=pair,
        order=order,
        cap=cap,
        rate=rate or rates(own)[0],
        block=BLOCKS[0],
        limit=fewest(own, BLOCKS[0], TAILS[4]),
    )


def log_moment(own: Columns, order: int, power: float) -> float:
    return tuple_moments.log_moment(own.couplings, own.law.prob, order, power)


def log_tail(own: Columns, order: int, cap: float) -> float:
    return tuple_moments.log_tail([log_moment(own, order, power) for power in POWERS], cap)


def tuples_of(chances: np.ndarray, chosen: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Chances and counts of all tuples of these histories; equal counts are merged."""
    law: dict[tuple[float, ...], float] = {(0.0,) * chosen.shape[1]: 1.0}
    for _ in range(order):
        more: dict[tuple[float, ...], float] = {}
        for (counts, chance), (history, part) in product(law.items(), zip(chosen, chances, strict=True)):
            if part > 0.0:
                key = tuple(np.add(counts, history))
                more[key] = more.get(key, 0.0) + chance * part
        law = more
    return np.array(list(law.values())), np.array(list(law))


def in_common(pair: RenewalMixture, counts: np.ndarray) -> np.ndarray:
    """From all pairs of participations."""
    gram = whole_of(columns(pair)).T @ whole_of(columns(pair))
    off = gram - np.diag(np.diag(gram))
    return 0.5 * np.einsum("iu,uv,iv->i", counts, off, counts) + 0.5 * (counts * (counts - 1.0)) @ np.diag(gram)


@pytest.mark.parametrize("pair", SMALL)
@pytest.mark.parametrize("order", [2, 3])
def test_moments_are_above_those_of_all_tuples(pair: RenewalMixture, order: int) -> None:
    own, chosen = columns(pair), histories(columns(pair))
    chances, counts = tuples_of(chances_of(own, chosen), chosen, order)
    common = in_common(pair, counts)
    for power in (1.0, 1.25, 2.0, 4.0):
        assert log_moment(own, order, power) >= log(float(chances @ np.exp(power * common)))
    for cap in (0.25, 1.0, 2.0):
        beyond = float(chances[common > cap] @ np.exp(common[common > cap]))
        assert log_tail(own, order, cap) >= (log(beyond) if beyond > 0.0 else -np.inf)


@pytest.mark.parametrize("order", [2, 3])
def test_moments_are_close_where_nobody_waits_for_long_and_little_is_shared(
    order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coins that are independent, as in what bounds them: the first order is exact, whatever the columns."""
    monkeypatch.setattr(tuple_moments, "TOGETHER", 1)
    pair = pair_of(8, 2, 0.01, 8.0, slowness=0.1)
    own, chosen = columns(pair), histories(columns(pair))
    coins = own.law.prob ** chosen.sum(axis=1) * (1.0 - own.law.prob) ** (own.steps - chosen.sum(axis=1))
    chances, counts = tuples_of(coins, chosen, order)
    exact = log(float(chances @ np.exp(in_common(pair, counts))))
    assert exact <= log_moment(own, order, 1.0) <= 1.1 * exact


@pytest.mark.parametrize("cap", [0.8, 0.95])
def test_a_tail_is_close_where_tuples_hardly_differ(cap: float) -> None:
    """Two histories of one step take part together, or have nothing in common."""
    own = columns(pair_of(1, 2, 0.9, 1.0, warm=False))
    exact = own.law.prob**2 * exp(float(own.couplings[0, 0]))
    assert log(exact) <= log_tail(own, 2, cap) <= log(exact) + 0.2


@pytest.mark.parametrize("warm", [True, False])
def test_tuples_are_drawn_with_their_chances(warm: bool) -> None:
    pair = pair_of(5, 3, 0.3, 1.2, warm=warm)
    own, chosen = columns(pair), histories(columns(pair))
    chances, counts = tuples_of(chances_of(own, chosen), chosen, 2)
    rng, drawn, mean, picked = np.random.default_rng(3), np.empty(5), np.empty(5), 20000
    times: dict[tuple[float, ...], int] = {}
    for _ in range(picked):
        common = draw_tuple(rng, own.overlaps, own.law.edges, 2, drawn, mean)
        times[tuple(drawn)] = times.get(tuple(drawn), 0) + 1
        np.testing.assert_allclose(mean, whole_of(own) @ drawn, atol=1e-12)
        assert common == pytest.approx(float(in_common(pair, drawn[None])[0]), abs=1e-12)
    assert set(times) <= {tuple(tuple_counts) for tuple_counts in counts}
    for chance, tuple_counts in zip(chances, counts, strict=True):
        assert (
            abs(times.get(tuple(tuple_counts), 0) / picked - chance)
            <= 6.2 * sqrt(chance * (1.0 - chance) / picked) + 1e-9
        )


def test_tuples_are_given_up_as_the_cap_says() -> None:
    pair = pair_of(6, 2, 0.3, 3.0)
    own, chosen = columns(pair), histories(columns(pair))
    chances, counts = tuples_of(chances_of(own, chosen), chosen, 6)
    kept = float(chances @ np.minimum(np.exp(in_common(pair, counts) - 4.0), 1.0))
    assert 0.1 < kept < 0.9
    log_weights, losses = np.empty(40000), np.empty(40000)
    of(pair, 6, 4.0).draw(np.random.default_rng(12), log_weights, losses)
    given_up, chance = (losses == -ENDLESS).mean(), TILTED_SHARE * (1.0 - OTHER_SHARE) * (1.0 - kept)
    assert abs(given_up - chance) <= 6.2 * sqrt(chance * (1.0 - chance) / losses.size)


@pytest.mark.parametrize("pair", NOISY)
def test_density_is_there_but_for_a_small_part_of_the_profile(pair: RenewalMixture) -> None:
    """The density of kept tuples over X'_A^a / B, at drawn outputs: less than it should be as seldom as is charged."""
    own, order, cap = columns(pair), 6, 1.0
    few = limited(own, BLOCKS[0], fewest(own, BLOCKS[0], TAILS[4]))
    chances, counts = tuples_of(chances_of(own, few), few, order)
    common, whole = in_common(pair, counts), whole_of(own)
    weights = chances * np.minimum(np.exp(common - cap), 1.0)
    rng, missed, drawn = np.random.default_rng(8), 0.0, 150
    squares = np.square(counts @ whole.T).sum(axis=1)
    own_squares = few @ np.square(whole).sum(axis=0)
    picked = rng.choice(chances.size, size=drawn, p=chances * np.exp(common) / (chances @ np.exp(common)))
    values = np.empty(drawn)
    for place, index in enumerate(picked):  # outputs with the density X'_A^a Q over its mass
        y = whole @ counts[index] + rng.standard_normal(own.steps)
        largest = float(chances_of(own, few) @ np.exp(few @ (whole.T @ y) - 0.5 * own_squares))
        density = float(weights @ np.exp(counts @ (whole.T @ y) - 0.5 * squares))
        short = density < (1.0 - MISSING) * largest**order / exp(cap)
        values[place] = max(largest - exp(0.3), 0.0) / largest**order if short else 0.0
    missed = values.mean() * float(chances @ np.exp(common))
    error = 6.2 * values.std() * float(chances @ np.exp(common)) / sqrt(drawn)
    assert missed - error <= exp(log_missed(own, order, cap))


@pytest.mark.parametrize("pair", NOISY)
@pytest.mark.parametrize(("order", "cap"), [(6, 2.0), (6, 4.0), (8, 3.0)])
def test_the_upper_bound_stays_above_the_truth(pair: RenewalMixture, order: int, cap: float) -> None:
    """The truth is a mean of exact ratios, within 6.2 standard errors; M is attained at most."""
    own, rng, epsilon = columns(pair), np.random.default_rng(5), 0.3
    chosen = histories(own)
    chances, means = chances_of(own, chosen), chosen @ whole_of(own).T
    picked = rng.choice(chances.size, size=4000, p=chances / chances.sum())
    y = rng.standard_normal((4000, own.steps)) + means[picked]
    ratios = np.exp(y @ means.T - 0.5 * np.square(means).sum(axis=1)) @ chances
    truth = np.maximum(1.0 - exp(epsilon) / ratios, 0.0)
    least = truth.mean() - 6.2 * truth.std() / sqrt(truth.size)
    assert (
        interval(of(pair, order, min(CAPS, key=lambda candidate: abs(candidate - cap))), epsilon, 20000, 6)[1] >= least
    )


def test_what_is_sampled_is_close_to_the_truth_where_little_is_missed() -> None:
    pair, epsilon = pair_of(100, 4, 0.05, 60.0), 0.2
    proposals = {proposal.name: proposal for proposal in FAMILY.propose(pair, Direction.REMOVE, epsilon)}
    assert {"far_below", "far_tuples"} <= set(proposals)
    low = interval(proposals["far_below"], epsilon, 100_000, 3)
    high = interval(proposals["far_tuples"], epsilon, 100_000, 4)
    assert high[1] >= low[0]
    assert high[0] <= 1.3 * low[1]


def test_it_is_built_again_from_its_parameters_and_nothing_else_is() -> None:
    pair = pair_of(100, 4, 0.05, 60.0)
    proposal = next(
        candidate for candidate in FAMILY.propose(pair, Direction.REMOVE, 0.2) if candidate.name == "far_tuples"
    )
    again = FAMILY.build(pair, proposal.direction, proposal.name, proposal.parameters)
    for copy in (again, pickle.loads(pickle.dumps(proposal))):
        assert_same(proposal, copy)
    for change in ({"order": 7.0}, {"cap": 0.03}, {"cap": 0.0}, {"cap": 65.0}, {"rate": 0.123}, {"limit": 99.0}):
        with pytest.raises(InvalidInputError):
            FAMILY.build(pair, proposal.direction, proposal.name, {**proposal.parameters, **change})


def test_samples_that_stand_for_the_rest_have_its_weight() -> None:
    pair = pair_of(24, 3, 0.1, 12.0)
    proposal = of(pair, 6, CAPS[90])
    log_weights, losses = np.empty(40000), np.empty(40000)
    proposal.draw(np.random.default_rng(10), log_weights, losses)
    values = -np.exp(log_weights) * np.expm1(np.minimum(40.0 - losses, 0.0))  # no other sample has such a loss
    charged = chance_of_others(columns(pair), Limits(proposal.block, proposal.limit)) + exp(
        log_missed(columns(pair), 6, proposal.cap)
    )
    assert abs(values.mean() - charged) <= 6.2 * values.std() / sqrt(values.size)
    assert values.max() <= proposal.weight_bound(40.0)


def test_the_cap_is_the_smallest_on_its_grid() -> None:
    own = columns(pair_of(60, 4, 0.05, 30.0))
    best = tuples.best_tuples(own, 0.2)
    assert best is not None
    order, cap, _ = best

    def part(cap: float) -> float:
        return log_missed(own, order, cap) - log_largest(order, tuples.log_norm(cap), 0.2)

    assert part(cap) <= log(WORTH) < part(CAPS[CAPS.index(cap) - 1])


def test_a_certificate_that_rests_on_tuples_can_be_verified() -> None:
    sampler = hs.BMinSep(min_sep=4, sampling_prob=0.04, steps=60)
    run = hs.Mechanism(strategy=hs.SquareRoot(), sampler=sampler, noise_multiplier=60.0)
    options = hs.MonteCarlo(seed=1, failure_probability=1e-6, ratio=0.3)
    certificate = hs.certify(run, delta=1e-4, method="monte_carlo", monte_carlo=options)
    assert certificate.monte_carlo is not None
    assert "far_tuples" in {claimed.run.proposal for claimed in certificate.monte_carlo.runs}
    assert certificate.bounds.lower is not None
    assert certificate.bounds.lower <= certificate.bounds.upper
    hs.verify(certificate)


def test_strong_columns_have_no_moment() -> None:
    """There is too little noise for any number of cells."""
    for sigma in (1e-3, 1e-100):
        assert log_moment(columns(pair_of(20, 4, 0.1, sigma)), 6, 2.0) == np.inf
