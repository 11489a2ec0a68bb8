"""Exact sums of a model of ``fully_shard``, in one process: layer by layer, with the bits of gradients in memory."""

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError, ViolationError

pytest.importorskip("opacus", reason="needs torch and opacus")

import shards_on_a_cpu
import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, TensorDataset

from hockeystick.training.torch import exact_shards
from hockeystick.training.torch.exact_sums import add_within
from hockeystick.training.torch.shards import check_reductions

pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"), shards_on_a_cpu.needed]

MECHANISM = hs.Mechanism(
    strategy=hs.BandedSquareRoot(bands=3),
    sampler=hs.Poisson(sampling_prob=0.4, steps=5),
    noise_multiplier=2.0,
    exact=True,
)
EXAMPLES, ROWS, CLIP = 100, 32, 0.4


class Shifted(torch.nn.Module):
    """A layer that Opacus has no rule for, and takes gradients of by functorch."""

    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 16))

    def forward(self, x):
        return x + self.shift


@pytest.fixture(scope="module")
def mesh():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


def private(mesh, spoil=(), wrap_model=True, **options):
    """Engine, model, optimizer, criterion and loader; in whole tensors without a mesh."""
    torch.manual_seed(0)
    tokens, labels = torch.randint(0, 30, (EXAMPLES, 4)), torch.randint(3, (EXAMPLES,))
    scales = torch.ones(EXAMPLES, 1)
    scales[list(spoil)] = torch.nan
    model = torch.nn.ModuleDict(
        {
            "vectors": torch.nn.Embedding(30, 16),
            "shifted": Shifted(),
            "norm": torch.nn.LayerNorm(16),
            "out": torch.nn.Linear(16, 3),
        }
    )

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, tokens, scale):
            inner = self.parts["shifted"](self.parts["vectors"](tokens).sum(dim=1) * scale)
            return self.parts["out"](self.parts["norm"](inner))

    net = Net()
    if mesh is not None:
        for name in ("vectors", "norm", "out"):  # torch cannot copy a shard of its own, as functorch would
            fully_shard(model[name], mesh=mesh)
        net = fully_shard(net, mesh=mesh)
    engine = hs.torch.PrivacyEngine(MECHANISM, rng=np.random.default_rng(4), physical_batch_size=ROWS, **options)
    criterion = torch.nn.CrossEntropyLoss()
    made = engine.make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=DataLoader(TensorDataset(tokens, scales, labels)),
        max_grad_norm=CLIP,
        criterion=criterion,
        grad_sample_mode="hooks" if mesh is None else "ghost_fsdp",
        wrap_model=wrap_model,
    )
    return engine, made[0] if wrap_model else net, made[1], criterion if mesh is None else made[2], made[-1]


def sums_of(engine, model, optimizer, criterion, loader):
    """All of ``p.grad`` after every step of the run."""
    rows = []
    while engine.run.remaining:
        for tokens, scale, labels in loader:
            optimizer.zero_grad()
            criterion(model(tokens, scale), labels).backward()
            before = engine.run.step
            optimizer.step()
            if engine.run.step > before:
                whole = [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in optimizer.params]
                rows.append(torch.cat([grad.reshape(-1) for grad in whole]).numpy().copy())
    return np.array(rows)


@pytest.mark.parametrize("spoil", [(), range(0, EXAMPLES, 7)])
def test_layer_by_layer_gives_the_same_whole_numbers(spoil, mesh):
    """With an embedding, a normalisation and a layer without a rule; examples that are not finite count as zero."""
    rows = sums_of(*private(None, spoil))
    assert rows.shape == (5, 30 * 16 + 16 + 32 + 51)
    assert np.isfinite(rows).all()
    assert np.array_equal(rows, sums_of(*private(mesh, spoil)))


def test_a_model_that_is_not_wrapped_is_trained_alike(mesh):
    assert np.array_equal(sums_of(*private(mesh)), sums_of(*private(mesh, wrap_model=False)))


def test_gradients_without_noise_are_nowhere_after_a_backward_pass(mesh):
    engine, model, optimizer, criterion, loader = private(mesh)
    tokens, scale, labels = next(iter(loader))
    criterion(model(tokens, scale), labels).backward()
    assert all(p.grad is None for p in optimizer.params)
    assert not engine.run.step


def test_one_physical_batch_is_one_backward_pass_and_zero_grad_throws_it_away(mesh):
    whole = sums_of(*private(mesh))
    engine, model, optimizer, criterion, loader = private(mesh)
    rows = []
    while engine.run.remaining:
        for tokens, scale, labels in loader:
            criterion(model(tokens, scale), labels).backward()
            with pytest.raises(InvalidInputError, match=r"takes one backward pass, and then one optimizer.step\(\)"):
                (criterion(model(tokens, scale), labels) * 1.0).backward()
            for part in optimizer.places:  # what the refused pass left in the hooks
                part.activations.clear()
                part._forward_counter = 0
            optimizer.zero_grad()
            criterion(model(tokens, scale), labels).backward()
            before = engine.run.step
            optimizer.step()
            if engine.run.step > before:
                rows.append(torch.cat([p.grad.full_tensor().reshape(-1) for p in optimizer.params]).numpy().copy())
    assert np.array_equal(rows, whole)


def test_a_step_without_a_backward_pass_or_of_other_rows_is_refused(mesh):
    _, model, optimizer, criterion, loader = private(mesh)
    tokens, scale, labels = next(iter(loader))
    with pytest.raises(InvalidInputError, match="Sums of whole numbers are missing"):
        optimizer.step()
    criterion(model(tokens[:5], scale[:5]), labels[:5]).backward()
    with pytest.raises(InvalidInputError, match=r"must be of all 32 rows of a physical batch\. Got 5"):
        optimizer.step()


def test_a_physical_batch_that_was_left_out_ends_the_run(mesh):
    _, model, optimizer, criterion, loader = private(mesh)

    def steps():
        for at, (tokens, scale, labels) in enumerate(loader):
            if at:
                optimizer.zero_grad()
                criterion(model(tokens, scale), labels).backward()
                optimizer.step()

    with pytest.raises(ViolationError, match="batches_in_step"):
        steps()


def test_the_audit_is_one_of_hooks(mesh):
    audited = hs.audit.invariance(
        torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss(), (torch.ones(4), torch.tensor(1)), batch=ROWS
    )
    engine, *_ = private(mesh, invariance=audited)
    assert "invariance_audited" in engine.record().checked
    with pytest.raises(InvalidInputError, match="with batch=32 and grad_sample_mode='hooks'"):
        private(mesh, invariance=audited.model_copy(update={"mode": "functorch"}))


@pytest.mark.parametrize("add", [add_within, exact_shards._add_within])
def test_integers_that_do_not_fit_are_left_out(add, device):
    """Whatever the factors are: the squares of all that is added are within K^2, example by example."""
    steps, scales = 2**20, torch.full((3,), 2.0**20, dtype=torch.float64, device=device)
    left = torch.full((3,), steps * steps, dtype=torch.int64, device=device)
    tensors = [[[0.6, 0.0], [1.0, 0.0], [0.0, 0.5]], [[0.9, 0.0], [0.0, 0.1], [0.5, 0.0]], [[0.0, 0.7]] * 3]
    kept = [[[1, 1], [1, 0], [1, 1]], [[0, 0], [0, 0], [1, 1]], [[1, 1], [0, 0], [1, 1]]]
    for rows, own in zip(tensors, kept, strict=True):
        total = torch.zeros(2, dtype=torch.int64, device=device)
        left = add(torch.tensor(rows, device=device), total, scales, steps, left)
        whole = (torch.tensor(rows).double() * steps).trunc().long() * torch.tensor(own)
        assert torch.equal(total.cpu(), whole.sum(dim=0))
    assert (left >= 0).all()
    spent = [0.6**2 + 0.7**2, 1.0, 0.5**2 + 0.5**2 + 0.7**2]
    assert np.allclose(1.0 - left.cpu().numpy() / steps**2, spent, atol=1e-5)


def test_a_second_pass_that_gives_no_numbers_adds_nothing(device):
    """A NaN in 64 bits is the least whole number, whose square is 0 modulo 2^64."""
    steps, total = 2**20, torch.zeros(2, dtype=torch.int64, device=device)
    rows = torch.tensor([[torch.nan, 0.5], [torch.inf, 0.0], [-torch.inf, 0.0], [0.25, 0.5]], device=device)
    scales = torch.full((4,), 2.0**20, dtype=torch.float64, device=device)
    whole = torch.full((4,), steps * steps, dtype=torch.int64, device=device)
    left = add_within(rows, total, scales, steps, whole)
    assert total.tolist() == [2**18, 2**20]
    assert left.tolist() == [steps**2 * 3 // 4, 0, 0, steps**2 * 11 // 16]


@pytest.mark.parametrize("exact", [True, False])
def test_a_parameter_of_two_layers_is_refused(exact, mesh):
    """Its gradient may be longer than the root of the sum of the squares of its parts, which is all that is known."""
    model = torch.nn.Sequential(torch.nn.Embedding(30, 16), torch.nn.Flatten(), torch.nn.Linear(16, 30, bias=False))
    model[2].weight = model[0].weight
    sharded = fully_shard(model, mesh=mesh)
    with pytest.raises(UnsupportedError, match=r"'0.weight' is '2.weight' as well, .* untie them"):
        made_private(sharded, exact=exact)


@pytest.mark.parametrize("wrap_model", [True, False])
@pytest.mark.parametrize("exact", [True, False])
def test_a_layer_that_is_used_twice_is_named(exact, wrap_model, mesh):
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.out = torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.out(self.inner(self.inner(x)))

    net = fully_shard(Twice(), mesh=mesh)
    made = made_private(net, exact=exact, wrap_model=wrap_model)
    with pytest.raises(
        UnsupportedError,
        match=r"^The layer 'inner', or another with its parameters, has run before in this pass, .*\.$",
    ):
        (made[0] if wrap_model else net)(torch.zeros(2, 4))


def made_private(net, *, exact, **options):
    """What the engine makes of a model that is shared out, with ghost clipping."""
    return hs.torch.PrivacyEngine(MECHANISM.model_copy(update={"exact": exact})).make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        data_loader=DataLoader(TensorDataset(torch.zeros(EXAMPLES, 4))),
        max_grad_norm=CLIP,
        criterion=torch.nn.CrossEntropyLoss(),
        grad_sample_mode="ghost_fsdp",
        **options,
    )


def reduced(mesh, factor=None, *, exact=False, **policy):
    """The optimizer for a layer whose gradients are added up over the processes in some way, and that layer."""
    layer = fully_shard(torch.nn.Linear(4, 3), mesh=mesh, mp_policy=MixedPrecisionPolicy(**policy))
    net = fully_shard(torch.nn.Sequential(layer), mesh=mesh)
    if factor is not None:
        layer.set_gradient_divide_factor(factor)
    _, optimizer, *_ = made_private(net, exact=exact)
    return optimizer, layer


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduce_dtype": torch.bfloat16}, r"added up in torch\.bfloat16 in '0'"),
        ({"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}, r"computed and added up in torch\.bfloat16"),
        ({"output_dtype": torch.bfloat16}, r"added up in torch\.bfloat16 in '0'"),
        ({"factor": 1.0}, r"must be means over the processes, .* set_gradient_divide_factor\(1\.0\)"),
    ],
    ids=["reduced", "computed", "outputs", "scaled"],
)
def test_sums_over_processes_that_are_rounded_or_scaled_before_the_noise_are_refused(options, message, mesh):
    """Whole numbers are not: they are added up by other means. A factor of 1, of two processes, halves the noise."""
    with pytest.raises(UnsupportedError, match=message):
        reduced(mesh, **options)
    reduced(mesh, exact=True, **options)


def test_outputs_of_a_model_whose_parameters_are_all_those_of_its_layers_are_not_rounded(mesh):
    """Or the second backward pass would give clipped gradients that are too long: by .65 percent, of one layer."""
    policy = MixedPrecisionPolicy(output_dtype=torch.bfloat16)
    whole = fully_shard(torch.nn.Sequential(fully_shard(torch.nn.Linear(4, 3), mesh=mesh)), mesh=mesh, mp_policy=policy)
    with pytest.raises(UnsupportedError, match=r"in torch\.bfloat16 in ''"):
        check_reductions(whole)


def test_sums_that_are_scaled_later_are_refused_at_the_next_step(mesh):
    optimizer, layer = reduced(mesh, reduce_dtype=torch.float32)
    layer.set_gradient_divide_factor(0.5)
    with pytest.raises(UnsupportedError, match=r"set_gradient_divide_factor\(0\.5\)"):
        optimizer.step()
