"""Histories of Opacus as it draws: what its own loaders and engine do, against what their history becomes."""

import warnings
from math import exp, log
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm

import hockeystick as hs
from hockeystick.errors import InvalidInputError
from hockeystick.interop.opacus import drawn_rate, from_opacus
from hockeystick.laws.grid import Resolution
from hockeystick.settings import Settings

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")
DataLoader, TensorDataset = torch.utils.data.DataLoader, torch.utils.data.TensorDataset

SHORT = [length for length in range(1, 300) if int(1 / (1 / length)) != length]
"""Lengths that lose a batch: 93, 99, 105, 117 and eleven more."""

SHALLOW = Settings(resolution=Resolution(smallest_delta=1e-12))


@pytest.fixture(scope="module")
def coins():
    """Every value that torch draws a float32 from."""
    return torch.arange(2**24, dtype=torch.float64).mul(2.0**-24).float()


def share_below(coins, rate) -> float:
    """The chance of a coin, by Opacus' own comparison of every value."""
    return int((coins < rate).sum()) / 2**24


def history_of(data_loader, sigma, *, poisson_sampling=True, steps=None, name="rdp"):
    """What Opacus' engine records of one epoch, or of fewer steps; and the loader that it drew with."""
    model = torch.nn.Linear(1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = opacus.PrivacyEngine(accountant=name)
        model, optimizer, loader = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=data_loader,
            noise_multiplier=sigma,
            max_grad_norm=1.0,
            poisson_sampling=poisson_sampling,
        )
    # What its hook sees of an optimizer; no noise is drawn here, so no generator moves on.
    shown = {"params": optimizer.params, "max_grad_norm": 1.0, "secure_mode": True}
    step = SimpleNamespace(noise_multiplier=sigma, accumulated_iterations=1, **shown)
    batches = 0
    for batch in loader.batch_sampler:
        assert isinstance(batch, list)
        optimizer.step_hook(step)
        batches += 1
        if batches == steps:
            break
    assert sum(entry[2] for entry in engine.accountant.history) == batches
    return engine.accountant, loader, batches


def random_loaders(number: int):
    """(what becomes of it, a loader) for lengths that lose a batch and others, drop_last, and rates of one's own."""
    rng = np.random.default_rng(20)
    for at in range(number):
        length = int(rng.choice(SHORT) if at % 2 else rng.integers(1, 300))
        size = int(rng.integers(1, 4))
        drop = bool(rng.integers(2))
        extra = int(rng.integers(size))  # examples of a last batch that is not full
        full = length if drop or not extra else length - 1
        data = TensorDataset(torch.zeros(max(full * size + extra, 1), 1))
        if at % 5 == 4:
            rate = float(rng.uniform(0.003, 0.9))
            own = opacus.data_loader.DPDataLoader(data, sample_rate=rate)
            yield {"sample_rate": rate}, own, {"poisson_sampling": False}
            continue
        loader = DataLoader(data, batch_size=size, drop_last=drop)
        assert len(loader) == length
        yield {"steps_in_epoch": length}, loader, {}


def one_step_delta(rate: float, sigma: float, epsilon: float) -> float:
    """Delta of one Poisson sampled Gaussian step in closed form, the larger of both directions."""
    # Remove: (1 - q) N(0, s^2) + q N(1, s^2) against N(0, s^2); the ratio exceeds e^epsilon above the point x.
    point = sigma**2 * log((exp(epsilon) - 1 + rate) / rate) + 0.5
    above = (1 - rate) * norm.sf(point / sigma) + rate * norm.sf((point - 1) / sigma)
    remove = above - exp(epsilon) * norm.sf(point / sigma)
    if exp(-epsilon) <= 1 - rate:
        return remove
    point = sigma**2 * log((exp(-epsilon) - 1 + rate) / rate) + 0.5
    mixed = (1 - rate) * norm.cdf(point / sigma) + rate * norm.cdf((point - 1) / sigma)
    return max(remove, norm.cdf(point / sigma) - exp(epsilon) * mixed)


@pytest.mark.parametrize(
    "rate", [1 / 93, 1 / 92, 0.01, 1 / 3, 0.5 + 2**-26, 0.25 + 2**-40, 1e-7, 1e-9, 1.0, 1 - 2**-30, 2**-24, 3 * 2**-24]
)
def test_the_rate_that_is_drawn_is_counted(coins, rate):
    assert drawn_rate(rate) == share_below(coins, rate)
    assert drawn_rate(drawn_rate(rate)) == drawn_rate(rate)


def test_torch_draws_coins_from_these_values():
    drawn = torch.rand(100_000, generator=torch.Generator().manual_seed(0)).double() * 2**24
    assert bool((drawn == drawn.round()).all())
    assert float(drawn.max()) <= 2**24 - 1
    assert len(drawn.unique()) > 99_000  # 298 pairs are expected; more than 1,000 have a chance below 1e-200


def test_a_hundred_histories_become_what_was_drawn(coins, monkeypatch):
    """The mechanism has the law of the loader's own sampler, and its steps, for every loader; or it is refused."""
    refused = 0
    for at, (known, given, options) in enumerate(random_loaders(100)):
        accountant, loader, batches = history_of(given, 1.0 + at % 3, **options)
        (run,) = from_opacus(accountant, poisson_sampling=True, **known)
        sampler = loader.batch_sampler
        drawn = share_below(coins, sampler.sample_rate)
        assert (run.sampler.sampling_prob, run.sampler.steps, run.sigma) == (drawn, batches, 1.0 + at % 3)
        if at % 25 == 0:  # the sampler itself, on all coins at once
            with monkeypatch.context() as patch:
                patch.setattr(torch, "rand", lambda number, generator=None: coins)
                everything = type(sampler)(num_samples=2**24, sample_rate=sampler.sample_rate, steps=1)
                assert len(next(iter(everything))) / 2**24 == drawn
        if options:
            continue
        if {known["steps_in_epoch"], known["steps_in_epoch"] + 1} & set(SHORT):
            with pytest.raises(InvalidInputError, match="steps_in_epoch"):
                from_opacus(accountant.history, poisson_sampling=True)
            refused += 1
        else:
            assert from_opacus(accountant.history, poisson_sampling=True) == (run,)
    assert 20 <= refused <= 60


def test_bounds_for_a_hundred_histories_hold_for_what_was_drawn(coins):
    """One step each, for which delta has a closed form: its rounding is far below the distance of the rates' deltas."""
    for at, (known, given, options) in enumerate(random_loaders(100)):
        sigma, epsilon = (0.7, 1.0, 2.0)[at % 3], (0.3, 0.05)[at % 2]
        accountant, loader, _ = history_of(given, sigma, steps=1, **options)
        (run,) = from_opacus(accountant, poisson_sampling=True, **known)
        truth = one_step_delta(share_below(coins, loader.batch_sampler.sample_rate), sigma, epsilon)
        lower, upper = (
            hs.bound(run, "direct", side=side, settings=SHALLOW).delta(epsilon)
            for side in (hs.Side.LOWER, hs.Side.UPPER)
        )
        assert lower <= truth * (1 + 1e-9) + 1e-15
        assert upper >= truth * (1 - 1e-9)
        assert upper - lower <= 2e-3 * truth + 1e-12  # a rate of 1 / 92 for 1 / 93 would be seen


def test_a_loader_of_93_batches_has_a_lower_bound_below_the_truth():
    """The history of an epoch at noise multiplier 1, against dp_accounting at the rate that was drawn."""
    privacy_loss = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    accountant, loader, batches = history_of(DataLoader(TensorDataset(torch.zeros(93, 1))), 1.0)
    assert batches == 92
    assert accountant.history == [(1.0, 1 / 92, 92)]

    def pessimistic(rate):
        step = privacy_loss.from_gaussian_mechanism(1.0, sampling_prob=rate, value_discretization_interval=1e-3)
        return step.self_compose(92).get_epsilon_for_delta(1e-5)

    (run,) = from_opacus(accountant, poisson_sampling=True, steps_in_epoch=93)
    certified = hs.certify(run, delta=1e-5).epsilon
    assert certified.lower <= pessimistic(loader.sample_rate)
    accounted = hs.Mechanism(sampler=hs.Poisson(sampling_prob=1 / 92, steps=92), noise_multiplier=1.0)
    assert hs.certify(accounted, delta=1e-5).epsilon.lower > pessimistic(loader.sample_rate) * 1.01


@pytest.mark.parametrize("length", [length - 1 for length in SHORT])
def test_a_rate_of_two_lengths_is_refused_without_the_length(length):
    history = [(1.0, 1 / length, 10)]
    with pytest.raises(InvalidInputError, match=f"steps_in_epoch.* of {length} and of {length + 1} batches"):
        from_opacus(history, poisson_sampling=True)
    rates = [
        from_opacus(history, poisson_sampling=True, steps_in_epoch=steps)[0].sampler.sampling_prob
        for steps in (length, length + 1)
    ]
    assert rates == [drawn_rate(1 / length), drawn_rate(1 / (length + 1))]


def test_every_length_is_found_or_refused():
    """All lengths below 2,000, by the history that Opacus has for them."""
    for length in range(1, 2000):
        history = [(1.0, 1 / int(1 / (1 / length)), 1)]
        try:
            (run,) = from_opacus(history, poisson_sampling=True)
        except InvalidInputError:
            (run,) = from_opacus(history, poisson_sampling=True, steps_in_epoch=length)
        assert run.sampler.sampling_prob == drawn_rate(1 / length)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "rate 0.013, which no loader of make_private has"),
        ({"steps_in_epoch": 77}, "accounted at the rate 0.013, and a loader of the rate 0.0129"),
        ({"steps_in_epoch": 77, "sample_rate": 0.013}, "Only one of"),
        ({"steps_in_epoch": 77.0}, "steps_in_epoch"),
        ({"steps_in_epoch": 0}, "steps_in_epoch"),
        ({"sample_rate": 0.0}, "sample_rate"),
        ({"sample_rate": 1.5}, "sample_rate"),
        ({"sample_rate": 0.0131}, "rate 0.0131 is accounted at"),
    ],
)
def test_a_history_of_another_loader_is_refused(options, named):
    with pytest.raises(InvalidInputError, match=named):
        from_opacus([(1.0, 0.013, 10)], poisson_sampling=True, **options)


def test_accumulated_batches_are_refused_where_the_length_is_known():
    history = [(1.0, 2 / 92, 46)]
    with pytest.raises(InvalidInputError, match=r"of the rate 0\.0108"):
        from_opacus(history, poisson_sampling=True, steps_in_epoch=92)
    with pytest.raises(InvalidInputError, match="which no loader of make_private has"):
        from_opacus([(1.0, 3 / 92, 46)], poisson_sampling=True)


def test_our_accountant_records_the_rate_of_the_loader():
    pytest.importorskip("hockeystick.training.torch")
    accountant, loader, _ = history_of(DataLoader(TensorDataset(torch.zeros(93, 1))), 1.0, name="hockeystick")
    assert accountant.history == [(1.0, loader.sample_rate, 92)]
    assert loader.sample_rate == 1 / 93
    for said in (accountant, accountant.state_dict(), accountant.history):
        (run,) = from_opacus(said, poisson_sampling=True)
        assert run.sampler == hs.Poisson(sampling_prob=drawn_rate(1 / 93), steps=92)
    # Of a loader of 92, the rate alone would leave two lengths; whose history it is says which.
    accountant, *_ = history_of(DataLoader(TensorDataset(torch.zeros(92, 1))), 1.0, name="hockeystick")
    assert from_opacus(accountant, poisson_sampling=True)[0].sampler.sampling_prob == drawn_rate(1 / 92)
    with pytest.raises(InvalidInputError, match="steps_in_epoch"):
        from_opacus(accountant.history, poisson_sampling=True)
