"""Estimations: bounds by sampling against exact laws, resumption, attempts that fail, and what a certificate claims.

All Monte Carlo bounds here have a failure probability of at most 1e-9, so that a false failure of this file is less
likely than 1e-6; the seeds are fixed.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from hockeystick import (
    BallsInBins,
    BandedSquareRoot,
    BMinSep,
    Certificate,
    Deadline,
    Direction,
    Kind,
    Mechanism,
    MonteCarlo,
    MultiAttribution,
    Poisson,
    Question,
    Resolution,
    Settings,
    Side,
    bound,
    certify,
)
from hockeystick.accountants.monte_carlo import ACCOUNTANT as METHOD
from hockeystick.accountants.monte_carlo import costly_upper
from hockeystick.bounds import Profile
from hockeystick.claim import MonteCarloClaim, Statement
from hockeystick.errors import BudgetExceededError, InvalidInputError, UnsupportedError
from hockeystick.evidence import EvidenceStore
from hockeystick.monte_carlo.aims import CostlyBound
from hockeystick.monte_carlo.estimation import Estimation
from hockeystick.monte_carlo.runs import in_this_process
from hockeystick.monte_carlo.statistics import failure_spent, step_profile
from hockeystick.pairs.registry import dominating_pair
from hockeystick.samples import Chunk, Ledger, MemoryLedger, Node, Run

SMALL = Mechanism(strategy=BandedSquareRoot(bands=3), sampler=BallsInBins(bins=8, epochs=2), noise_multiplier=2.0)
SMALLER = Mechanism(strategy=BandedSquareRoot(bands=2), sampler=BallsInBins(bins=3, epochs=2), noise_multiplier=2.0)
PLAIN = Mechanism(sampler=BallsInBins(bins=20), noise_multiplier=1.0)


@cache
def certified(mechanism: Mechanism, epsilon: float = 1.0) -> Certificate:
    """What deterministic methods say, which takes seconds."""
    return certify(mechanism, epsilon=epsilon)


def sampled(seed: int = 1, **options: Any) -> MonteCarlo:
    """Options with a fixed seed."""
    return MonteCarlo(**({"failure_probability": 1e-9, "ratio": 0.2, "seed": seed} | options))


def settings_for(
    options: MonteCarlo, seconds: float = float("inf"), work: float = Settings.work, **question: float
) -> Settings:
    """For one question, without the deterministic accountants."""
    return Settings(deadline=Deadline(seconds), question=Question(**question), monte_carlo=options, work=work)


def by_sampling(
    mechanism: Mechanism,
    options: MonteCarlo,
    seconds: float = float("inf"),
    work: float = Settings.work,
    **question: float,
) -> Any:
    """The two sides that Monte Carlo gives, and its claim."""
    pair, settings = dominating_pair(mechanism), settings_for(options, seconds, work, **question)
    by_side = METHOD.bounds(pair, tuple(Side), settings)
    lower, upper = (Question(**question).answer(by_side[side]) for side in (Side.LOWER, Side.UPPER))
    assert by_side[Side.LOWER].claim == by_side[Side.UPPER].claim
    return lower, upper, by_side[Side.UPPER].claim


@pytest.mark.parametrize(
    ("noise", "delta"),
    [
        pytest.param(noise, delta, marks=pytest.mark.weekly if (row + column) % 2 else ())
        for row, noise in enumerate((0.6, 1.0, 2.5))
        for column, delta in enumerate((1e-3, 1e-5, 1e-8, 1e-10))
    ],
)
def test_epsilon_of_plain_bins_holds_the_exact_law(noise: float, delta: float) -> None:
    mechanism = PLAIN.with_noise(noise)
    exact = certify(mechanism, delta=delta).bounds
    options = sampled(ratio=0.5)
    lower, upper, _ = by_sampling(mechanism, options, work=1.0, delta=delta)
    assert exact.lower is not None
    assert lower <= exact.upper
    assert upper >= exact.lower
    assert lower < upper


@pytest.mark.parametrize("epsilon", [1.0, *(pytest.param(value, marks=pytest.mark.weekly) for value in (0.3, 2.0))])
def test_delta_of_correlated_bins_lies_between_the_deterministic_bounds(epsilon: float) -> None:
    around = certified(SMALL, epsilon).bounds
    lower, upper, _ = by_sampling(SMALL, sampled(), epsilon=epsilon)
    assert around.lower is not None
    assert 0.0 < lower <= around.upper
    assert upper >= around.lower
    assert upper <= lower * 1.2 * (1.0 + 1e-12)


@pytest.mark.parametrize("side", Side)
def test_nodes_lose_no_more_than_pilots_were_wrong(side: Side) -> None:
    """An answer at a distance from where the pilots saw it has a node at most as far beyond it, or one step."""
    options = sampled(ratio=0.01)
    estimation = Estimation(dominating_pair(PLAIN), Question(delta=1e-5), options, Deadline(60.0))
    aim = estimation.aim(Direction.REMOVE)
    places, sign = estimation.places(aim, side), 1.0 if side is Side.UPPER else -1.0
    step = options.ratio / aim.steepness
    for part in (0.001, 0.004, 0.01, 0.03, 0.1, 0.3):
        answer = aim.epsilon * (1.0 + sign * part)
        beyond = [place for place in places if sign * (place - answer) >= 0.0]
        assert min(abs(place - answer) for place in beyond) <= max(part * aim.epsilon, step)


def test_b_min_sep_is_poisson_when_nothing_has_to_be_apart() -> None:
    poisson = certify(Mechanism(sampler=Poisson(sampling_prob=0.1, steps=10), noise_multiplier=1.0), epsilon=1.0).bounds
    same = Mechanism(sampler=BMinSep(min_sep=1, sampling_prob=0.1, steps=10), noise_multiplier=1.0)
    lower, upper, _ = by_sampling(same, sampled(), epsilon=1.0)
    assert poisson.lower is not None
    assert lower <= poisson.upper
    assert upper >= poisson.lower


def test_sampling_has_to_be_allowed() -> None:
    assert certified(SMALLER).monte_carlo is None
    with pytest.raises(UnsupportedError, match="--allow monte-carlo"):
        certify(SMALLER, epsilon=1.0, method="monte_carlo")
    with pytest.raises(UnsupportedError, match="has to be allowed"):
        bound(SMALLER, "monte_carlo")


@pytest.mark.parametrize(
    ("field", "value"),
    [("failure_probability", 0.0), ("failure_probability", 1.0), ("ratio", 0.0), ("seed", -1), ("seed", 1 << 128)],
)
def test_bad_options_are_named(field: str, value: float) -> None:
    with pytest.raises(InvalidInputError, match=f"'{field}'"):
        MonteCarlo(**{field: value})  # type: ignore[arg-type]


def test_the_certificate_says_what_it_rests_on() -> None:
    certificate = certify(SMALLER, epsilon=1.0, method="monte_carlo", monte_carlo=sampled())
    claim = certificate.monte_carlo
    assert claim is not None
    assert certificate.kind is Kind.MONTE_CARLO
    assert certificate.confidence == 1.0 - 1e-9
    assert claim.statement is Statement.CONFIDENCE
    assert failure_spent([claimed.run for claimed in claim.runs]) <= claim.failure_probability
    assert "fails with probability at most 1e-09" in str(certificate)
    assert any("seed of the accounting samples once" in requirement for requirement in certificate.requirements)
    assert not any("seed" in requirement for requirement in certified(SMALLER).requirements)
    again = Certificate.parse_json(certificate.model_dump_json())
    assert again == certificate
    assert again.content_digest() == certificate.digest


def test_deterministic_certificates_keep_their_digests() -> None:
    certificate = certified(SMALLER)
    content = certificate.model_dump(mode="json")
    assert content["monte_carlo"] is None
    assert Certificate.parse_json(certificate.model_dump_json()).content_digest() == certificate.digest


class Stored(MemoryLedger):
    """A ledger that says what is asked of it, and that may be filled by a run that was broken off."""

    def __init__(self, gives_up_after: int = 1 << 30) -> None:
        super().__init__()
        self.gives_up_after, self.added = gives_up_after, 0

    def add(self, run: Run, chunk: Chunk) -> None:
        if self.added >= self.gives_up_after:
            raise KeyboardInterrupt
        super().add(run, chunk)
        self.added += 1


def test_a_broken_run_is_resumed_to_the_same_statistics() -> None:
    whole = Stored()
    uninterrupted = by_sampling(SMALL, sampled(ratio=0.05, ledger=whole), epsilon=1.0)
    assert whole.added > 4
    for breaks in range(1, whole.added, 3):
        ledger = Stored(breaks)
        with pytest.raises(KeyboardInterrupt):
            by_sampling(SMALL, sampled(ratio=0.05, ledger=ledger), epsilon=1.0)
        ledger.gives_up_after = 1 << 30
        resumed = by_sampling(SMALL, sampled(ratio=0.05, ledger=ledger, seed=None), epsilon=1.0)
        assert ledger.added == whole.added  # nothing was drawn twice
        assert resumed == uninterrupted


@pytest.mark.parametrize("question", [{"epsilon": 1.0}, {"delta": 1e-4}])
def test_an_estimation_cut_off_anywhere_is_resumed_to_the_same_end(question: dict[str, float], tmp_path: Path) -> None:
    """Also before its first chunk: the seed is kept from the start, and no pilot depends on what came before it."""

    def sample(ledger: Ledger, most: int = 1 << 30) -> tuple[MonteCarloClaim, list[float]]:
        ticks = count()

        def tick(_: int) -> None:
            if next(ticks) >= most:
                raise BudgetExceededError("cut off")

        asked = Question(**question)
        made = Estimation(dominating_pair(SMALL), asked, sampled(seed=None, ledger=ledger), Deadline(on_tick=tick))
        made.sample()
        ends = [profile(0.7) for side in Side for profile in made.profiles(side).values()]
        return made.claim(), [next(ticks), *ends]

    whole = MemoryLedger()
    expected = sample(whole)
    ticks = int(expected[1][0])
    assert ticks > 9
    for most in (0, 3, ticks - 2):
        with EvidenceStore.open(tmp_path / f"{most}.evidence") as store:
            store.seed(whole.seed())
            with suppress(BudgetExceededError):
                sample(store, most)
        with EvidenceStore.open(tmp_path / f"{most}.evidence") as store:
            resumed = sample(store)
        assert resumed[0] == expected[0]
        assert resumed[1][1:] == expected[1][1:]


def test_the_seed_of_a_ledger_is_drawn_once(tmp_path: Path) -> None:
    ledger = MemoryLedger()
    assert ledger.seed() == ledger.seed()
    assert ledger.seed(5) == 5
    assert ledger.seed() != MemoryLedger().seed()
    for name, first in (("a", None), ("b", 7)):
        with EvidenceStore.open(tmp_path / name) as store:
            seed = store.seed(first)
            assert first in (None, seed)
        with EvidenceStore.open(tmp_path / name) as store:
            assert store.seed() == seed
            assert store.seed(9) == 9
            assert store.seed() == seed


def test_chunks_may_come_in_any_order() -> None:
    def backwards(proposal: Any, run: Run, streams: Iterable[int]) -> Any:
        yield from reversed(list(in_this_process(proposal, run, streams)))

    forwards = by_sampling(SMALL, sampled(), epsilon=1.0)
    assert by_sampling(SMALL, sampled(executor=backwards), epsilon=1.0) == forwards


def test_other_seeds_give_other_statistics() -> None:
    claims = {by_sampling(SMALL, sampled(seed), epsilon=1.0)[1] for seed in (1, 2, None, None)}
    assert len(claims) == 4


def test_what_does_not_close_in_time_is_wide_and_holds() -> None:
    lower, upper, _ = by_sampling(SMALLER, sampled(ratio=1e-4), seconds=2.0, epsilon=1.0)
    assert upper > lower * (1.0 + 1e-4)
    around = certified(SMALLER).bounds
    assert around.lower is not None
    assert lower <= around.upper
    assert upper >= around.lower


def test_the_whole_curve_holds_the_exact_law_everywhere() -> None:
    exact = {side: bound(PLAIN, "direct", side=side, settings=Settings(Resolution(40, 1e-4))) for side in Side}
    settings = Settings(Resolution(40, 1e-4), monte_carlo=sampled(ratio=0.5))
    curve = {side: bound(PLAIN, "monte_carlo", side=side, settings=settings) for side in Side}
    epsilons = [0.1 * step for step in range(40)]
    for epsilon in epsilons:
        assert curve[Side.UPPER].delta(epsilon) >= exact[Side.LOWER].delta(epsilon)
        assert curve[Side.LOWER].delta(epsilon) <= exact[Side.UPPER].delta(epsilon)
    for side in Side:
        values = [curve[side].delta(epsilon) for epsilon in epsilons]
        assert all(later <= earlier for earlier, later in pairwise(values))
    at = exact[Side.UPPER].epsilon(1e-3)
    assert curve[Side.UPPER].delta(at) <= 2.5e-3
    assert curve[Side.LOWER].delta(at) >= 2e-4
    assert curve[Side.UPPER].confidence == 1.0 - 1e-9


def test_a_whole_curve_over_several_members_spends_its_failure_probability_once() -> None:
    """At each epsilon another member may attain the profile, so the failures of all nodes of all of them add up."""
    sampler = MultiAttribution(min_sep=3, sampling_prob=0.3, steps=4, examples_per_user=4)
    pair = dominating_pair(Mechanism(sampler=sampler, noise_multiplier=2.0))
    assert len(pair.members) == 4
    options = MonteCarlo(failure_probability=0.01, ratio=20.0, seed=1)
    claim = METHOD.bounds(pair, (Side.UPPER,), Settings(Resolution(40, 0.03), monte_carlo=options))[Side.UPPER].claim
    assert isinstance(claim, MonteCarloClaim)
    assert len({claimed.run.subject for claimed in claim.runs}) == 4
    spent = sum(node.failure for claimed in claim.runs for node in claimed.run.nodes if node.side is Side.UPPER)
    assert 0.001 < spent <= 0.5 * 0.01 * (1.0 + 1e-12)


def test_nodes_in_a_fixed_order_stop_at_the_first_failure() -> None:
    upper = step_profile({1.0: 0.01, 2.0: 0.5, 3.0: 0.001}, Side.UPPER)
    assert [upper(e) for e in (0.5, 1.0, 1.5, 2.5, 3.0, 9.0)] == [1.0, 0.5, 0.5, 0.5, 0.001, 0.001]
    lower = step_profile({1.0: 0.3, 2.0: 0.1, 3.0: 0.2}, Side.LOWER)
    assert [lower(e) for e in (0.5, 1.0, 1.5, 2.5, 3.0, 9.0)] == [0.3, 0.3, 0.1, 0.1, 0.1, 0.0]


def test_what_the_nodes_of_several_runs_spend() -> None:
    def run(direction: Direction, *nodes: tuple[Side, float, float]) -> Run:
        made = tuple(Node(side=s, epsilon=e, theta=0.1, weight_bound=1.0, failure=f) for s, e, f in nodes)
        return Run(subject="", direction=direction, proposal="naive", parameters={}, nodes=made, chunk_size=1, seed=0)

    first = run(Direction.REMOVE, (Side.UPPER, 1.0, 0.01), (Side.UPPER, 1.0, 0.01), (Side.UPPER, 2.0, 0.02))
    second = run(Direction.REMOVE, (Side.UPPER, 1.0, 0.03), (Side.LOWER, 1.0, 0.001))
    other = run(Direction.ADD, (Side.UPPER, 1.0, 0.04), (Side.LOWER, 1.0, 0.002))
    assert failure_spent([first]) == pytest.approx(0.02)
    assert failure_spent([first, second]) == pytest.approx(0.051)
    assert failure_spent([first, second, other]) == pytest.approx(0.053)
    assert failure_spent([other]) == pytest.approx(0.042)


@pytest.mark.parametrize("seconds", [0.0, 1e3])
def test_a_costly_bound_on_add_is_computed_where_samples_would_take_longer(seconds: float) -> None:
    """The same aims but for the direction that it spares; it is not computed twice."""
    run = Mechanism(
        strategy=BandedSquareRoot(bands=8), sampler=Poisson(sampling_prob=0.03, steps=60), noise_multiplier=3.0
    )
    pair, options = dominating_pair(run), MonteCarlo(seed=1)
    windows = costly_upper(pair)
    assert windows is not None
    computed: list[Profile | None] = []

    def profile(deadline: Deadline) -> Profile | None:
        computed.append(windows.profile(deadline))
        return computed[-1]

    estimation = Estimation(pair, Question(delta=1e-4), options, Deadline(), costly=CostlyBound(seconds, profile))
    remove, *add = estimation.aims()
    if seconds:
        assert computed == []
        assert Direction.ADD not in estimation.known
        assert [aim.direction for aim in add] == [Direction.ADD]
    else:
        assert len(computed) == 1
        assert add == []
        assert 0.0 < estimation.known[Direction.ADD](remove.epsilon) < 1e-4
