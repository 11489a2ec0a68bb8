"""What the engine cannot make private it refuses, in one sentence that says what to change."""

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


class Stream(IterableDataset):
    """Examples without an end."""

    def __iter__(self):
        yield torch.zeros(6), 0


class Lengthless(Dataset):
    """Examples by index, and nobody knows how many."""

    def __getitem__(self, index):
        return torch.zeros(6), 0


def data_of(size):
    return TensorDataset(torch.zeros(size, 6), torch.zeros(size, dtype=torch.long))


BINS = hs.Mechanism(sampler=hs.Shuffle(batch_size=3, bins=20, epochs=2), noise_multiplier=2.0)
PLAN = hs.Plan.parse(
    {
        "data": {"num_examples": 60, "batch_size": 3, "epochs": 2},
        "sampler": {"kind": "poisson"},
        "noise_multiplier": 2.0,
        "target": {"delta": 1e-5},
    }
)


def model_of():
    return torch.nn.Linear(6, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data_loader": DataLoader(Stream())}, "must have a length"),
        ({"data_loader": DataLoader(Lengthless(), sampler=[0])}, "must have a length"),
        ({"data_loader": [1, 2]}, "must be a torch DataLoader"),
        ({"data_loader": DataLoader(data_of(61))}, "the plan's 60 examples. Got 61"),
        ({"loader": {"sampler": [0, 1]}}, "no sampler .* type 'list'"),
        ({"loader": {"sampler": WeightedRandomSampler([1.0] * 60, 60)}}, "no sampler .* 'WeightedRandomSampler'"),
        ({"loader": {"sampler": SubsetRandomSampler(range(30))}}, "no sampler .* 'SubsetRandomSampler'"),
        ({"loader": {"sampler": RandomSampler(range(60), num_samples=30)}}, "no sampler .* 'RandomSampler'"),
        ({"loader": {"batch_sampler": [[0, 1]]}}, "no sampler or batch_sampler .* 'list'"),
        ({"loader": {"batch_size": None}}, "must have a batch_size, .* batch_size = None"),
        ({"loader": {"batch_size": 4}}, "must have batch_size = 3"),
        ({"loader": {"collate_fn": lambda examples: 3}}, "must give tensors"),
        ({"noise_multiplier": 1.0}, "must be the plan's, 2.0"),
        ({"rand_on_empty": True}, "must be left out"),
        ({"noise_generator": torch.Generator()}, "must be left out"),
        ({"module": len}, "'module' argument must be a torch Module. Got <built-in"),
        ({"optimizer": 3}, "'optimizer' argument must be a torch Optimizer. Got 3"),
        ({"grad_sample_mode": "hook"}, "must be one of hooks, functorch, ghost, ghost_fsdp. Got 'hook'"),
        ({"cliping": "per_layer"}, "'cliping' argument of make_private is not known here .did you mean 'clipping'"),
        ({"target_unclipped_quantil": 0.5}, "did you mean 'target_unclipped_quantile'"),
        ({"xyzzy": 1}, "'xyzzy' argument of make_private is not known here .Opacus has no such argument either.*"),
        ({"clipping": "perlayer"}, "must be one of flat, per_layer, adaptive. Got 'perlayer'"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_bad_arguments_are_named(options, message, training):
    with pytest.raises(InvalidInputError, match=message):
        training(PLAN, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"grad_sample_mode": "ghost_fsdp"},
        {"grad_sample_mode": "ew"},
        {"clipping": "per_layer", "max_grad_norm": [0.5] * 4, "grad_sample_mode": "ghost"},
    ],
    ids=lambda one: next(iter(one.values())),
)
def test_what_nobody_has_built_is_refused(options, training):
    with pytest.raises(UnsupportedError):
        training(**options)


def test_a_dataset_that_does_not_suit_the_sampler_is_refused(training):
    with pytest.raises(InvalidInputError, match="batch_size \\* bins = 60"):
        training(BINS, data_loader=DataLoader(data_of(61)))
    with pytest.raises(InvalidInputError, match="must have at least one example"):
        training(BINS, data_loader=DataLoader(data_of(0)))


def test_parameters_and_optimizers_that_do_not_belong_together_are_refused(training):
    model = model_of()
    frozen = model_of()
    for parameter in frozen.parameters():
        parameter.requires_grad_(False)
    sgd = torch.optim.SGD
    with pytest.raises(InvalidInputError, match="at least one parameter that requires gradients"):
        training(module=frozen, optimizer=sgd(frozen.parameters(), lr=0.1))
    with pytest.raises(InvalidInputError, match=r"1 are missing, the first of them 'bias'"):
        training(module=model, optimizer=sgd([model.weight], lr=0.1))
    with pytest.raises(InvalidInputError, match="parameters of the module alone; 1 of its parameters are not"):
        training(module=model, optimizer=sgd([*model.parameters(), torch.nn.Parameter(torch.zeros(1))], lr=0.1))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (torch.nn.BatchNorm1d(6), "'0' of type BatchNorm1d takes its statistics from whole batches"),
        (torch.nn.LSTM(6, 3), "Opacus cannot make this model private: We do not support nn.LSTM because"),
        (torch.nn.Linear(6, 3).eval(), "private: Model needs to be in training mode"),
        (torch.nn.Linear(6, 3, dtype=torch.cfloat), "must be real floating-point numbers, not torch.complex64"),
    ],
    ids=["batch_norm", "lstm", "evaluated", "complex"],
)
def test_models_that_opacus_cannot_handle_are_refused(layer, message, training):
    model = torch.nn.Sequential(layer)
    model.training = layer.training
    with pytest.raises(UnsupportedError, match=message) as raised:
        training(module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    assert str(raised.value).count(". ") == 0


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.BatchNorm1d(6, affine=False),  # which has no parameters for Opacus to look at
        torch.nn.BatchNorm1d(6).requires_grad_(False),
        torch.nn.BatchNorm1d(6, track_running_stats=False).requires_grad_(False).eval(),
        torch.nn.InstanceNorm1d(6, track_running_stats=True).requires_grad_(False),
    ],
    ids=["no_parameters", "frozen", "no_statistics", "instance_norm"],
)
def test_frozen_layers_that_look_at_whole_batches_are_refused(layer, mode, training):
    model = torch.nn.Sequential(layer, torch.nn.Linear(6, 3))
    with pytest.raises(UnsupportedError, match="takes its statistics from whole batches"):
        training(module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), grad_sample_mode=mode)


def test_frozen_statistics_are_fine_until_they_thaw(training):
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(6).requires_grad_(False).eval(), torch.nn.Linear(6, 3))
    made = training(module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    made.epoch()
    made.model.train()
    with pytest.raises(UnsupportedError, match=r"call its eval\(\) after every model.train"):
        made.epoch()


@pytest.mark.parametrize("norm", [0, -1.0, 1e-31, float("inf"), float("nan"), "1", True, [1.0]])
def test_clipping_norms_are_numbers_that_are_not_tiny(norm, training):
    with pytest.raises(InvalidInputError, match=r"'max_grad_norm' argument must be finite and at least 7\.89e-31"):
        training(max_grad_norm=norm)
    with pytest.raises(InvalidInputError, match=r"must be a list of 4 finite numbers, each at least 7\.89e-31"):
        training(max_grad_norm=norm, clipping="per_layer")
    with pytest.raises(InvalidInputError, match=r"must be a list of 4 finite numbers, each at least 7\.89e-31"):
        training(max_grad_norm=[1.0, 1.0, 1.0, norm], clipping="per_layer")


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_clipping_norms_of_numpy_are_those_of_python(clipping, training):
    norm = np.float32(0.5)
    given, same = (norm, 0.5) if clipping == "flat" else ([norm] * 4, (0.5,) * 4)
    runs = [training(max_grad_norm=value, clipping=clipping) for value in (given, same)]
    for run in runs:
        run.epoch()
    for one, other in zip(*(run.model.parameters() for run in runs), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_losses_with_another_divisor_are_refused(mode, training):
    """A mean that Opacus takes for a sum, or the other way around, makes every gradient depend on the whole batch."""
    for reduction, other in (("mean", "sum"), ("sum", "mean")):
        criterion = torch.nn.CrossEntropyLoss(reduction=reduction)
        with pytest.raises(InvalidInputError, match=f"must have reduction='{other}'"):
            training(criterion=criterion, loss_reduction=other, grad_sample_mode=mode)
    with pytest.raises(InvalidInputError, match="must not have class weights"):
        training(criterion=torch.nn.CrossEntropyLoss(weight=torch.ones(3)))


def test_what_is_private_already_is_refused(training):
    from opacus.grad_sample import GradSampleModuleFastGradientClipping as Ghost

    from hockeystick.training.torch.ghost import GhostModule

    def ghost(model):
        training(module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), grad_sample_mode="ghost")

    made = training()
    with pytest.raises(InvalidInputError, match="this one is private already"):
        training(module=made.model._module, optimizer=made.optimizer)
    with pytest.raises(InvalidInputError, match="wrapped already, as a GradSampleModuleFastGradientClipping"):
        ghost(Ghost(model_of(), max_grad_norm=1.5))
    with pytest.raises(InvalidInputError, match=r"clips to 100\.0, and 'max_grad_norm' is 1\.5"):
        ghost(GhostModule(model_of(), max_grad_norm=100.0))


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_frozen_parameters_are_fine(mode, training):
    """As the bases of low-rank adapters are."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 3))
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made = training(module=model, optimizer=optimizer, grad_sample_mode=mode)
    made.run()
    assert torch.equal(model[0].weight.cpu(), before)
    assert made.engine.run.size == 8 * 3 + 3


class Half(torch.nn.Module):
    """A model of which one part is never used."""

    def __init__(self):
        super().__init__()
        self.used = torch.nn.Linear(6, 3)
        self.unused = torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.used(x)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_parameters_without_per_sample_gradients_are_refused(mode, training):
    model = Half()
    made = training(module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), grad_sample_mode=mode)
    before = made.weights()
    with pytest.raises(InvalidInputError, match=r"2 of 4 trained parameters, the first of them 'unused.weight'"):
        made.epoch()
    assert np.array_equal(made.weights(), before)
    assert made.engine.run.step == 0


def test_a_step_without_a_backward_pass_is_refused(training):
    made = training()
    with pytest.raises(InvalidInputError, match="4 of 4 trained parameters"):
        made.optimizer.step()


def test_a_second_make_private_is_refused(training):
    made = training()
    model = model_of()
    with pytest.raises(InvalidInputError, match="has a run already"):
        made.engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(data_of(60)),
            max_grad_norm=1.0,
        )


def test_more_steps_than_planned_are_refused(training):
    made = training(PLAN)
    x, y = next(iter(made.loader))
    made.run()
    before = made.weights()
    made.optimizer.zero_grad()
    made.criterion(made.model(x), y).backward()
    with pytest.raises(InvalidInputError, match="All 40 planned steps were taken"):
        made.optimizer.step()
    assert np.array_equal(made.weights(), before)
    record = made.engine.record(made.engine.certificate())
    assert (record.refused_steps, record.steps) == (1, 40)


def test_plans_are_checked_at_once():
    with pytest.raises(InvalidInputError, match=r"Got 'plan\.toml' instead; hs\.Plan\.load reads a file\.$"):
        hs.torch.PrivacyEngine("plan.toml")
    with pytest.raises(InvalidInputError, match="must be a Plan or a Mechanism"):
        hs.torch.PrivacyEngine("prv")
    engine = hs.torch.PrivacyEngine(BINS)
    with pytest.raises(InvalidInputError, match="call make_private first"):
        _ = engine.run
    with pytest.raises(InvalidInputError, match="no target delta"):
        engine.certificate()


def test_executed_steps_within_an_epoch_have_no_certificate_of_their_own(training):
    made = training(BINS)
    for x, y in made.loader:
        made.optimizer.zero_grad()
        made.criterion(made.model(x), y).backward()
        made.optimizer.step()
        break
    with pytest.raises(InvalidInputError, match="not a mechanism by themselves"):
        made.engine.certificate(1e-5, executed=True)
