"""Clipped gradients are no longer than the clipping norm, as they are in float32: adversarial rows, 4e7 numbers."""

import math
from fractions import Fraction

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError
from hockeystick.training.adaptive import clipped

pytest.importorskip("opacus")

import opacus
import torch
from torch.utils.data import DataLoader, TensorDataset

from hockeystick.training.torch import ghost, guards, norms
from hockeystick.training.torch.accountant import clipped_length

MANY = 40_000_000
MODES = ["flat", "per_layer", "functorch", "ghost"]


def exact(numbers):
    """The norm, by a sum that is rounded once; of a million numbers and more, with 11 bits more than float64 has."""
    flat = np.asarray(numbers).ravel()
    if flat.size < 10**6:
        return math.sqrt(math.fsum((flat.astype(np.float64) ** 2).tolist()))  # squares of float32 are exact
    return math.sqrt(sum(np.sum(piece.astype(np.longdouble) ** 2) for piece in np.array_split(flat, 1000)))


def adversarial(rng, number):
    """One float32 row: equal, of huge range, one large among many tiny, subnormal, or of a norm beside 1."""
    size = int(rng.integers(1, 400))
    row = rng.standard_normal(size)
    kind = number % 6
    if kind == 1:
        row = np.full(size, 10.0 ** rng.uniform(-20, 20))
    elif kind == 2:
        row = row * 10.0 ** rng.uniform(-44, 37, size)
    elif kind == 3:
        row = np.where(np.arange(size) == 0, 1.0, 2.0**-12.5 * np.sign(row))
    elif kind == 4:
        row = row * 2.0**-140
    elif kind == 5:
        row = row / np.linalg.norm(row) * (1.0 + rng.uniform(-3e-7, 3e-7))
    return torch.from_numpy(row.astype(np.float32))


@pytest.mark.parametrize("clip_norm", [2.0**-100, 1e-3, 1.0, 0.1 + 0.2, 7e5])
def test_a_thousand_clipped_rows_are_no_longer_than_the_norm(clip_norm):
    rng, tight = np.random.default_rng(0), 0
    for number in range(1000):
        row = adversarial(rng, number)
        norm = norms.squared_norms(row[None]).sqrt()
        assert float(norm) == pytest.approx(exact(row), rel=1e-13)
        factor = norms.clip_factors(norm, clip_norm, row.numel(), torch.float32)
        length = exact(norms.scaled_sum(row[None], factor))
        assert length <= clip_norm
        short = min(exact(row), clip_norm)
        tight += length >= short * (1.0 - 1e-6)
    assert tight > (800 if clip_norm > 1e-20 else 300)  # but for what is subnormal, factors included


def test_rows_that_are_not_finite_stay_so():
    rows = torch.tensor([[math.inf, 1.0], [math.nan, 1.0], [3e38, 3e38]])
    factors = norms.clip_factors(norms.squared_norms(rows).sqrt(), 1.0, 2, torch.float32)
    assert factors[0] == 0.0
    assert math.isnan(factors[1])
    assert exact(norms.scaled_sum(rows[2:], factors[2:])) == pytest.approx(1.0, abs=1e-6)
    for row in (0, 1):
        total = norms.scaled_sum(rows[row : row + 1], factors[row : row + 1])
        assert not torch.isfinite(total).all()
        assert guards.fault_of([total], 1, 1.0) == "finite_gradients"
    with pytest.raises(InvalidInputError, match="at least"):
        norms.clip_factors(torch.ones(1).double(), 2.0**-101, 2, torch.float32)


def test_pieces_and_types_change_nothing(monkeypatch):
    rows = torch.randn(5, 7, 11, generator=torch.Generator().manual_seed(0))
    whole, factors = norms.squared_norms(rows), torch.rand(5, generator=torch.Generator().manual_seed(1))
    total = norms.scaled_sum(rows, factors)
    assert torch.allclose(total, torch.einsum("i,i...", factors, rows), rtol=1e-5, atol=1e-6)
    narrow = rows.bfloat16()
    assert norms.scaled_sum(narrow, factors).equal(norms.scaled_sum(narrow.float(), factors))
    assert norms.squared_norms(narrow).equal(norms.squared_norms(narrow.double()))
    assert norms.squared_norms(torch.ones(3)).tolist() == [1.0] * 3
    assert norms.squared_norms(torch.ones(2, 0)).tolist() == [0.0] * 2
    monkeypatch.setattr(norms, "PIECE", 40)
    assert torch.allclose(norms.squared_norms(rows), whole, rtol=1e-14)
    assert torch.allclose(norms.scaled_sum(rows, factors), total, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(norms, "FEW", 10)
    assert torch.allclose(norms.scaled_sum(rows, factors), total, rtol=1e-5, atol=1e-6)


def test_coarse_matrix_products_are_not_used():
    """Where matrix products may be made in bfloat16 or TF32, as many training scripts say."""
    rows, factors = torch.full((3, 5000), 1.001), torch.full((3,), 0.3337)
    expected, few = norms.scaled_sum(rows, factors), norms.scaled_sum(rows[:, :9], factors)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert norms.scaled_sum(rows, factors).equal(expected)
        assert norms.scaled_sum(rows[:, :9], factors).equal(few)
    finally:
        torch.set_float32_matmul_precision(before)


class Wide(torch.nn.Module):
    """A layer whose weights all have about the same gradient, and one number for every example."""

    def __init__(self, size):
        super().__init__()
        self.first = torch.nn.Linear(2, 4)
        self.wide = torch.nn.Linear(4, size // 4, bias=False)

    def forward(self, x):
        return self.wide(self.first(x).sigmoid() * 0.0 + 1.0).mean(dim=1) * 1e6


def clipped_by(mode, size, make=None):
    """The norm of the sum of a step on one example, as it is before the noise, and the optimizer."""
    torch.manual_seed(0)
    model, options = Wide(size), {"max_grad_norm": 0.3, "grad_sample_mode": mode, "criterion": torch.nn.MSELoss()}
    if mode == "per_layer":
        options |= {"max_grad_norm": [0.1, 0.1, 0.3], "clipping": mode, "grad_sample_mode": "hooks"}
    elif mode == "flat":
        options["grad_sample_mode"] = "hooks"
    plan = hs.Mechanism(sampler=hs.Deterministic(bins=1), noise_multiplier=1.0)
    engine = hs.torch.PrivacyEngine(plan, rng=np.random.default_rng(0)) if make is None else make()
    data = TensorDataset(torch.ones(1, 2), torch.zeros(1))
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        data_loader=DataLoader(data),
        **options if make is None else options | {"noise_multiplier": 0.0, "poisson_sampling": False},
    )
    model, optimizer, *criterion, loader = made
    criterion, sums, add_noise = (criterion or [torch.nn.MSELoss()])[0], [], optimizer.add_noise

    def look():
        sums.append(exact(torch.cat([p.summed_grad.flatten() for p in optimizer.params])))
        add_noise()

    optimizer.add_noise = look
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    return sums, optimizer, engine


@pytest.mark.parametrize("mode", MODES)
def test_clipped_gradients_of_forty_million_numbers(mode):
    sums, optimizer, _ = clipped_by(mode, MANY)
    assert len(sums) == 1
    assert 0.3 * (1.0 - 2e-6) <= sums[0] <= 0.3
    assert optimizer.run.remaining == 0


def short(function):
    """What is short by a thousandth, in float32."""

    def shortened(tensor, *args, **options):
        found = function(tensor, *args, **options)
        return found * (1.0 - 1e-3) if found.dtype is torch.float32 else found

    return shortened


@pytest.mark.parametrize("mode", [*MODES, "accumulated"])
def test_short_norms_of_torch_do_not_matter(mode, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "norm", short(torch.Tensor.norm))
    monkeypatch.setattr(torch.linalg, "vector_norm", short(torch.linalg.vector_norm))
    if mode == "accumulated":
        parameter = torch.nn.Parameter(torch.zeros(900))
        parameter.grad_sample = [torch.full((1, 900), 2.0), torch.zeros(2, 900)]
        assert exact(guards.clipped_sums([parameter], 0.3)[0]) <= 0.3
        assert exact(guards.clipped_sums([parameter], [0.3])[0]) <= 0.3
        return
    assert max(clipped_by(mode, 4000)[0]) <= 0.3


@pytest.mark.filterwarnings("ignore:Secure RNG turned off")
def test_the_planted_norm_is_noticed_where_opacus_clips(monkeypatch):
    """A control: the test above can fail."""
    monkeypatch.setattr(torch.Tensor, "norm", short(torch.Tensor.norm))
    assert min(clipped_by("flat", 4000, make=opacus.PrivacyEngine)[0]) > 0.3 * 1.0005


def test_opacus_clips_long_rows_too_little():
    """A control on what is guarded against: more than a percent, at equal numbers."""
    row = torch.full((1, MANY), 0.01)
    assert float(row.norm(2, dim=-1)) < 0.99 * exact(row)
    assert guards.fault_of([row * (1.012 / exact(row))], 1, 1.0) == "clipping"
    assert guards.fault_of([row * (1.008 / exact(row))], 1, 1.0) is None


@pytest.mark.parametrize("kind", ["equal", "normal"])
def test_numpy_rows_of_forty_million_numbers(kind):
    row = np.full((1, MANY), 0.01, np.float32)
    if kind == "normal":
        row = np.random.default_rng(0).standard_normal((1, MANY), dtype=np.float32)
    assert 1.0 - 2e-6 <= exact(clipped(row, 1.0)) <= 1.0


def gradient(ins, outs):
    """The exact sums of the tokens' products, each rounded once."""
    ins, outs = ins.double().numpy(), outs.double().numpy()
    return np.array([[math.fsum(outs[:, o] * ins[:, i]) for i in range(ins.shape[1])] for o in range(outs.shape[1])])


def tokens(kind, rng):
    """Inputs and gradients of outputs of one example, in float32."""
    number = int(rng.integers(1, 40))
    ins, outs = rng.standard_normal((number, 6)), rng.standard_normal((number, 5))
    if kind == "cancelling":  # neighbours undo each other, but for rounding
        ins, outs = np.repeat(ins, 2, axis=0), np.repeat(outs, 2, axis=0)
        outs[1::2] *= -1.0 - 10.0 ** rng.uniform(-9, -4)
    elif kind == "wide":
        outs = outs * 10.0 ** rng.uniform(-18, 18, (number, 1))
    return tuple(torch.from_numpy(part.astype(np.float32)) for part in (ins, outs))


@pytest.mark.parametrize("kind", ["random", "cancelling", "wide"])
def test_norms_for_ghost_clipping_are_upper_bounds(kind):
    """On the true gradient, and on that of float32 in several orders of the tokens."""
    rng, layer, below = np.random.default_rng(1), torch.nn.Linear(6, 5), 0
    for _ in range(100):
        ins, outs = tokens(kind, rng)
        bounds = ghost.linear_norms(layer, ins[None], outs[None])
        theirs = opacus.grad_sample.linear.compute_linear_norm_sample(layer, [ins[None]], outs[None])
        true = exact(gradient(ins, outs))
        below += float(theirs[layer.weight]) < true * (1.0 - 1e-3)
        order = torch.from_numpy(rng.permutation(len(ins)))
        for some in (slice(None), order):
            assert exact(outs[some].T @ ins[some]) <= float(bounds[layer.weight])
            assert exact(outs[some].sum(dim=0)) <= float(bounds[layer.bias])
        assert true <= float(bounds[layer.weight])
        length = float((ins.double().norm(dim=1) * outs.double().norm(dim=1)).sum())
        assert float(bounds[layer.weight]) <= true + 1e-5 * length
    assert (below > 20) == (kind == "cancelling")  # so often are norms in float32 short by more than a thousandth


def test_norms_of_embeddings_are_upper_bounds(monkeypatch):
    rng, layer = np.random.default_rng(2), torch.nn.Embedding(7, 5)
    indices = torch.from_numpy(rng.integers(7, size=(30, 12)))
    outs = torch.from_numpy(rng.standard_normal((30, 12, 5)).astype(np.float32))
    indices[:, 1] = indices[:, 0]
    outs[:, 1] = -outs[:, 0] * (1.0 + 2e-7)
    bounds = ghost.embedding_norms(layer, indices, outs)[layer.weight]
    samples = opacus.grad_sample.embedding.compute_embedding_grad_sample(layer, [indices], outs)[layer.weight]
    for bound, index, out, sample in zip(bounds, indices, outs, samples, strict=True):
        one_hot = torch.nn.functional.one_hot(index, 7).float()
        assert max(exact(gradient(out, one_hot)), exact(sample)) <= float(bound) <= exact(sample) * (1.0 + 1e-5)
    monkeypatch.setattr(ghost, "PIECE", 100)
    assert torch.allclose(ghost.embedding_norms(layer, indices, outs)[layer.weight], bounds, rtol=1e-13)


def test_blocks_of_tokens_change_nothing(monkeypatch):
    torch.manual_seed(0)
    layer, ins, outs = torch.nn.Linear(6, 5), torch.randn(4, 2, 9, 6), torch.randn(4, 2, 9, 5)
    whole = ghost.linear_norms(layer, ins, outs)
    monkeypatch.setattr(ghost, "PIECE", 50)
    for parameter, norm in ghost.linear_norms(layer, ins, outs).items():
        assert torch.allclose(norm, whole[parameter], rtol=1e-13)
    with pytest.raises(UnsupportedError, match="tokens per example"):
        ghost._rounding(2**23)


def test_the_norm_of_all_layers_is_rounded_up():
    """Opacus rounds it to float32, whatever the side."""
    optimizer = clipped_by("per_layer", 400)[1]
    squares = sum(Fraction(norm) ** 2 for norm in optimizer.max_grad_norms)
    assert squares <= Fraction(optimizer.norm_of_noise) ** 2 <= squares * (1 + Fraction(1, 10**15))


@pytest.mark.parametrize("mode", ["flat", "ghost"])
def test_the_record_says_how_norms_were_computed(mode):
    record = clipped_by(mode, 400)[2].record()
    assert "norms" in (record.asserted if mode == "ghost" else record.checked)
    assert "no clipped gradient was longer than the clipping norm" in record.meaning("norms")


@pytest.mark.parametrize("size", [10**4, 10**6])
def test_float32_sums_are_not_shorter_than_what_is_charged(size):
    """One after the other, where every square but the first is below half a unit of the sum so far, and is lost."""
    row = np.full(size, 2.0**-12.75, np.float32)
    row[0] = 1.0
    length = math.sqrt(float(np.cumsum(row * row, dtype=np.float32)[-1]))
    assert length == 1.0
    assert 1.0 + size * 2.0**-27 < exact(row) <= norms.float32_excess(size, 1, 1.0)
    assert norms.float32_excess(size, 1, 1.0) <= math.exp(size * 2.0**-25) * (1.0 + 1e-6)


class Clipping:
    """What the accountant looks at of an optimizer of Opacus."""

    def __init__(self, dtype, *sizes):
        self.params = [torch.zeros(size, dtype=dtype) for size in sizes]
        self.max_grad_norm = 1.0


def test_what_opacus_clips_is_charged_for_the_longest_tensor():
    assert clipped_length(Clipping(torch.float32, 10, 10**4)) == pytest.approx(1.0003, abs=3e-6)
    assert clipped_length(Clipping(torch.float32, 10**6)) == pytest.approx(1.0303, abs=1e-4)
    with pytest.raises(UnsupportedError, match=r"norms in torch\.bfloat16"):
        clipped_length(Clipping(torch.bfloat16, 10))
    half = Clipping(torch.float32, 10)
    half.params[0].grad_sample = torch.zeros(1, 10, dtype=torch.float16)
    with pytest.raises(UnsupportedError, match=r"norms in torch\.float16"):
        clipped_length(half)
    made = object.__new__(opacus.optimizers.DPOptimizerFastGradientClipping)
    made.original_optimizer = torch.optim.SGD([torch.zeros(3, requires_grad=True)], lr=0.1)
    with pytest.raises(UnsupportedError, match="products of tokens in float32"):
        clipped_length(made)
