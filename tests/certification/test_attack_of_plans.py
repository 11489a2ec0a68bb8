"""Attack numbers of certificates are those of the whole curve, for thirty plans of all samplers, most of them weekly.

The curve comes from another computation: its own grids, every accountant, and searches that refine.
"""

import pytest
from samplers import DECLARED

from hockeystick import (
    BallsInBins,
    BandedSquareRoot,
    BMinSep,
    CyclicPoisson,
    Deterministic,
    Mechanism,
    MultiAttribution,
    Poisson,
    RandomAllocation,
    Shuffle,
    Side,
    certify,
    profile,
    verify,
)
from hockeystick.attacks import advantage, bayes_error, gdp_mu, true_positive_rate
from hockeystick.samplers import SAMPLERS, Sampler
from hockeystick.strategies import Strategy

FEW = BandedSquareRoot(bands=3)
DELTA = 1e-5
PLANS: list[tuple[Sampler, Strategy | None, float]] = [
    (Deterministic(bins=10, epochs=4), None, 2.0),
    (Deterministic(bins=5), None, 0.4),
    (Deterministic(bins=8, epochs=3), FEW, 3.0),
    (Poisson(sampling_prob=0.05, steps=40), None, 1.0),
    (Poisson(sampling_prob=0.05, steps=40), None, 3.0),
    (Poisson(sampling_prob=0.01, steps=1000), None, 0.6),
    (Poisson(sampling_prob=0.01, steps=2000), None, 4.0),
    (Poisson(sampling_prob=0.001, steps=5000), None, 0.8),
    (Poisson(sampling_prob=0.5, steps=5), None, 1.5),
    (Poisson(sampling_prob=0.05, steps=40, truncated_batch_size=70, num_examples=500), None, 1.0),
    (Poisson(sampling_prob=0.05, steps=20), FEW, 1.5),
    (RandomAllocation(bins=20, epochs=2), None, 0.8),
    (RandomAllocation(bins=100, epochs=20), None, 1.119727211654095),  # of the tutorial
    (RandomAllocation(bins=10, participations=3), None, 1.0),
    (RandomAllocation(bins=50, epochs=5), None, 3.0),
    (RandomAllocation(bins=10, epochs=2), FEW, 2.0),
    (BallsInBins(bins=20, epochs=4), None, 1.0),
    (BallsInBins(bins=100, epochs=3), None, 2.0),
    (BallsInBins(bins=5, epochs=1), None, 0.7),
    (Shuffle(batch_size=4, bins=10, epochs=2), None, 1.0),
    (Shuffle(batch_size=4, bins=10, epochs=2), None, 4.0),
    (CyclicPoisson(groups=4, sampling_prob=0.2, steps=40), None, 1.5),
    (CyclicPoisson(groups=4, sampling_prob=0.2, steps=40), FEW, 1.5),
    (CyclicPoisson(groups=2, sampling_prob=0.02, steps=100), None, 0.8),
    (BMinSep(min_sep=4, sampling_prob=0.05, steps=40), None, 1.0),
    (BMinSep(min_sep=4, sampling_prob=0.05, steps=40), None, 3.0),
    (BMinSep(min_sep=2, sampling_prob=0.02, steps=30), None, 0.7),
    (MultiAttribution(min_sep=4, sampling_prob=0.02, steps=20, examples_per_user=2), None, 2.0),
    (MultiAttribution(min_sep=2, sampling_prob=0.05, steps=10, examples_per_user=2), None, 1.0),
    (MultiAttribution(min_sep=4, sampling_prob=0.02, steps=20, examples_per_user=3), None, 4.0),
]
OTHERS = {kind: declared.mechanisms[0] for kind, declared in DECLARED.items()}
for drawn, *_ in PLANS:
    OTHERS.pop(drawn.kind, None)
PLANS += [(drawn, None, noise) for drawn, noise in OTHERS.values()]
"""Of every kind that is not among the thirty yet, the first mechanism that it declares."""


IN_WHOLE_RUNS = {1, 3, 10, 11, 19, 26}
"""Public and secret batches, independent and correlated noise, one law and windows."""


def test_there_are_thirty_plans_or_more_of_all_samplers() -> None:
    assert len(PLANS) >= 30
    assert {sampler.kind for sampler, _, _ in PLANS} == set(SAMPLERS)


@pytest.mark.parametrize(
    ("sampler", "strategy", "noise"),
    [
        pytest.param(*plan, id=f"{place}-{plan[0].kind}", marks=() if place in IN_WHOLE_RUNS else pytest.mark.weekly)
        for place, plan in enumerate(PLANS)
    ],
)
def test_they_are_within_one_percent_of_the_curve(sampler: Sampler, strategy: Strategy | None, noise: float) -> None:
    fields = {} if strategy is None else {"strategy": strategy}
    run = Mechanism(sampler=sampler, noise_multiplier=noise, **fields)
    certificate = certify(run, delta=DELTA)
    numbers, upper = certificate.numbers, profile(run)[Side.UPPER]
    assert numbers.advantage <= 1.01 * advantage(upper)
    assert numbers.bayes_success <= 1.01 * (1.0 - float(bayes_error(upper, 0.5)))
    rates = numbers.tpr_at_fpr_0_1, numbers.tpr_at_fpr_0_01, numbers.tpr_at_fpr_0_001
    for rate, at in zip(rates, (0.1, 0.01, 0.001), strict=True):
        assert 0.99 * float(true_positive_rate(upper, at)) <= rate <= 1.01 * float(true_positive_rate(upper, at))
    assert numbers.gdp_mu is not None
    assert 0.99 <= numbers.gdp_mu / gdp_mu(upper, unexplained=DELTA) <= 1.01
    assert verify(certificate) == certificate
