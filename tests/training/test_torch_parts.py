"""The parts by themselves: noise for loops without Opacus, batches, collation, the accountant for Opacus' engine."""

import itertools

import numpy as np
import pytest

import hockeystick as hs
from hockeystick import noise
from hockeystick.errors import InvalidInputError, UnsupportedError

pytest.importorskip("opacus", reason="needs torch and opacus")

import opacus
import torch
from torch.utils.data import DataLoader, TensorDataset

from hockeystick.training import Run
from hockeystick.training.torch.loader import CollateWithEmpty

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

MECHANISM = hs.Mechanism(
    sampler=hs.Poisson(sampling_prob=0.05, steps=12), noise_multiplier=2.0, strategy=hs.BandedSquareRoot(bands=3)
)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
def test_noise_is_the_run_s_rows_in_the_parameters_shapes(device):
    shapes = [(3, 2), (4,), ()]
    parameters = [torch.zeros(shape, device=device, requires_grad=True) for shape in shapes]
    added = hs.torch.Noise.of(MECHANISM, parameters, num_examples=20, rng=np.random.default_rng(0))
    twin = Run(MECHANISM, num_examples=20, shape=11, rng=np.random.default_rng(0))
    for batch in twin.batches():
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        added.add_(batch, clip_norm=0.5)
        flat = torch.cat([parameter.grad.reshape(-1) for parameter in parameters]).cpu()
        assert torch.allclose(flat, 1.0 + 0.5 * torch.from_numpy(twin.noise(batch)), rtol=1e-6)
    assert not added.run.record().violations


WITH_BANDS = {"bands": hs.BandedSquareRoot(bands=6), "bands of the inverse": hs.BandedInverseSquareRoot(bands=6)}


@pytest.mark.parametrize("strategy", [*WITH_BANDS.values(), hs.Identity()], ids=lambda one: one.kind)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("device", DEVICES)
def test_rows_on_a_device_have_the_bits_of_rows_in_memory(device, dtype, strategy):
    """Also from a checkpoint of either, of a replay, and for parameters on the device."""
    mechanism = MECHANISM.model_copy(update={"strategy": strategy, "sampler": hs.Deterministic(bins=30)})
    options = {"num_examples": 30, "shape": 3001, "dtype": dtype}
    places = {"memory": None, "device": hs.torch.OnDevice(device), "replay": noise.Replay()}
    runs = {name: Run(mechanism, rng=np.random.default_rng(7), rows=rows, **options) for name, rows in places.items()}
    for step in range(30):
        rows = {name: run.noise([step]) for name, run in runs.items()}
        assert np.array_equal(rows["device"], rows["memory"])
        assert np.array_equal(rows["replay"], rows["memory"])
        if step == 12:
            states = {name: run.state_dict() for name, run in runs.items()}
            for name, state in states.items():
                runs[f"from {name}"] = Run(mechanism, rows=places["device"], **options)
                runs[f"from {name}"].load_state_dict(state)
            runs["from the device"] = Run(mechanism, **options)
            runs["from the device"].load_state_dict(states["device"])
        assert all(np.array_equal(row, rows["memory"]) for name, row in rows.items() if name.startswith("from"))
    assert sum(name.startswith("from") for name in runs) == 4


@pytest.mark.parametrize("device", DEVICES)
def test_parameters_get_the_rows_of_a_device(device):
    parameters = [torch.zeros(7, device=device), torch.zeros(4, device=device)]
    there = hs.torch.Noise.of(
        MECHANISM, parameters, num_examples=20, rng=np.random.default_rng(0), rows=hs.torch.OnDevice(device)
    )
    twin = Run(MECHANISM, num_examples=20, shape=11, rng=np.random.default_rng(0))
    kept = []
    for batch in twin.batches():
        kept.append((there.next(batch), twin.noise(batch)))
        kept[-1][0][0].mul_(1.0)
    for parts, row in kept:  # what was given out earlier stays as it is
        assert np.array_equal(torch.cat(parts).cpu().numpy(), row)


def test_rows_that_are_not_for_a_device_are_refused():
    for strategy in (hs.BinaryTree(), hs.BufferedToeplitz(buffers=2)):
        mechanism = MECHANISM.model_copy(update={"strategy": strategy})
        with pytest.raises(UnsupportedError, match="strategies with bands"):
            Run(mechanism, num_examples=20, shape=3, rows=hs.torch.OnDevice("cpu"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_noise_is_added_in_the_wider_type(dtype):
    """In place where that is the sum's own, and rounded once to the parameter's."""
    parameter = torch.zeros(11, dtype=dtype, requires_grad=True)
    there = hs.torch.Noise.of(MECHANISM, [parameter], num_examples=20, rng=np.random.default_rng(0))
    twin = Run(MECHANISM, num_examples=20, shape=11, rng=np.random.default_rng(0))
    batch = next(twin.batches())
    parameter.grad = torch.full_like(parameter, 0.375)
    given = parameter.grad
    there.add_(batch, clip_norm=0.5)
    row = torch.from_numpy(twin.noise(batch))
    wide = torch.promote_types(dtype, torch.float32)
    assert torch.equal(parameter.grad, torch.full((11,), 0.375, dtype=wide).add(row, alpha=0.5).to(dtype))
    assert (parameter.grad.data_ptr() == given.data_ptr()) == (dtype != torch.bfloat16)


def test_noise_that_does_not_fit_is_refused():
    run = Run(MECHANISM, num_examples=20, shape=11)
    with pytest.raises(InvalidInputError, match="must have 11 numbers"):
        hs.torch.Noise(run, [torch.zeros(12)])
    with pytest.raises(InvalidInputError, match="at least one trainable parameter"):
        hs.torch.Noise(run, [])
    with pytest.raises(InvalidInputError, match="must have a 'grad'"):
        hs.torch.Noise(run, [torch.zeros(11)]).add_([], clip_norm=1.0)
    assert run.step == 0


def test_batches_of_all_ranks_together_are_the_run_s():
    run = Run(MECHANISM, num_examples=20, shape=None, rng=np.random.default_rng(0))
    ranks = [list(hs.torch.BatchSampler(run, rank=rank, world_size=3)) for rank in range(3)]
    whole = list(hs.torch.BatchSampler(run))
    assert len(whole) == 12
    assert [sorted(itertools.chain(*parts)) for parts in zip(*ranks, strict=True)] == whole


def dictionaries(examples):
    return {"x": torch.stack([x for x, _ in examples]), "rest": [("name", torch.tensor([y for _, y in examples]))]}


@pytest.mark.parametrize("batch_first", [True, False])
def test_batches_without_examples_have_the_structure_of_the_others(batch_first):
    data = TensorDataset(torch.zeros(3, 2, 5), torch.zeros(3, dtype=torch.long))
    x, y = CollateWithEmpty(DataLoader(data), batch_first)([])
    assert x.shape == ((0, 2, 5) if batch_first else (1, 0, 5))
    assert y.shape == (0,)
    assert y.dtype is torch.long
    batch = CollateWithEmpty(DataLoader(data, collate_fn=dictionaries), True)([])
    assert batch["x"].shape == (0, 2, 5)
    assert batch["rest"][0][0].shape == (0,)


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
    assert opacus.PrivacyEngine(accountant="hockeystick").get_epsilon(1e-5) == 0.0


def test_the_accountant_refuses_what_it_cannot_account():
    with pytest.raises(UnsupportedError, match="type 'DataLoader', makes others"):
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
