"""b-min-sep by windows with at most one participation: against sums over all outputs, samples and the other bounds."""

from typing import Any

import numpy as np
import pytest
import unit_oracle as oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from unit_oracle import EPSILONS, GRID_ERROR

import hockeystick as hs
from hockeystick import Direction, Side
from hockeystick.accountants import separated_windows
from hockeystick.accountants.monte_carlo import known_upper
from hockeystick.accountants.registry import ACCOUNTANTS
from hockeystick.accountants.separated_windows import chains
from hockeystick.errors import CannotCertifyError
from hockeystick.mechanism import Unit
from hockeystick.pairs.registry import dominating_pair
from hockeystick.pairs.renewal_mixture import RenewalMixture
from hockeystick.pairs.waiting_copies import WaitingCopies
from hockeystick.settings import MonteCarlo
from hockeystick.strategies.matrix.dense import DenseMatrix
from hockeystick.strategies.matrix.toeplitz import ToeplitzMatrix
from hockeystick.windows.windows import reach

METHOD = ACCOUNTANTS["separated_windows"]
SETTINGS = hs.Settings(hs.Resolution(24, 1e-4))


def renewal(matrix: np.ndarray, sigma: float, **changes: Any) -> RenewalMixture:
    fields: dict[str, Any] = {"min_sep": 2, "participation_prob": 0.3, "warm_start": True} | changes
    return RenewalMixture(noise_multiplier=sigma, matrix=DenseMatrix(matrix), **fields)


def upper(pair: Any, name: str = "separated_windows") -> np.ndarray:
    """(remove, add) at EPSILONS, shape (2, epsilons)."""
    profiles = ACCOUNTANTS[name].profiles(pair, Side.UPPER, SETTINGS)
    return np.array([[profiles[direction](epsilon) for epsilon in EPSILONS] for direction in Direction])


def random_matrix(rng: np.random.Generator, steps: int, kind: int) -> np.ndarray:
    """Diagonal, any lower triangle, or Toeplitz."""
    if kind == 0:
        return np.diag(rng.uniform(0.3, 1.0, steps))
    if kind == 1:
        return np.tril(rng.uniform(0.0, 1.0, (steps, steps)) * (rng.random((steps, steps)) < 0.7)) + np.eye(steps) / 2
    column = np.concatenate([[1.0], rng.uniform(0.0, 0.8, steps - 1)])
    return np.array([[column[i - j] if i >= j else 0.0 for j in range(steps)] for i in range(steps)])


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("seed", range(15))
def test_never_below_the_truth(seed: int, warm: bool) -> None:
    rng = np.random.default_rng([41, seed])
    steps = int(rng.integers(2, 5))
    gap, prob, sigma = int(rng.integers(2, steps + 1)), rng.uniform(0.03, 0.9), rng.uniform(0.5, 2.5)
    matrix = random_matrix(rng, steps, seed % 3)
    outcomes = oracle.independently(oracle.renewals(steps, gap, prob, warm), 1)
    truth = oracle.deltas(oracle.mixture(outcomes, matrix, np.ones((1, steps))), oracle.nobody(matrix), sigma)
    above = upper(renewal(matrix, sigma, min_sep=gap, participation_prob=prob, warm_start=warm))
    assert (above >= truth - GRID_ERROR[steps]).all()


def test_one_window_from_a_cold_start_without_overlap_is_exact() -> None:
    """n = b: the run is the case u = 1 of a window, and columns that share no row are the chain itself."""
    steps, sigma, prob = 3, 0.8, 0.3
    outcomes = oracle.independently(oracle.renewals(steps, steps, prob, warm=False), 1)
    matrix = np.eye(steps)
    truth = oracle.deltas(oracle.mixture(outcomes, matrix, np.ones((1, steps))), oracle.nobody(matrix), sigma)
    pair = renewal(matrix, sigma, min_sep=steps, participation_prob=prob, warm_start=False)
    profiles = METHOD.profiles(pair, Side.UPPER, hs.Settings(hs.Resolution(68, 1e-4)))
    values = np.array([[profiles[direction](epsilon) for epsilon in EPSILONS] for direction in Direction])
    assert np.abs(values - truth).max() < GRID_ERROR[steps] + 0.01 * truth.max()


@settings(max_examples=15)
@given(st.floats(0.005, 0.4), st.floats(0.6, 3.0), st.integers(2, 8), st.booleans())
def test_more_coins_and_less_noise_are_worse(prob: float, sigma: float, gap: int, warm: bool) -> None:
    matrix = np.eye(16)
    fields = {"min_sep": gap, "participation_prob": prob, "warm_start": warm}
    better = upper(renewal(matrix, sigma, **fields))
    assert (better <= upper(renewal(matrix, 0.9 * sigma, **fields)) * (1.0 + 1e-2) + 1e-9).all()
    fields["participation_prob"] = 1.2 * prob
    assert (better <= upper(renewal(matrix, sigma, **fields)) * (1.0 + 1e-2) + 1e-9).all()


def test_waiting_longer_is_charged_less_than_poisson() -> None:
    """Without overlap a window is below the Poisson steps that it replaces, at any distance, but for the grids."""
    fine = hs.Settings(hs.Resolution(68, 1e-4))
    for gap in (2, 5, 16):
        sampler = hs.BMinSep(min_sep=gap, sampling_prob=0.02, steps=64)
        pair = dominating_pair(hs.Mechanism(sampler=sampler, noise_multiplier=1.0))
        own, poisson = (ACCOUNTANTS[name].profiles(pair, Side.UPPER, fine) for name in ("separated_windows", "direct"))
        for direction in Direction:
            for epsilon in (0.0, 0.4):
                assert own[direction](epsilon) <= poisson[direction](epsilon) * 1.03


def test_samples_do_not_contradict_it() -> None:
    """A Monte Carlo lower bound, which fails with probability 1e-9, with overlapping and with separate columns."""
    for bands, gap in ((3, 8), (1, 4)):
        run = hs.Mechanism(
            strategy=hs.BandedSquareRoot(bands=bands),
            sampler=hs.BMinSep(min_sep=gap, sampling_prob=0.05, steps=40),
            noise_multiplier=1.2,
        )
        pair = dominating_pair(run)
        asked = hs.Settings(question=hs.Question(epsilon=1.0), monte_carlo=MonteCarlo(seed=1, ratio=0.2))
        below = ACCOUNTANTS["monte_carlo"].bound(pair, Side.LOWER, asked).delta(1.0)
        above = METHOD.bound(pair, Side.UPPER, SETTINGS).delta(1.0)
        assert 0.0 < below <= above < 10.0 * below


def test_coarse_grids_link_windows_by_fewer_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take the second detail, whose bound is still a bound, and loses less than a percent beside the first."""
    assert METHOD.example is not None
    pair = METHOD.example()

    def epsilon(nodes: int) -> float:
        return METHOD.bound(pair, Side.UPPER, hs.Settings(hs.Resolution(nodes, 1e-5))).epsilon(1e-5)

    coarse, fine = epsilon(24), epsilon(68)
    monkeypatch.setattr(separated_windows, "COARSE_DETAILS", separated_windows.DETAILS)
    linked_by_more = epsilon(24)
    assert fine < linked_by_more < coarse < 1.01 * linked_by_more


def test_a_whole_profile_is_as_good_as_one_delta() -> None:
    """Windows are linked for a whole profile, too: where they are not, this pair has a tenth more epsilon at 1e-5."""
    assert METHOD.example is not None
    pair = METHOD.example()

    def epsilon(smallest: float, question: hs.Question | None) -> float:
        return METHOD.bound(pair, Side.UPPER, hs.Settings(hs.Resolution(24, smallest), question=question)).epsilon(1e-5)

    asked = epsilon(1e-5, hs.Question(delta=1e-5))
    assert epsilon(1e-30, None) <= 1.005 * asked
    assert epsilon(1e-30, hs.Question(delta=1e-30)) > 1.05 * asked


def test_what_it_is_not_for() -> None:
    sampler = hs.BMinSep(min_sep=4, sampling_prob=0.05, steps=20)
    plain = hs.Mechanism(sampler=sampler, noise_multiplier=1.0)
    assert METHOD.why_not(dominating_pair(plain), Side.UPPER) is None
    assert METHOD.why_not(dominating_pair(plain), Side.LOWER) is not None
    poisson = hs.Mechanism(sampler=sampler.model_copy(update={"min_sep": 1}), noise_multiplier=1.0)
    assert "waits" in (METHOD.why_not(dominating_pair(poisson), Side.UPPER) or "")
    several = hs.MultiAttribution(min_sep=4, sampling_prob=0.05, steps=20, examples_per_user=2)
    assert METHOD.why_not(dominating_pair(plain.model_copy(update={"sampler": several})), Side.UPPER) is not None
    users = plain.model_copy(update={"unit": Unit(kind="user", examples_per_user=2)})
    assert METHOD.why_not(dominating_pair(users), Side.UPPER) is None  # by a chain of single examples


@pytest.mark.parametrize("sigma", [0.02, 0.03, 0.1])
def test_low_noise_is_refused_or_bounded(sigma: float) -> None:
    """Ratios that no double holds never look like privacy: any bound is above one participation that is known."""
    for strategy in (hs.BandedSquareRoot(bands=4), hs.Identity(), hs.SquareRoot()):
        sampler = hs.BMinSep(min_sep=8, sampling_prob=0.05, steps=24)
        try:
            certificate = hs.certify(
                hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=sigma), delta=1e-5
            )
        except CannotCertifyError:
            assert sigma < 0.05  # no epsilon up to 700 is certified
            continue
        alone = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=1), noise_multiplier=sigma)
        least = hs.certify(alone, delta=1e-5).bounds.lower
        assert least is not None
        assert certificate.bounds.upper >= least > 1.0


def test_a_generous_cap_changes_nothing_and_a_tight_one_is_charged() -> None:
    fields = {"min_sep": 4, "sampling_prob": 0.05, "steps": 20}
    plain = upper(dominating_pair(hs.Mechanism(sampler=hs.BMinSep(**fields), noise_multiplier=1.0)))

    def capped(cap: int) -> np.ndarray:
        sampler = hs.BMinSep(**fields, truncated_batch_size=cap, num_examples=100)
        return upper(dominating_pair(hs.Mechanism(sampler=sampler, noise_multiplier=1.0)))

    np.testing.assert_allclose(capped(60), plain, rtol=1e-9, atol=1e-40)
    assert (capped(12) > plain).all()


@pytest.mark.parametrize(("bands", "gap", "noise"), [(4, 32, 1.72), (1, 16, 0.97)])
def test_the_noise_of_a_usual_run(bands: int, gap: int, noise: float) -> None:
    """1,000 steps at rate 0.01 for (2, 1e-5); without links between windows they need 1.880 and 0.9955."""
    run = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=bands),
        sampler=hs.BMinSep(min_sep=gap, sampling_prob=0.01, steps=1000),
        noise_multiplier=noise,
    )
    pair = dominating_pair(run)
    above = METHOD.bound(pair, Side.UPPER, hs.Settings(hs.Resolution(68, 1e-5))).epsilon(1e-5)
    below = ACCOUNTANTS["row_filter"].bound(pair, Side.LOWER, hs.Settings(hs.Resolution(24, 1e-5))).epsilon(1e-5)
    assert 1.65 < below <= above <= 2.0


# From below


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_a_sum_is_never_above_the_truth(seed: int, warm: bool) -> None:
    rng = np.random.default_rng([43, seed])
    steps = int(rng.integers(2, 5))
    gap, prob, sigma = int(rng.integers(1, steps + 1)), rng.uniform(0.05, 0.9), rng.uniform(0.4, 2.0)
    matrix = random_matrix(rng, steps, seed % 3)
    outcomes = oracle.independently(oracle.renewals(steps, gap, prob, warm), 1)
    truth = oracle.deltas(oracle.mixture(outcomes, matrix, np.ones((1, steps))), oracle.nobody(matrix), sigma)
    pair = renewal(matrix, sigma, min_sep=gap, participation_prob=prob, warm_start=warm)
    below = ACCOUNTANTS["linear_statistic"].profiles(pair, Side.LOWER, SETTINGS)
    deltas = np.array([[below[direction](epsilon) for epsilon in EPSILONS] for direction in Direction])
    assert (deltas <= truth + GRID_ERROR[steps]).all()
    assert deltas[0, 0] > 0.3 * truth[0, 0]


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_a_sum_over_the_examples_of_a_user_is_never_above_the_truth(seed: int, warm: bool) -> None:
    rng = np.random.default_rng([44, seed])
    steps, examples = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    gap, prob, sigma = int(rng.integers(1, steps + 1)), rng.uniform(0.05, 0.9), rng.uniform(0.8, 3.0)
    matrix = random_matrix(rng, steps, seed % 3)
    outcomes = oracle.independently(oracle.renewals(steps, gap, prob, warm), examples)
    truth = oracle.deltas(oracle.mixture(outcomes, matrix, np.ones((examples, steps))), oracle.nobody(matrix), sigma)
    single = renewal(matrix, sigma, min_sep=gap, participation_prob=prob, warm_start=warm)
    pair = WaitingCopies(noise_multiplier=sigma, one=single, examples=examples)
    below = ACCOUNTANTS["linear_statistic"].profiles(pair, Side.LOWER, SETTINGS)
    deltas = np.array([[below[direction](epsilon) for epsilon in EPSILONS] for direction in Direction])
    assert (deltas <= truth + GRID_ERROR[steps]).all()
    assert deltas[0, 0] > 0.3 * truth[0, 0]


def test_a_step_of_two_examples_is_exact_from_below() -> None:
    """Where nobody has to wait it is a Poisson batch, whose law is known."""
    single = renewal(np.array([[1.0]]), 0.7, participation_prob=0.3, warm_start=False)
    pair = WaitingCopies(noise_multiplier=0.7, one=single, examples=2)
    below = ACCOUNTANTS["linear_statistic"].bound(pair, Side.LOWER, SETTINGS)
    same = hs.Mechanism(
        sampler=hs.Poisson(sampling_prob=0.3, steps=1),
        noise_multiplier=0.7,
        unit=Unit(kind="user", examples_per_user=2),
    )
    above = ACCOUNTANTS["direct"].bound(dominating_pair(same), Side.UPPER, SETTINGS)
    for epsilon in EPSILONS:
        assert below.delta(epsilon) == pytest.approx(above.delta(epsilon), rel=2e-2, abs=1e-9)
        assert below.delta(epsilon) <= above.delta(epsilon)


@pytest.mark.parametrize(
    "sampler",
    [
        hs.BMinSep(min_sep=8, sampling_prob=0.01, steps=40),
        hs.MultiAttribution(min_sep=8, sampling_prob=0.01, steps=40, examples_per_user=2, exclusion="example"),
    ],
)
def test_a_user_is_bounded_from_below_by_all_examples(sampler: Any) -> None:
    """Two examples reveal about as much as twice the shift, not what one example does."""
    strategy = hs.BandedSquareRoot(bands=4)
    unit = Unit(kind="user", examples_per_user=2) if isinstance(sampler, hs.BMinSep) else Unit()
    run = hs.Mechanism(strategy=strategy, sampler=sampler, noise_multiplier=3.0, unit=unit)
    interval = hs.certify(run, delta=1e-5).bounds
    single = hs.certify(
        hs.Mechanism(
            strategy=strategy,
            sampler=hs.BMinSep(min_sep=8, sampling_prob=0.01, steps=40),
            noise_multiplier=3.0,
        ),
        delta=1e-5,
    ).bounds
    assert interval.lower is not None
    assert 1.5 * single.upper < interval.lower <= interval.upper < 1.3 * interval.lower


def test_one_step_is_exact_from_below() -> None:
    pair = renewal(np.array([[1.0]]), 0.7, participation_prob=0.3, warm_start=False)
    below = ACCOUNTANTS["linear_statistic"].bound(pair, Side.LOWER, SETTINGS)
    above = ACCOUNTANTS["direct"].bound(pair, Side.UPPER, SETTINGS)
    for epsilon in EPSILONS:
        assert below.delta(epsilon) == pytest.approx(above.delta(epsilon), rel=2e-2, abs=1e-9)
        assert below.delta(epsilon) <= above.delta(epsilon)


def test_a_certificate_has_both_sides_without_sampling() -> None:
    sampler = hs.BMinSep(min_sep=8, sampling_prob=0.02, steps=200)
    certificate = hs.certify(hs.Mechanism(sampler=sampler, noise_multiplier=1.5), delta=1e-5)
    assert (certificate.method.upper, certificate.method.lower) == ("separated_windows", "row_filter")
    assert certificate.bounds.lower is not None
    assert 0.4 * certificate.bounds.upper < certificate.bounds.lower <= certificate.bounds.upper


def test_what_is_not_attained_has_no_lower_bound() -> None:
    several = hs.MultiAttribution(min_sep=4, sampling_prob=0.05, steps=20, examples_per_user=1)
    pair = dominating_pair(hs.Mechanism(sampler=several, noise_multiplier=1.0))
    assert ACCOUNTANTS["linear_statistic"].why_not(pair, Side.LOWER) is not None


@pytest.mark.parametrize("rate", [1e-14, 1e-16, 1e-18, 1e-90, 1e-170])
def test_hardly_any_participation_is_certified(rate: float) -> None:
    """Chances next to which 1 has no digits are left to the other accountants."""
    sampler = hs.BMinSep(min_sep=8, sampling_prob=rate, steps=16)
    for sigma in (1.0, 1e6):
        mechanism = hs.Mechanism(strategy=hs.BandedSquareRoot(bands=2), sampler=sampler, noise_multiplier=sigma)
        assert hs.certify(mechanism, epsilon=1.0).bounds.upper <= 16 * rate * (1.0 + 1e-6)


def test_sampling_starts_from_the_best_bound_on_the_add_direction() -> None:
    """What is known of it need not be sampled; of the remove direction nothing is handed over."""
    pair = RenewalMixture(
        noise_multiplier=1.2,
        matrix=ToeplitzMatrix(np.array([1.0, 0.5]), 40),
        min_sep=8,
        participation_prob=0.05,
        warm_start=True,
    )
    known = known_upper(pair, hs.Settings())
    assert list(known) == [Direction.ADD]
    windows, coins = (
        ACCOUNTANTS[name].bound(pair, Side.UPPER, hs.Settings()).profiles[Direction.ADD]
        for name in ("separated_windows", "split_noise")
    )
    for epsilon in (0.5, 1.0):
        assert known[Direction.ADD](epsilon) == pytest.approx(min(windows(epsilon), coins(epsilon)), rel=1e-12)
        assert windows(epsilon) < 0.9 * coins(epsilon)


@pytest.mark.parametrize(("gap", "steps"), [(64, 64), (64, 130), (2, 7)])
def test_a_coin_that_hardly_ever_stays_out_is_certified(gap: int, steps: int) -> None:
    """In b steps the chance to take no part underflows, or is far below what links of windows are for."""
    for warm in (True, False):
        pair = renewal(np.eye(steps), 1.0, min_sep=gap, participation_prob=1.0 - 1e-6, warm_start=warm)
        assert np.isfinite(upper(pair)).all()


@pytest.mark.parametrize(
    ("bands", "min_sep", "chance", "beaten"),
    [(4, 4, 0.0626, True), (4, 16, 0.01, False), (5, 4, 0.0626, False), (64, 64, 1e-4, True), (63, 64, 1e-4, False)],
)
def test_windows_of_all_participations_are_left_out_where_they_were_looser(
    bands: int, min_sep: int, chance: float, beaten: bool
) -> None:
    """Where participations that b-min-sep leaves out are often many, or where columns are long but do not overlap."""
    run = hs.Mechanism(
        strategy=hs.BandedSquareRoot(bands=bands),
        sampler=hs.BMinSep(min_sep=min_sep, sampling_prob=chance / (1.0 + chance * (min_sep - 1)), steps=128),
        noise_multiplier=5.0,
    )
    pair = dominating_pair(run)
    accountant = ACCOUNTANTS["participation_windows"]
    assert accountant.is_beaten(pair, {"gaussian", "separated_windows"}) is beaten
    assert not accountant.is_beaten(pair, {"gaussian", "split_noise"})
    if bands == 4 and beaten:
        of_each = [hs.bound(run, method=name).epsilon(1e-5) for name in ("separated_windows", "participation_windows")]
        assert of_each[0] < of_each[1]


def test_shapes_do_not_depend_on_the_noises_that_were_asked_before() -> None:
    """Else a certificate would not verify. Two of these noises share a level."""

    def shapes(noises: tuple[float, ...]) -> dict[float, bytes]:
        matrix = ToeplitzMatrix(np.array([1.0, 0.5, 0.375]), 20)
        longest = float(matrix.max_column_norm)
        fields: dict[str, Any] = {"min_sep": 3, "participation_prob": 0.1, "warm_start": True}
        pairs = [RenewalMixture(noise_multiplier=noise * longest, matrix=matrix, **fields) for noise in noises]
        return {
            noise: separated_windows._chain(pair, SETTINGS).products.tobytes()
            for noise, pair in zip(noises, pairs, strict=True)
        }

    noises = (1.38, 1.45, 2.9, 11.0)
    forwards, backwards = shapes(noises), shapes(noises[::-1])
    assert forwards == backwards
    assert forwards[1.38] == forwards[1.45]


def test_a_chain_is_chosen_by_laws_and_not_by_its_variance() -> None:
    """At small deltas the chain of the least variance, whose longest column is longer, has 4.8 percent more epsilon."""
    run = hs.Mechanism(
        strategy=hs.SquareRoot(), sampler=hs.BMinSep(min_sep=3, sampling_prob=0.147, steps=16), noise_multiplier=4.07
    )
    pair, delta = dominating_pair(run), 1.4e-9
    fine = hs.Settings(hs.Resolution(24, delta), question=hs.Question(delta=delta))
    chosen = separated_windows._chain(pair, fine)
    coins: np.ndarray = np.array(separated_windows.coins_of(pair))
    least = min(chains(pair, hs.Deadline()), key=lambda chain: chain.second_moment(run.sigma, coins))
    assert chosen.scales.max() < least.scales.max()
    epsilons = [
        min(reach(law, delta) for law in separated_windows._laws_of(chain, pair, fine, separated_windows._detail(pair)))
        for chain in (chosen, least)
    ]
    assert 1.03 * epsilons[0] < epsilons[1]


def test_waits_that_are_longer_than_the_run_choose_each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows are as long as the run for all of them, but in a warm one the chances before the first step differ."""
    compared = list[int]()
    real = separated_windows._laws_of

    def laws_of(chain: Any, pair: Any, *rest: Any) -> Any:
        compared.append(pair.min_sep)
        return real(chain, pair, *rest)

    monkeypatch.setattr(separated_windows, "_laws_of", laws_of)
    matrix = ToeplitzMatrix(np.array([1.0, 0.5, 0.375]), 6)
    for min_sep in (7, 20):
        pair = RenewalMixture(
            matrix=matrix, noise_multiplier=2.0, min_sep=min_sep, participation_prob=0.05, warm_start=True
        )
        METHOD.bound(pair, Side.UPPER, SETTINGS)
    assert compared.count(7) == compared.count(20) > 1
