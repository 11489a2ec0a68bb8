"""b-min-sep subsampling with columns beyond the separation: bounds on the ratio and proposals against all histories."""

import gc
import pickle
import weakref
from math import exp, inf, log, sqrt

import numpy as np
import pytest
from history_oracle import (
    chances_of,
    drawn_histories,
    exponents_of,
    histories,
    interval,
    limited,
    mean_field,
    ratio,
    whole_of,
)
from wide_cases import CASES, above_of, columns, pair_of

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.monte_carlo.far import family
from hockeystick.monte_carlo.far.columns import columns_of
from hockeystick.monte_carlo.far.limits import Limits, chance_of_others, greatest_field, largest_spaced_field
from hockeystick.monte_carlo.far.proposals import Add, Below, Counted, rates
from hockeystick.monte_carlo.far.subjects import why_not
from hockeystick.monte_carlo.far.visits import draw_visits
from hockeystick.monte_carlo.renewal.family import FAMILY
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.visit_kernels import moments
from hockeystick.pairs.visits import Visits, coins, one_in, waits
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.types import Direction, Side


@pytest.mark.parametrize("pair", CASES)
def test_columns_and_moments_are_those_of_the_pair(pair: RenewalMixture) -> None:
    own = columns(pair)
    whole = pair.matrix.materialize() / pair.noise_multiplier
    np.testing.assert_allclose(whole_of(own), whole, rtol=1e-14)
    chosen = histories(own)
    chances = chances_of(own, chosen)
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(chances @ chosen, pair.participation_prob * pair.availability, rtol=1e-12)
    np.testing.assert_allclose(own.mean, whole @ (chances @ chosen), rtol=1e-12)
    squared_mean, mean_square = own.moments
    means = chosen @ whole.T
    assert squared_mean == pytest.approx(float(np.square(chances @ means).sum()))
    assert mean_square == pytest.approx(float(chances @ np.square(means).sum(axis=1)))


LIMITED = [(3, 1), (3, 2), (16, 3), (2, 1), (4, 1)]


@pytest.mark.parametrize("pair", CASES)
@pytest.mark.parametrize(("block", "limit"), LIMITED)
def test_the_ratio_lies_between_its_bounds(pair: RenewalMixture, block: int, limit: int) -> None:
    own, rng = columns(pair), np.random.default_rng(1)
    few = limited(own, block, limit)
    for shift in (0.0, 1.0, 2.0, -1.0):
        y = rng.normal(shift, 1.0, own.steps)
        z, exact = exponents_of(own, y), ratio(own, y, few)
        assert mean_field(own, z) <= log(ratio(own, y)) + 1e-12
        largest, logs = drawn_histories(own, z, Limits(block, limit), rng, 2000)
        assert largest == pytest.approx(log(float(np.exp(few @ z) @ chances_of(own, few))), abs=1e-12)
        assert logs.max() <= 1e-12
        ratios = np.exp(logs + largest)
        assert abs(ratios.mean() - exact) <= 6.2 * ratios.std() / sqrt(ratios.size) + 1e-9  # 6.2 sigma: about 1e-9


LAWS = [coins(0.3), coins(0.2, 2), waits(0.3, 2, True), waits(0.3, 3, False), waits(0.4, 6, True), one_in(2), one_in(4)]


@pytest.mark.parametrize("law", LAWS)
def test_histories_are_drawn_with_their_chances(law: Visits) -> None:
    """Each within 6.2 standard errors; and the expected participations, and their products, are those of all."""
    own = columns_of(ToeplitzMatrix(np.array([1.0, 0.7, 0.5, 0.3]), 4), 1.5, law, Side.UPPER)
    chosen, drawn, rng = histories(own), 40_000, np.random.default_rng(11)
    chances = chances_of(own, chosen)
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    expected, square = moments(own.couplings, law.edges)
    np.testing.assert_allclose(expected, chances @ chosen, rtol=1e-12)
    assert square == pytest.approx(float(chances @ np.square(chosen @ whole_of(own).T).sum(axis=1)), rel=1e-12)
    picked = dict.fromkeys(map(tuple, chosen), 0)
    for _ in range(drawn):
        counts = np.zeros(4)
        draw_visits(rng, law.edges, counts)
        picked[tuple(counts)] += 1
    for history, chance in zip(chosen, chances, strict=True):
        assert abs(picked[tuple(history)] / drawn - chance) <= 6.2 * sqrt(chance * (1.0 - chance) / drawn) + 1e-9


def test_the_mean_field_is_the_ratio_where_columns_do_not_overlap() -> None:
    """Also where outputs are so far off that weights are rescaled."""
    column = np.array([1.0, 0.7, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    pair = RenewalMixture(
        noise_multiplier=0.1, matrix=ToeplitzMatrix(column, 9), min_sep=3, participation_prob=0.2, warm_start=True
    )
    own, rng = columns(pair), np.random.default_rng(2)
    for shift in (0.0, 5.0, 12.0, -8.0):
        y = rng.normal(shift, 1.0, 9)
        chosen = histories(own)
        chances = chances_of(own, chosen)
        logs = chosen @ whole_of(own).T
        terms = logs @ y - 0.5 * np.square(logs).sum(axis=1)
        top = terms[chances > 0.0].max()
        exact = top + log(float(np.exp(np.minimum(terms - top, 0.0)) @ chances))
        assert mean_field(own, exponents_of(own, y)) == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("pair", CASES)
@pytest.mark.parametrize(("block", "limit"), LIMITED)
def test_other_histories_and_fields_are_covered(pair: RenewalMixture, block: int, limit: int) -> None:
    own = columns(pair)
    few = limited(own, block, limit)
    possible = few[chances_of(own, few) > 0.0]
    assert 1.0 - chances_of(own, few).sum() <= chance_of_others(own, Limits(block, limit)) + 1e-14
    field = (possible @ np.triu(whole_of(own).T @ whole_of(own), 1)).max()
    assert field <= greatest_field(own, Limits(block, limit))
    spaced = histories(own)
    spaced = spaced[chances_of(own, spaced) > 0.0]
    assert (spaced @ np.triu(whole_of(own).T @ whole_of(own), 1)).max() <= largest_spaced_field(
        own.couplings, own.law.min_sep
    )


@pytest.mark.parametrize("pair", CASES)
def test_each_side_stays_on_its_side_of_the_truth(pair: RenewalMixture) -> None:
    """The truth is a mean of exact ratios, within 6.2 standard errors."""
    own, rng, epsilon = columns(pair), np.random.default_rng(5), 0.8
    nodes = rng.standard_normal((4000, own.steps))
    chosen = histories(own)
    chances = chances_of(own, chosen)
    means = chosen @ whole_of(own).T

    def ratios(y: np.ndarray) -> np.ndarray:
        return np.exp(y @ means.T - 0.5 * np.square(means).sum(axis=1)) @ chances

    picked = rng.choice(chances.size, size=nodes.shape[0], p=chances / chances.sum())
    remove = np.maximum(1.0 - exp(epsilon) / ratios(nodes + means[picked]), 0.0)
    add = np.maximum(1.0 - exp(epsilon) * ratios(nodes), 0.0)
    rate = min(rates(own), key=lambda rate: abs(rate - 0.6))
    below = Below(direction=Direction.REMOVE, pair=pair, rate=rate)
    above = above_of(pair, rate=rate)
    other = Add(direction=Direction.ADD, pair=pair, beta=1.0)
    for values, lower, upper in ((remove, below, above), (add, None, other)):
        error = 6.2 * values.std() / sqrt(values.size)
        least, most = values.mean() - error, values.mean() + error
        assert interval(upper, epsilon, 20000, 6)[1] >= least
        if lower is not None:
            assert interval(lower, epsilon, 20000, 7)[0] <= most
            assert interval(lower, epsilon, 20000, 7)[1] >= 0.5 * interval(upper, epsilon, 20000, 6)[0]


def test_the_samples_that_stand_for_other_histories_have_their_chance() -> None:
    pair = pair_of(24, 3, 0.2, 2.0)
    above = Counted(
        direction=Direction.REMOVE,
        pair=pair,
        order=2,
        decay=0.9,
        rate=rates(columns(pair))[0],
        block=16,
        limit=2,
    )
    log_weights, losses = np.empty(40000), np.empty(40000)
    above.draw(np.random.default_rng(10), log_weights, losses)
    values = -np.exp(log_weights) * np.expm1(np.minimum(30.0 - losses, 0.0))  # no other sample has such a loss
    charged = chance_of_others(columns(pair), Limits(16, 2))
    assert abs(values.mean() - charged) <= 6.2 * values.std() / sqrt(values.size)
    assert values.max() <= above.weight_bound(30.0)


@pytest.mark.parametrize("direction", Direction)
def test_the_first_proposal_is_found_without_a_chain(direction: Direction, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the first of all, and the search for an epsilon takes it alone."""
    pair = pair_of(60, 4, 0.02, 4.0)
    first = FAMILY.propose(pair, direction, 1.0)[0]
    monkeypatch.delattr(family, "best_chain")
    proposal = FAMILY.first(pair, direction, 1.0)
    assert (proposal.name, proposal.direction, proposal.parameters) == (first.name, first.direction, first.parameters)


def test_what_the_family_proposes_is_built_again_from_its_parameters() -> None:
    pair = pair_of(60, 4, 0.02, 4.0)
    proposals = [*FAMILY.propose(pair, Direction.REMOVE, 1.0), *FAMILY.propose(pair, Direction.ADD, 1.0)]
    names = ["far_below", "far_counted", "naive", "far_add", "naive"]
    assert [proposal.name for proposal in proposals] == names
    assert [proposal.sides for proposal in proposals[:2]] == [(Side.LOWER,), (Side.UPPER,)]
    for proposal in proposals:
        again = FAMILY.build(pair, proposal.direction, proposal.name, proposal.parameters)
        for copy in (again, pickle.loads(pickle.dumps(proposal))):
            drawn = []
            for each in (proposal, copy):
                log_weights, losses = np.empty(16), np.empty(16)
                each.draw(np.random.default_rng(8), log_weights, losses)
                drawn.append(np.concatenate([log_weights, losses]))
            np.testing.assert_array_equal(*drawn)
            assert 0.0 < copy.loss_error < 1e-4
            assert copy.weight_bound(1.0) == proposal.weight_bound(1.0)


@pytest.mark.parametrize(
    ("direction", "name", "parameters"),
    [
        (
            Direction.REMOVE,
            "far_counted",
            {"order": 1.0, "decay": 0.9, "rate": 0.1, "block": 16.0, "limit": 9.0},
        ),
        (Direction.REMOVE, "far_below", {"rate": 0.95}),
        (Direction.ADD, "far_add", {"beta": inf}),
        (Direction.REMOVE, "trees_below", {"rate": 0.1}),
    ],
)
def test_other_proposals_are_refused(direction: Direction, name: str, parameters: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError, match="'proposal' field must be"):
        FAMILY.build(pair_of(20, 3, 0.1, 2.0), direction, name, parameters)


@pytest.mark.parametrize("min_sep", [3, 16])
def test_what_needs_a_square_matrix_is_not_built_for_a_tree(min_sep: int) -> None:
    """Also where columns of one example do not overlap: a certificate that names such a proposal is not verified."""
    sampler = hs.BMinSep(min_sep=min_sep, sampling_prob=0.05, steps=16)
    tree = dominating_pair(hs.Mechanism(strategy=hs.BinaryTree(), sampler=sampler, noise_multiplier=4.0))
    others = {
        "naive": {},
        "renewal_order": {"order": 2.0, "separation": 3.0, "share": 0.9, "rate": 0.1, "shift": 2.0, "far": 0.1},
        "renewal_copies": {"order": 2.0, "separation": 3.0, "share": 0.9, "reach": 3.0, "cap": 2.0},
    }
    for name, parameters in others.items():
        with pytest.raises(InvalidInputError, match="'proposal' field must be"):
            FAMILY.build(tree, Direction.REMOVE, name, parameters)
    with pytest.raises(InvalidInputError, match="'proposal' field must be"):
        FAMILY.build(tree, Direction.ADD, "renewal_mean", {"beta": 1.0})


def test_outputs_far_off_have_no_error() -> None:
    """Weights that fall below the doubles beside others are dropped; what is left is a lower bound, or no number."""
    low = pair_of(1000, 16, 0.012, 1.0, slowness=0.5)
    own, rng = columns(low), np.random.default_rng(6)
    for shift in (0.0, 5.0, 40.0, -40.0, 200.0):
        assert not mean_field(own, exponents_of(own, rng.normal(shift, 1.0, 1000))) > 1e6
    run = hs.Mechanism(
        strategy=hs.SquareRoot(),
        sampler=hs.BMinSep(min_sep=2, sampling_prob=0.2, steps=6),
        noise_multiplier=0.1,
    )
    sampled = hs.MonteCarlo(seed=1, failure_probability=1e-3, ratio=10.0)
    assert hs.certify(run, delta=1e-2, monte_carlo=sampled, budget=8.0).bounds.upper > 0.0


def test_columns_are_freed() -> None:
    """What is known about them is kept with them."""
    alive = []
    for sigma in (3.0, 4.0, 5.0, 6.0, 7.0, 8.0):
        pair = pair_of(40, 3, 0.05, sigma)
        own = columns(pair)
        FAMILY.propose(pair, Direction.REMOVE, 0.5)
        alive.append(weakref.ref(own))
        del own, pair
    gc.collect()
    assert sum(reference() is not None for reference in alive) <= 4


def test_who_is_covered() -> None:
    wide = pair_of(20, 3, 0.1, 2.0)
    assert why_not(wide) is None
    assert FAMILY.refusal(wide, Side.LOWER) is None
    run = hs.Mechanism(
        strategy=hs.BinaryTree(), sampler=hs.BMinSep(min_sep=3, sampling_prob=0.1, steps=20), noise_multiplier=4.0
    )
    tree = dominating_pair(run)
    assert isinstance(tree, RenewalMixture)
    assert why_not(tree) is None
    assert FAMILY.propose(tree, Direction.REMOVE, 0.5)[0].name == "far_below"
    narrow = dominating_pair(run.model_copy(update={"strategy": hs.BandedSquareRoot(bands=3)}))
    assert isinstance(narrow, RenewalMixture)
    assert "do not overlap" in str(why_not(narrow))
    users = RenewalMixture(
        noise_multiplier=2.0,
        matrix=wide.matrix,
        min_sep=3,
        participation_prob=0.1,
        warm_start=False,
        examples_per_user=2,
    )
    assert "several examples" in str(why_not(users))
    assert FAMILY.refusal(users, Side.LOWER) is not None
    assert FAMILY.refusal(users, Side.UPPER) is None


@pytest.mark.parametrize(
    ("strategy", "above"), [(hs.BandedSquareRoot(bands=12), "counted"), (hs.BinaryTree(), "linked")]
)
def test_a_certificate_has_both_sides_and_can_be_verified(strategy: object, above: str) -> None:
    run = hs.Mechanism(
        strategy=strategy, sampler=hs.BMinSep(min_sep=4, sampling_prob=0.02, steps=60), noise_multiplier=4.0
    )
    options = hs.MonteCarlo(seed=1, failure_probability=1e-6, ratio=0.5)
    certificate = hs.certify(run, delta=1e-3, method="monte_carlo", budget=60.0, monte_carlo=options)
    assert certificate.method.upper == "monte_carlo"
    assert certificate.bounds.lower is not None
    assert certificate.bounds.upper <= 1.15 * certificate.bounds.lower
    assert {claimed.run.proposal for claimed in certificate.monte_carlo.runs} >= {f"far_{above}", "far_below"}
    hs.verify(certificate, evidence=options.ledger)
