"""The adaptive optimisers behind Opacus clip and noise what they should, and train as those of numpy do."""

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError, ViolationError
from hockeystick.training import IndependentAdam, ScaledAdam

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

SIGMA, CLIP = 2.0, 1.5
SCALED, INDEPENDENT = hs.torch.ScaledAdam, hs.torch.IndependentAdam
BOTH = pytest.mark.parametrize("kind", [SCALED, INDEPENDENT], ids=["scaled", "independent"])


def mechanism_of(sampler=None):
    sampler = sampler or hs.Poisson(sampling_prob=0.05, steps=40)
    return hs.Mechanism(strategy=hs.BandedSquareRoot(bands=4), sampler=sampler, noise_multiplier=SIGMA)


def whiteness(matrix, rows):
    """As in test_engine.py: more than 8 with a probability below 1e-6 for the noise of the mechanism."""
    white = matrix.dot(rows) / SIGMA
    size = rows.shape[1]
    same = np.eye(len(rows))
    return float(np.abs((white @ white.T - size * same) / np.sqrt(size * (1.0 + same))).max())


def flat(tensors):
    return torch.cat([one.detach().reshape(-1) for one in tensors]).double().cpu().numpy()


def every_step(made, look, largest=None):
    """All of the plan; ``look`` is called after every step that took noise."""
    seen = 0

    def on_step():
        nonlocal seen
        if made.engine.run.step > seen:
            seen += 1
            look()

    while made.engine.run.remaining:
        if largest is None:
            made.epoch(on_step=on_step)
        else:
            made.accumulated_epoch(largest, on_step=on_step)


@pytest.mark.parametrize("largest", [None, 1], ids=["whole", "accumulated"])
@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_the_noise_is_white_in_scaled_coordinates(largest, clipping, training):
    """And in the original ones it is not, once the scales differ. Gradients are zeroed, so moments are of noise."""
    norms = CLIP if clipping == "flat" else [CLIP / 2] * 4  # together CLIP
    made = training(mechanism_of(), width=40, scale=0.0, optimizer_of=SCALED, clipping=clipping, max_grad_norm=norms)
    inner, divisor = made.optimizer.original_optimizer, made.engine.run.expected_batch_size
    scaled: list[np.ndarray] = []
    original: list[np.ndarray] = []
    before = [flat([torch.ones_like(p) for p in made.optimizer.params])]

    def look():
        original.append(made.gradient() * divisor / CLIP)
        scaled.append(original[-1] / before.pop())
        before.append(flat([inner.unscales()[p] for p in made.optimizer.params]))

    every_step(made, look, largest)
    assert whiteness(made.engine.mechanism.matrix, np.array(scaled)) < 8.0
    assert whiteness(made.engine.mechanism.matrix, np.array(original)) > 8.0
    assert not made.engine.record().violations


@pytest.mark.parametrize("largest", [None, 1], ids=["whole", "accumulated"])
def test_the_noise_of_squares_is_that_of_the_same_run(largest, training):
    """Gradients and squares together have the rows of one stream, all of them white under the matrix."""
    made = training(mechanism_of(), width=40, scale=0.0, optimizer_of=INDEPENDENT)
    rows: list[np.ndarray] = []
    size = sum(p.numel() for p in made.model.parameters())
    every_step(made, lambda: rows.append(flat([p.grad for p in made.optimizer.params])), largest)
    assert made.engine.run.size == 2 * size
    assert np.array(rows).shape == (40, 2 * size)
    divisor = made.engine.run.expected_batch_size
    assert whiteness(made.engine.mechanism.matrix, np.array(rows) * divisor / CLIP) < 8.0


@BOTH
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_an_example_adds_at_most_the_clipping_norm(kind, scale, training):
    """Batches of one example: the sums before noise, of gradients in scaled coordinates or with their squares."""
    made = training(mechanism_of(hs.Deterministic(bins=60, epochs=2)), scale=scale, optimizer_of=kind)
    add_noise = made.optimizer.add_noise
    norms = []

    def look():
        norms.append(np.linalg.norm(flat([p.summed_grad for p in made.optimizer.params])))
        add_noise()

    made.optimizer.add_noise = look
    made.run()
    assert len(norms) == 120
    assert max(norms) <= CLIP * (1.0 + 1e-14)
    if scale == 1e4:
        assert max(norms) > CLIP * (0.99 if kind is SCALED else 0.7)


def by_hand(made, twin, adam, numbers):
    """The same training with the optimiser of numpy, the batches and noise of an equal run, one example at a time."""
    data, weights = made.data(), made.weights()
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()
    for batch in twin.batches():
        torch.nn.utils.vector_to_parameters(torch.from_numpy(weights), model.parameters())
        rows = np.zeros((batch.size, weights.size))
        for row, example in zip(rows, batch, strict=True):
            x, y = data[example]
            loss = torch.nn.functional.cross_entropy(model(x[None]), y[None])
            row[:] = flat(torch.autograd.grad(loss, list(model.parameters())))
        if isinstance(adam, ScaledAdam):
            total = hs.training.clipped(rows * adam.scale, CLIP).sum(axis=0)
        else:
            total = adam.contributions(rows).sum(axis=0)
        assert total.shape == (numbers,)
        weights = weights + adam.step((total + CLIP * twin.noise(batch)) / twin.expected_batch_size)
    return weights


@pytest.mark.parametrize("largest", [None, 1], ids=["whole", "accumulated"])
@pytest.mark.parametrize("mode", ["hooks", "functorch"])
@BOTH
def test_training_is_that_of_the_numpy_optimiser(kind, mode, largest, training):
    options = {
        "dtype": torch.float64,
        "noise_dtype": np.float64,
        "grad_sample_mode": mode,
        "optimizer_of": lambda parameters, lr: kind(parameters, lr, betas=(0.8, 0.95), floor=0.3),
    }
    made, twin = training(mechanism_of(), **options), training(mechanism_of(), **options).engine.run
    settings = {"learning_rate": 0.1, "betas": (0.8, 0.95), "floor": 0.3}
    adam = ScaledAdam(**settings) if kind is SCALED else IndependentAdam(clip_norm=CLIP, **settings)
    expected = by_hand(made, twin, adam, made.engine.run.size)
    every_step(made, lambda: None, largest)
    assert np.allclose(made.weights(), expected, rtol=0, atol=1e-4)  # factors leave room for rounding
    assert made.engine.record().commitment == twin.record().commitment


def test_scales_that_are_not_relative_are_those_of_numpy(training):
    made = training(
        mechanism_of(), optimizer_of=lambda parameters, lr: SCALED(parameters, lr, floor=0.3, relative=False)
    )
    inner, adam = made.optimizer.original_optimizer, ScaledAdam(learning_rate=0.1, floor=0.3, relative=False)
    released: list[np.ndarray] = []
    every_step(made, lambda: released.append(made.gradient()))
    for row in released:
        adam.step(row * adam.scale)
    unscales = flat([inner.unscales()[p] for p in made.optimizer.params])
    assert np.allclose(1.0 / unscales, adam.scale, rtol=1e-4)


@BOTH
def test_the_certificate_is_that_of_any_optimizer(kind, training):
    adaptive, plain = (training(mechanism_of(), optimizer_of=one) for one in (kind, None))
    assert adaptive.engine.certificate(1e-5, method="gaussian") == plain.engine.certificate(1e-5, method="gaussian")
    adaptive.epoch()
    plain.epoch()
    assert adaptive.engine.record().checked == plain.engine.record().checked


@BOTH
def test_a_state_resumes(kind, training, tmp_path):
    whole, first, second = (training(mechanism_of(), seed=seed, optimizer_of=kind) for seed in (0, 0, 9))
    whole.run()
    first.epoch()
    first.engine.save_checkpoint(path=tmp_path / "state.pt", module=first.model, optimizer=first.optimizer)
    second.engine.load_checkpoint(path=tmp_path / "state.pt", module=second.model, optimizer=second.optimizer)
    second.run()
    assert np.array_equal(whole.weights(), second.weights())


@BOTH
def test_gradients_that_were_used_are_refused(kind, training):
    """Without zero_grad the next step would sum this one's gradients again; changing them must not hide that.

    A pass that begins in between clears the sums, which would tell otherwise.
    """
    made = training(mechanism_of(hs.Deterministic(bins=20)), optimizer_of=kind)
    x, y = next(iter(made.loader))
    made.criterion(made.model(x), y).backward()
    made.optimizer.step()
    next(iter(made.loader))
    with pytest.raises(ValueError, match="haven't been cleared"):
        made.optimizer.step()
    assert made.engine.run.step == 1


@BOTH
def test_examples_that_are_missing_are_caught(kind, training):
    made = training(mechanism_of(hs.Deterministic(bins=20)), optimizer_of=kind)
    x, y = next(iter(made.loader))
    made.criterion(made.model(x[1:]), y[1:]).backward()
    with pytest.raises(ViolationError, match="number_of_examples"):
        made.optimizer.step()


@BOTH
def test_gradients_without_samples_are_refused(kind, training):
    made = training(mechanism_of(), optimizer_of=kind)
    with pytest.raises(InvalidInputError, match="Per-sample gradients are missing"):
        made.optimizer.step()


class WithPositions(torch.nn.Module):
    """Its embedding of positions is looked up once for the whole batch, so its gradient is that of all examples."""

    def __init__(self):
        super().__init__()
        self.words, self.positions = torch.nn.Embedding(8, 4), torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.head((self.words(x) + self.positions(torch.arange(5)[None])).mean(dim=1))


@BOTH
def test_a_gradient_of_the_whole_batch_is_refused(kind):
    """Spread over the examples it would be in the sum once for each of them."""
    model = WithPositions()
    data = torch.utils.data.TensorDataset(torch.arange(300).reshape(60, 5) % 8, torch.arange(60) % 2)
    model, optimizer, loader = hs.torch.PrivacyEngine(mechanism_of(hs.Deterministic(bins=20))).make_private(
        module=model,
        optimizer=kind(model.parameters()),
        data_loader=torch.utils.data.DataLoader(data),
        max_grad_norm=CLIP,
    )
    x, y = next(iter(loader))
    torch.nn.functional.cross_entropy(model(x), y).backward()
    with pytest.raises(InvalidInputError, match=r"'positions.weight' has gradients of 1 examples"):
        optimizer.step()


def test_what_needs_other_gradients_is_refused(training):
    for kind in (SCALED, INDEPENDENT):
        with pytest.raises(UnsupportedError, match="and ghost clipping has none"):
            training(optimizer_of=kind, grad_sample_mode="ghost")
    with pytest.raises(UnsupportedError, match="IndependentAdam needs flat clipping"):
        training(optimizer_of=INDEPENDENT, clipping="per_layer", max_grad_norm=[1.0] * 4)


def test_second_moments_that_nobody_released_are_refused():
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.ones(2)
    with pytest.raises(InvalidInputError, match="second moments are missing"):
        INDEPENDENT([parameter]).step()
    for kind in (SCALED, INDEPENDENT):
        with pytest.raises(InvalidInputError, match="'floor' argument must be positive"):
            kind([parameter], floor=0.0)
        with pytest.raises(InvalidInputError, match="'lr' argument must be positive"):
            kind([parameter], lr=-0.1)
