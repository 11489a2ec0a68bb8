"""The parts by themselves: noise for loops without Opacus, batches, collation, the accountant for Opacus' engine."""

import itertools

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import CannotCertifyError, InvalidInputError, UnsupportedError, ViolationError

pytest.importorskip("opacus", reason="needs torch and opacus")

import opacus
import torch
from torch.utils.data import DataLoader, TensorDataset

from hockeystick.training import Run
from hockeystick.training.torch import norms
from hockeystick.training.torch.accountant import generators_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

MECHANISM = hs.Mechanism(
    sampler=hs.Poisson(sampling_prob=0.05, steps=12), noise_multiplier=2.0, strategy=hs.BandedSquareRoot(bands=3)
)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sums_in_narrow_types_are_refused_before_a_step_is_taken(dtype):
    parameter = torch.nn.Parameter(torch.zeros(4, dtype=dtype))
    noise = hs.torch.Noise.of(MECHANISM, [parameter], num_examples=60)
    parameter.grad = torch.zeros_like(parameter)
    with pytest.raises(UnsupportedError, match=f"Sums of gradients in {dtype} are rounded by more"):
        noise.add_(next(noise.run.batches()), clip_norm=0.5)
    assert noise.run.step == 0


def test_noise_is_the_run_s_rows_in_the_parameters_shapes(device):
    shapes = [(3, 2), (4,), ()]
    parameters = [torch.zeros(shape, device=device, requires_grad=True) for shape in shapes]
    noise = hs.torch.Noise.of(MECHANISM, parameters, num_examples=20, rng=np.random.default_rng(0))
    twin = Run(MECHANISM, num_examples=20, shape=11, rng=np.random.default_rng(0))
    for batch in twin.batches():
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 0.1 * len(batch))
        noise.add_(batch, clip_norm=0.5)
        flat = torch.cat([parameter.grad.reshape(-1) for parameter in parameters]).cpu()
        assert torch.allclose(flat, 0.1 * len(batch) + 0.5 * torch.from_numpy(twin.noise(batch)), rtol=1e-6)
    assert not noise.run.record().violations


def test_noise_that_does_not_fit_is_refused():
    run = Run(MECHANISM, num_examples=20, shape=11)
    with pytest.raises(InvalidInputError, match="must have 11 numbers"):
        hs.torch.Noise(run, [torch.zeros(12)])
    with pytest.raises(InvalidInputError, match="at least one trainable parameter"):
        hs.torch.Noise(run, [])
    with pytest.raises(InvalidInputError, match="must have a 'grad'"):
        hs.torch.Noise(run, [torch.zeros(11)]).add_([], clip_norm=1.0)
    assert run.step == 0


@pytest.mark.parametrize("entry", [0.6, float("nan"), float("inf")])
def test_sums_that_were_not_clipped_are_caught(entry):
    """One number a gradient: the sum over n examples is at most n clipping norms."""
    parameter = torch.zeros(1, requires_grad=True)
    noise = hs.torch.Noise.of(MECHANISM, [parameter], num_examples=20, rng=np.random.default_rng(0))
    batch = next(noise.run.batches())
    parameter.grad = torch.full((1,), entry * len(batch) + 0.01)
    promise = "clipping" if np.isfinite(entry) else "finite_gradients"
    with pytest.raises(ViolationError, match=f"'{promise}'"):
        noise.add_(batch, clip_norm=0.5)
    assert noise.run.record().violations == (promise,)


def test_batches_of_all_ranks_together_are_the_run_s():
    run = Run(MECHANISM, num_examples=20, shape=None, rng=np.random.default_rng(0))
    ranks = [list(hs.torch.BatchSampler(run, rank=rank, world_size=3)) for rank in range(3)]
    whole = list(hs.torch.BatchSampler(run))
    assert len(whole) == 12
    assert [sorted(itertools.chain(*parts)) for parts in zip(*ranks, strict=True)] == whole


def opacus_run(steps=None, **options):
    """Opacus' own engine with our accountant, for one epoch of batches of 3 of 60 examples."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(60, 6), torch.randint(3, (60,)))
    model = torch.nn.Linear(6, 3)
    engine = opacus.PrivacyEngine(accountant="hockeystick")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=3),
        **{"noise_multiplier": 1.5, "max_grad_norm": 1.0} | options,
    )
    for at, (x, y) in enumerate(loader):
        if at == steps:
            optimizer.noise_multiplier = 3.0
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return engine


def test_the_accountant_of_opacus_own_engine_is_certified():
    engine = opacus_run()
    exact = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=20), noise_multiplier=1.5)
    true = hs.certify(exact, delta=1e-5).epsilon
    assert len(engine.accountant) == 20
    assert true.lower <= engine.get_epsilon(1e-5) <= true.upper * 1.0001
    assert engine.accountant.excess == norms.float32_excess(18, 2, 1.0)
    charged = hs.Mechanism(sampler=exact.sampler, noise_multiplier=1.0)
    engine.accountant.excess = 1.5
    assert engine.get_epsilon(1e-5) >= hs.certify(charged, delta=1e-5).epsilon.lower
    assert opacus.PrivacyEngine(accountant="hockeystick").get_epsilon(1e-5) == 0.0


def test_the_accountant_refuses_what_it_cannot_account():
    with pytest.raises(UnsupportedError, match="type 'DataLoader', makes other batches"):
        opacus_run(poisson_sampling=False)
    with pytest.raises(UnsupportedError, match="changed during the run, 1 time"):
        opacus_run(steps=5).get_epsilon(1e-5)
    with pytest.raises(UnsupportedError, match="type 'NoneType'"):
        hs.torch.Accountant().get_optimizer_hook_fn(0.05)


def test_the_state_of_the_accountant_resumes():
    engine = opacus_run()
    accountant = hs.torch.Accountant()
    accountant.load_state_dict(engine.accountant.state_dict())
    assert accountant.get_epsilon(1e-5) == engine.get_epsilon(1e-5)
    assert accountant.excess == engine.accountant.excess > 1.0
    with pytest.raises(InvalidInputError, match="'excess' entry"):
        accountant.load_state_dict({"history": [], "mechanism": "hockeystick"})
    assert accountant.generators == engine.accountant.generators == {"torch-cpu-float32", "torch-cpu-small"}
    state = engine.accountant.state_dict()
    del state["generators"]  # as versions before it wrote
    accountant.load_state_dict(state)
    assert accountant.generators == set()


def test_the_accountant_refuses_a_delta_below_the_floor_of_the_noise_that_it_saw():
    engine = opacus_run(noise_multiplier=0.4)
    with pytest.raises(CannotCertifyError, match="too small for the noise of 'torch-cpu-float32'"):
        engine.get_epsilon(1e-5)
    exact = hs.Mechanism(sampler=hs.Poisson(sampling_prob=0.05, steps=20), noise_multiplier=0.4)
    least = hs.noise.floor(exact, "torch-cpu-float32")
    assert least > 1e-5
    assert engine.get_epsilon(1.01 * least) > 0.0
    assert engine.accountant.get_epsilon(1e-5, generator=None) > 0.0


def test_the_noise_of_an_optimizer_is_named_by_device_type_and_size():
    def of(*shapes, kind=opacus.optimizers.DPOptimizer, dtype=torch.float32, **options):
        parameters = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]
        for parameter in parameters:
            parameter.grad_sample = torch.zeros(1)
        inner = torch.optim.SGD(parameters, lr=0.1)
        return generators_of(kind(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=1, **options))

    assert of((4, 4)) == {"torch-cpu-float32"}
    assert of((3, 5)) == {"torch-cpu-small"}
    assert of((4, 4), dtype=torch.float64) == {"torch-cpu-float64"}
    assert of((4, 4), dtype=torch.bfloat16) == {"torch-cpu-bfloat16"}
    assert of((3, 5), dtype=torch.bfloat16) == set()
    assert of((4, 4), secure_mode=True) == {"opacus-secure-cpu"}
    per_layer = opacus.optimizers.perlayeroptimizer.DPPerLayerOptimizer
    assert generators_of(object.__new__(per_layer)) == set()  # no layer moves by the whole clipping norm
