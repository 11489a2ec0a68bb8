"""Training with exact sums: whole numbers from clipping to noise, whatever the physical batches."""

import warnings

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError, ViolationError
from hockeystick.training import Run, exact_sum

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.utils.data import TensorDataset
from whole_numbers import CLIP, DATA, MECHANISM, Sum, engine_of, expected, gradients_of, made, steps_of

from hockeystick.training.exact_sums import rows_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.mark.parametrize("mode", ["hooks", "functorch"])
@pytest.mark.parametrize("size", [1, 3, 5, 64])
def test_every_step_is_that_of_whole_numbers_for_any_physical_batches(mode, size):
    engine = engine_of(physical_batch_size=size)
    sizes = []
    rows = gradients_of(engine, *made(engine, grad_sample_mode=mode), on_batch=lambda x: sizes.append(len(x)))
    assert np.array_equal(rows, expected())
    assert set(sizes) == {size}
    assert not engine.record().violations


@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_a_step_without_examples_is_a_physical_batch_and_noise(mode):
    sampler = hs.Poisson(sampling_prob=0.02, steps=12)
    mechanism = MECHANISM.model_copy(update={"sampler": sampler})
    engine, sizes = engine_of(mechanism), []
    rows = gradients_of(engine, *made(engine, grad_sample_mode=mode), on_batch=lambda x: sizes.append(int(x.any())))
    assert np.array_equal(rows, expected(mechanism=mechanism))
    assert sizes.count(0) > 2


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_change_nothing(workers):
    engine = engine_of()
    assert np.array_equal(gradients_of(engine, *made(engine, loader={"num_workers": workers})), expected())


@pytest.mark.parametrize("mode", ["hooks", "functorch"])
def test_a_model_that_is_not_wrapped_is_trained_alike(mode):
    """Opacus then returns its hooks in the place of the model."""
    engine, model = engine_of(physical_batch_size=5), Sum()
    _, optimizer, loader = made(engine, model, grad_sample_mode=mode, wrap_model=False)
    assert np.array_equal(gradients_of(engine, model, optimizer, loader), expected())


def test_a_mean_is_over_the_public_batch_size():
    """Rows of a power of two, whose division and multiplication are exact."""
    engine = engine_of(physical_batch_size=4)
    model, optimizer, loader = made(engine, loss_reduction="mean")
    rows = []
    while engine.run.remaining:
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            before = engine.run.step
            optimizer.step()
            if engine.run.step > before:
                rows.append(torch.cat([p.grad.reshape(-1) for p in optimizer.params]).numpy().copy())
    assert np.array_equal(rows, expected(divisor=engine.run.expected_batch_size))


def test_several_backward_passes_are_one_physical_batch():
    engine = engine_of(physical_batch_size=6)
    model, *rest = made(engine)
    model.allow_grad_accumulation()
    assert np.array_equal(gradients_of(engine, model, *rest, parts=3), expected())


@pytest.mark.parametrize("parts", [1, 3])
def test_rows_that_fill_up_do_not_count(parts):
    """Zeros have a gradient where a layer has a bias, or where a caller puts other numbers into their rows."""
    engine = engine_of(physical_batch_size=12)
    model, optimizer, loader = made(engine)
    model.allow_grad_accumulation()

    def spoil(x):
        x[(x == 0).all(dim=1)] = 1.0

    assert np.array_equal(gradients_of(engine, model, optimizer, loader, spoil, parts), expected())


def test_layers_have_norms_of_their_own():
    norms = [0.9, 1.2]
    engine = engine_of()
    rows = gradients_of(engine, *made(engine, clipping="per_layer", max_grad_norm=norms))
    assert np.allclose(rows, expected(layers=norms), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("largest", [5, 100])
def test_opacus_batch_manager_passes_physical_batches_on(largest):
    engine = engine_of(physical_batch_size=5)
    model, optimizer, loader = made(engine)
    rows = []
    while engine.run.remaining:
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=largest, optimizer=optimizer) as batches:
            for (x,) in batches:
                assert len(x) == 5
                optimizer.zero_grad()
                model(x).sum().backward()
                before = engine.run.step
                optimizer.step()
                if engine.run.step > before:
                    rows.append(torch.cat([p.grad.reshape(-1) for p in optimizer.params]).numpy().copy())
    assert np.array_equal(rows, expected())


def test_opacus_batch_manager_may_not_split_them():
    engine = engine_of(physical_batch_size=5)
    model, optimizer, loader = made(engine)
    manager = BatchMemoryManager(data_loader=loader, max_physical_batch_size=2, optimizer=optimizer)
    sentence = "'max_physical_batch_size' of BatchMemoryManager must be at least 5"
    with manager as batches, pytest.raises(InvalidInputError, match=sentence):
        steps_of(model, optimizer, batches)


def test_sums_are_close_to_those_in_floating_point(training):
    """Of an ordinary model, the same noise and nearly the same gradients; the grid is fine."""
    mechanism = MECHANISM.model_copy(update={"exact": False})
    one, two = training(mechanism), training(MECHANISM)
    one.run()
    two.run()
    assert not np.array_equal(one.weights(), two.weights())
    assert np.allclose(one.weights(), two.weights(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [hs.torch.ScaledAdam, hs.torch.IndependentAdam])
def test_adaptive_optimisers_have_exact_sums_too(kind, training):
    mechanism = MECHANISM.model_copy(update={"exact": False})
    one, two = (training(each, optimizer_of=lambda p, lr: kind(p, lr=lr)) for each in (mechanism, MECHANISM))
    one.run()
    two.run()
    assert np.allclose(one.weights(), two.weights(), rtol=0, atol=2e-3)
    assert "exact_sums" in two.engine.record().checked


def test_an_example_that_is_not_finite_counts_as_zero_and_the_run_goes_on():
    data = DATA.copy()
    data[7], data[11, 2] = np.nan, np.inf
    engine = engine_of()
    rows = gradients_of(engine, *made(engine, data=TensorDataset(torch.from_numpy(data))))
    data[[7, 11]] = 0.0
    assert np.array_equal(rows, expected(data))
    assert "finite_gradients" not in engine.record().checked


@pytest.mark.parametrize("left_out", [{0}, {1}, {3, 4}])
def test_a_batch_that_was_left_out_ends_the_run(left_out):
    """Of one step or of several: what counts as examples then belongs to other rows."""
    engine = engine_of(physical_batch_size=2)
    made_so = made(engine)
    with pytest.raises(ViolationError, match="batches_in_step"):
        steps_of(*made_so, left_out=left_out)
    assert engine.run.step < 3


def test_batches_of_other_loaders_end_the_run():
    engine = engine_of(physical_batch_size=4)
    model, optimizer, _ = made(engine)
    model(torch.from_numpy(DATA[:4])).sum().backward()
    with pytest.raises(ViolationError, match="examples_of_the_batch"):
        optimizer.step()


def test_physical_batches_of_another_size_are_refused():
    engine = engine_of(physical_batch_size=4)
    model, optimizer, loader = made(engine)
    (x,) = next(iter(loader))
    model(x[:2]).sum().backward()
    with pytest.raises(InvalidInputError, match=r"must be of all 4 rows of a physical batch\. Got 2"):
        optimizer.step()


def test_sequences_of_another_length_are_refused():
    class Bag(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.vectors, self.out = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 1)

        def forward(self, tokens):
            return self.out(self.vectors(tokens).mean(dim=1))

    data = [torch.arange(1, 2 + at % 3) for at in range(40)]

    def padded(examples):
        return (torch.nn.utils.rnn.pad_sequence(examples, batch_first=True),)

    engine = engine_of(physical_batch_size=2)
    made_so = made(engine, Bag(), data, loader={"collate_fn": padded})
    with pytest.raises(InvalidInputError, match="all physical batches must have one shape, sequences of one length"):
        steps_of(*made_so)


@pytest.mark.parametrize("inner", [torch.nn.Dropout(0.1), torch.nn.Sequential(torch.nn.Dropout2d(0.5))])
def test_dropout_is_refused_now_and_later(inner):
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), inner, torch.nn.Linear(8, 3))
    with pytest.raises(UnsupportedError, match=r"The layer '1(.0)?' of type Dropout.* draws dropout by the place"):
        made(engine_of(), model)
    inner.eval()
    private, _, _ = made(engine_of(), model, TensorDataset(torch.randn(40, 6)))
    private.train()
    with pytest.raises(UnsupportedError, match="draws dropout by the place"):
        private(torch.randn(2, 6))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"grad_sample_mode": "ghost", "criterion": torch.nn.MSELoss()}, "ghost clipping sums in floating point"),
        ({"clipping": "adaptive"}, "Exact sums are for clipping='flat' and 'per_layer'"),
    ],
)
def test_other_sums_are_refused_in_one_sentence(options, sentence):
    with pytest.raises(UnsupportedError, match=sentence):
        made(engine_of(), **{"loss_reduction": "mean"} | options)


@pytest.mark.parametrize("given", [0, 2.5, True])
def test_a_physical_batch_size_is_a_number(given):
    with pytest.raises(InvalidInputError, match="'physical_batch_size' argument must be a whole number of at least 1"):
        made(engine_of(physical_batch_size=given))


def test_arguments_for_exact_sums_alone_are_refused_elsewhere():
    floating = MECHANISM.model_copy(update={"exact": False})
    with pytest.raises(InvalidInputError, match="'physical_batch_size' argument is for exact sums; give exact=True"):
        made(engine_of(floating, physical_batch_size=4))
    with pytest.raises(InvalidInputError, match="The 'exact' argument must be True or left out"):
        engine_of(exact=False)


def test_a_plan_and_the_engine_can_say_it():
    plan = hs.Plan.parse(
        {
            "data": {"num_examples": 40, "batch_size": 5, "epochs": 1},
            "sampler": {"kind": "poisson"},
            "noise_multiplier": 2.0,
        }
    )
    assert not engine_of(plan).mechanism.exact
    assert engine_of(plan, exact=True).mechanism.exact
    assert engine_of(hs.Plan.parse(plan.model_dump(by_alias=True) | {"noise": {"exact": True}})).mechanism.exact
    engine = hs.torch.PrivacyEngine(exact=True, epochs=1)
    made(engine, noise_multiplier=1.0, loader={"batch_size": 8})
    assert engine.mechanism.exact


@pytest.mark.parametrize(
    ("sampler", "size"),
    [
        (hs.Shuffle(batch_size=40, bins=1, epochs=2), 64),
        (hs.Shuffle(batch_size=8, bins=5, epochs=2), 32),
        (hs.Poisson(sampling_prob=0.1, steps=4), 32),
    ],
)
def test_sizes_of_physical_batches_suit_the_sampler(sampler, size):
    engine = engine_of(hs.Mechanism(sampler=sampler, noise_multiplier=2.0, exact=True))
    _, _, loader = made(engine)
    assert len(next(iter(loader))[0]) == size


def test_processes_and_large_batches_have_their_share():
    promises = hs.Poisson(sampling_prob=0.1, steps=4).promises(4000)
    assert [rows_of(None, promises, ranks) for ranks in (1, 2, 8)] == [128, 64, 32]
    assert rows_of(7, promises, 2) == 7


def test_batches_are_filled_up_with_zeros_whatever_their_form():
    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, at):
            return {"x": torch.full((2,), 1.0 + at), "y": (at + 1, np.float64(at + 1))}

    engine = engine_of(physical_batch_size=32)
    _, _, loader = made(engine, Sum(), Pairs())
    for batch in loader:
        assert batch["x"].shape == (32, 2)
        number = int((batch["x"][:, 0] > 0).sum())
        assert batch["y"][0].tolist()[number:] == batch["y"][1].tolist()[number:] == [0] * (32 - number)
        assert (batch["x"][number:] == 0).all()
    assert not engine.run.step


def test_lists_of_texts_cannot_be_filled_up():
    engine = engine_of(physical_batch_size=32)
    data = [("text", torch.randn(7)) for _ in range(40)]
    _, _, loader = made(engine, Sum(), data)
    with pytest.raises(InvalidInputError, match="must give tensors or arrays for exact sums"):
        next(iter(loader))


def test_other_front_ends_refuse_exact_noise():
    noise = hs.torch.Noise.of(MECHANISM, [torch.zeros(3, requires_grad=True)], num_examples=40)
    noise.parameters[0].grad = torch.zeros(3)
    with pytest.raises(UnsupportedError, match=r"Noise.add_ sums gradients in floating point"):
        noise.add_([], clip_norm=1.0)
    assert noise.next(next(noise.run.batches()))[0].dtype == torch.int32


def test_a_loop_of_one_s_own_has_whole_numbers():
    """As the theory page says it, in numpy alone."""
    run = Run(MECHANISM, num_examples=40, shape=7, rng=np.random.default_rng(0))
    weights = np.zeros(7)
    for batch in run.batches():
        total = run.noise(batch).astype(np.int64)
        if len(batch):
            total += exact_sum(DATA[batch], CLIP, run.norm_steps)[0]
        weights -= CLIP / run.norm_steps * total / run.expected_batch_size
    assert {"exact_sums", "one_shape", "batch_invariance"} <= set(run.record().asserted)
    assert run.norm_steps == 2**19
    plain = Run(MECHANISM.model_copy(update={"exact": False}), num_examples=40, shape=7)
    assert plain.norm_steps is None


def test_warnings_of_loaders_are_those_of_every_run():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made(engine_of(), loader={"shuffle": True, "batch_size": 5})
    assert any("In place of shuffle=True" in str(one.message) for one in said)
