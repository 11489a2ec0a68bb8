"""Small runs with exact sums, and what their gradients have to be, from whole numbers by numpy."""

from fractions import Fraction

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import hockeystick as hs
from hockeystick.training import Run, exact_sum

MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=3),
    sampler=hs.Poisson(sampling_prob=0.12, steps=12),
    noise_multiplier=2.0,
    exact=True,
)
CLIP = 1.5
DATA = np.random.default_rng(0).normal(size=(40, 7)).astype(np.float32) * np.linspace(0.01, 3.0, 40)[:, None]
DATA = DATA.astype(np.float32)


class Sum(torch.nn.Module):
    """Its gradient for an example is the example, exactly, in two parameters."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 1, bias=False), torch.nn.Linear(3, 1, bias=False)

    def forward(self, x):
        return self.first(x[:, :4]) + self.second(x[:, 4:])


def engine_of(mechanism=MECHANISM, seed=0, **options):
    return hs.torch.PrivacyEngine(mechanism, rng=np.random.default_rng(seed), **options)


def made(engine, model=None, data=None, loader=None, **options):
    """What ``make_private`` returns, for losses that are summed."""
    model = Sum() if model is None else model
    data = TensorDataset(torch.from_numpy(DATA)) if data is None else data
    settings = {"max_grad_norm": CLIP, "loss_reduction": "sum"} | options
    return engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, **(loader or {})),
        **settings,
    )


def steps_of(model, optimizer, loader, left_out=()):
    """A pass of an ordinary loop, without some of its batches."""
    for at, (x,) in enumerate(loader):
        if at not in left_out:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()


def gradients_of(engine, model, optimizer, loader, on_batch=lambda x: None, parts=1):
    """All of ``p.grad`` after each step of the run, until it ends."""
    rows = []
    while engine.run.remaining:
        for (x,) in loader:
            optimizer.zero_grad()
            on_batch(x)
            for part in x.chunk(parts):
                model(part).sum().backward()
            before = engine.run.step
            optimizer.step()
            if engine.run.step > before:
                rows.append(torch.cat([p.grad.reshape(-1) for p in optimizer.params]).numpy().copy())
    return np.array(rows)


def expected(data=DATA, layers=None, divisor=1.0, mechanism=MECHANISM, rho=0.0):
    """The same from whole numbers by numpy: sums of examples, the noise of a twin, and one division."""
    twin = Run(mechanism, num_examples=40, shape=7, rng=np.random.default_rng(0))
    steps = int(twin.norm_steps / (1 + Fraction(rho)))
    rows = []
    for batch in twin.batches():
        examples = data[batch]
        if layers is None:
            [total] = exact_sum(examples, CLIP, steps) if len(batch) else [np.zeros(7, np.int64)]
        else:
            total = np.zeros(7, np.int64)
            for example in examples:
                total += by_layers(example, layers, steps)
        noisy = (total + twin.noise(batch)).astype(np.float64)
        rows.append((noisy * (CLIP / (steps * divisor))).astype(np.float32))
    return np.array(rows)


def by_layers(example, norms, steps):
    """The integers of one example, each layer in the grid of both."""
    from hockeystick.training.exact_sums import add_clipped, layer_steps

    total = np.zeros(7, np.int64)
    for part, of_layer in zip((slice(0, 4), slice(4, 7)), layer_steps(norms, steps), strict=True):
        add_clipped([example[None, part].copy()], [total[part]], steps / np.nextafter(np.hypot(*norms), 9.0), of_layer)
    return total


def train(engine, model, optimizer, loader, path=None, until=None):
    """Dropout-free training that is saved at a step, or not."""
    while engine.run.remaining:
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            if path is not None and engine.run.step == until:
                engine.save_checkpoint(path=path, module=model, optimizer=optimizer)
                return
    return


def classifier(engine, **options):
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(40, 6), torch.randint(3, (40,)))
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    return made(engine, model, data, loss_reduction="mean", **options)


def weights_of(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
