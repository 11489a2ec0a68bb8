"""Opacus: its loaders, the privacy that its engine reports for them, and the noise of its optimizer."""

import tempfile
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler
from torch import distributed
from torch.utils.data import DataLoader, TensorDataset

import hockeystick as hs
from benchmarks.audited import NUMBERS, ROWS, SIGMA, SIZE, Case, Outcome, of_batches, of_noise, of_steps

DISTRIBUTION = "opacus"
POISSON = hs.Poisson(sampling_prob=0.05, steps=100)
DATA = TensorDataset(torch.zeros(SIZE, 3), torch.zeros(SIZE, dtype=torch.long))


def seeded(seed: int) -> torch.Generator:
    """A generator of torch."""
    return torch.Generator().manual_seed(seed)


def poisson() -> Outcome:
    """Two runs of five passes of the loader for Poisson sampling."""
    return of_batches(
        lambda run: hs.audit.batches_of(DPDataLoader(DATA, sample_rate=0.05, generator=seeded(run)), epochs=5),
        POISSON,
    )


def shuffled() -> Outcome:
    """A loader with shuffle in an engine whose accountant assumes Poisson sampling, on a model of six numbers."""
    sigma, batch, delta = 0.8, 10, 1e-5
    engine = PrivacyEngine()
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, optimizer, loader = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(DATA, batch_size=batch, shuffle=True, generator=seeded(0)),
            noise_multiplier=sigma,
            max_grad_norm=1.0,
            poisson_sampling=False,
        )
        batches = list(hs.audit.batches_of(loader))
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        reported = engine.get_epsilon(delta)
    steps = len(loader)
    verdict = of_batches(iter(batches), hs.Poisson(sampling_prob=1.0 / steps, steps=steps))
    certificate = hs.certify(
        hs.Mechanism(sampler=hs.Shuffle(batch_size=batch, bins=steps), noise_multiplier=sigma), delta=delta
    )
    poisson = hs.certify(
        hs.Mechanism(sampler=hs.Poisson(sampling_prob=1.0 / steps, steps=steps), noise_multiplier=sigma), delta=delta
    )
    lower = certificate.epsilon.lower
    assert lower is not None
    figures = {
        "sigma": f"{sigma:g}",
        "batch": f"{batch}",
        "steps": f"{steps}",
        "size": f"{SIZE:,}",
        "delta": f"{delta:g}",
        "reported": f"{reported:.2f}",
        "lower": f"{lower:.2f}",
        "upper": f"{certificate.epsilon.upper:.2f}",
        "poisson": f"{poisson.epsilon.upper:.2f}",
        "warned": "no warning" if not any("oisson" in str(warning.message) for warning in caught) else "a warning",
    }
    says = f"{verdict.says}; epsilon reported as {reported:.2f}, and at least {lower:.2f}"
    return Outcome(verdict.found and reported < lower, says, figures)


def lengths() -> Outcome:
    """Loaders of 1 to 1000 batches, turned into loaders for Poisson sampling."""
    short = [
        number
        for number in range(1, 1001)
        if len(DPDataLoader.from_data_loader(DataLoader(TensorDataset(torch.zeros(number)), batch_size=1))) != number
    ]
    figures = {"short": f"{len(short)}", "least": f"{short[0]}" if short else "none"}
    return Outcome(bool(short), f"{len(short)} of the lengths from 1 to 1000 lose a batch", figures)


def resolution() -> Outcome:
    """All numbers that torch can draw, counted below the rate; that it draws no others is checked on a million."""
    draws = torch.rand(1_000_000, generator=seeded(0))
    grid = torch.arange(2**24, dtype=torch.float32) / 2**24
    assert bool(((draws * 2**24) % 1 == 0).all())
    excess = {rate: int((grid < rate).sum()) / 2**24 / rate - 1.0 for rate in (1e-2, 1e-4, 1e-6, 1e-7)}
    figures = {f"at{index}": f"{100 * share:.2g}" for index, share in enumerate(excess.values())}
    return Outcome(excess[1e-6] > 0.01, f"the rate 1e-06 is {100 * excess[1e-6]:.1f} percent too large", figures)


def between_processes() -> Outcome:
    """The sampler for several processes, in one of one; batches of an example or none."""
    with tempfile.TemporaryDirectory() as folder:
        distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        try:
            source = DistributedUniformWithReplacementSampler(
                total_size=20, sample_rate=0.05, steps=100, generator=seeded(0)
            )
            batches = [batch.tolist() for batch in source]
        finally:
            distributed.destroy_process_group()
    outcome = of_batches(iter(batches), hs.Poisson(sampling_prob=0.05, steps=100), size=20)
    return Outcome(outcome.found, f"{len(batches)} batches where 100 were asked for", {"made": f"{len(batches)}"})


def rows(dtype: torch.dtype) -> Iterator[np.ndarray]:
    """What the optimizer adds to gradients of zero, in clipping norms."""
    parameter = torch.nn.Parameter(torch.zeros(NUMBERS, dtype=dtype))
    optimizer = DPOptimizer(
        torch.optim.SGD([parameter], lr=0.1),
        noise_multiplier=SIGMA,
        max_grad_norm=0.5,
        expected_batch_size=8,
        generator=seeded(1),
    )
    for _ in range(ROWS):
        parameter.grad_sample = torch.zeros(1, NUMBERS, dtype=dtype)
        optimizer.step()
        yield parameter.grad.double().numpy() * 8 / 0.5
        optimizer.zero_grad()


CASES = {
    "opacus-poisson": Case("DPDataLoader", "Poisson, q = 0.05", poisson),
    "opacus-noise": Case("DPOptimizer, float32", "white noise", lambda: of_noise(rows(torch.float32), of_steps())),
    "opacus-noise-bfloat16": Case(
        "DPOptimizer, bfloat16 on a CPU", "white noise", lambda: of_noise(rows(torch.bfloat16), of_steps())
    ),
    "opacus-shuffle": Case(
        "PrivacyEngine.make_private(poisson_sampling=False) with a loader that shuffles",
        "Poisson, as its accountant assumes",
        shuffled,
        deviates=True,
        means="The batches are a shuffle, and the engine's accountant computes the privacy of Poisson sampling. One "
        "epoch of {size} examples in {steps} batches of {batch} with noise multiplier {sigma}: "
        "`get_epsilon(delta={delta})` returns {reported}, with {warned} about sampling (the certified epsilon "
        "of Poisson sampling is {poisson}), while the shuffle has an epsilon of at least {lower} and at most "
        "{upper} (zero-out adjacency; certified on both sides). Keep `poisson_sampling=True`, the default, or "
        "account for the shuffle. The option's documentation says that `False` does not fit the assumptions of "
        "the accounting, and that it can be a good approximation; here it is none (see also arXiv 2411.10614).",
    ),
    "opacus-lengths": Case(
        "DPDataLoader.from_data_loader",
        "as many batches as the loader that it replaces",
        lengths,
        deviates=True,
        means="The number of batches is `int(1 / (1 / length))`, which rounds down by one for {short} lengths from 1 "
        "to 1000, the least of them {least}. Such a pass has a batch fewer than an epoch. The accountant counts the "
        "steps that are made, at the inverse of their number, a rate above the one that is drawn: its epsilon is too "
        "large, not too small, and a lower bound for its rate would be wrong.",
    ),
    "opacus-resolution": Case(
        "UniformWithReplacementSampler",
        "Poisson with the rate that is accounted for",
        resolution,
        deviates=True,
        means="Coins are numbers of 24 bits that are compared with the rate, so that the true rate is the next "
        "multiple of 2^-24 above it. It is too large by {at0} percent at a rate of 1e-2, by {at1} percent at "
        "1e-4, by {at2} percent at 1e-6 and by {at3} percent at 1e-7, and the accountant knows the smaller one. "
        "This matters only where an example is drawn less often than once in a hundred thousand batches.",
    ),
    "opacus-distributed": Case(
        "DistributedUniformWithReplacementSampler",
        "Poisson, q = 0.05, 20 examples, 100 batches",
        between_processes,
        deviates=True,
        means="A process skips its empty batches: {made} of 100 are made here. Processes that skip different batches "
        "disagree about the number of steps, and a single process reveals by the number of its steps how many "
        "batches were empty, which no analysis of Poisson sampling covers. `UniformWithReplacementSampler`, for "
        "one process, keeps empty batches. The chance of an empty local batch is (1 - q)^n for n local "
        "examples, which is small when batches have tens of examples.",
    ),
}
