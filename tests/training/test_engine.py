"""Opacus' own loops, unchanged, execute the mechanism: its batches, its noise, its divisor, and nothing else."""

import itertools

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, ViolationError

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

POISSON = hs.Poisson(sampling_prob=0.05, steps=40)
SIGMA, CLIP = 2.0, 1.5


def mechanism_of(strategy=None, sampler=POISSON):
    return hs.Mechanism(strategy=strategy or hs.BandedSquareRoot(bands=4), sampler=sampler, noise_multiplier=SIGMA)


@pytest.mark.parametrize("noise_dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_noise_is_made_in_its_own_type(dtype, noise_dtype, training):
    """With zero gradients the noisy sums are the run's rows, rounded to the parameters' type once."""
    made = training(scale=0.0, dtype=dtype, noise_dtype=noise_dtype)
    twin = training(scale=0.0, dtype=dtype, noise_dtype=noise_dtype).engine.run
    taken = []
    add_noise = made.optimizer.add_noise

    def look():
        add_noise()
        taken.append(torch.cat([p.grad.reshape(-1) for p in made.model.parameters()]).cpu())

    made.optimizer.add_noise = look
    made.epoch()
    for grad, batch in zip(taken, twin.batches(), strict=False):
        row = torch.from_numpy(twin.noise(batch))
        row = row.to(torch.promote_types(dtype, row.dtype)) * CLIP
        assert grad.dtype is dtype
        assert torch.equal(grad, row.to(dtype))


@pytest.mark.parametrize("largest", [1, 2])
@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_accumulation_changes_nothing_but_rounding(largest, mode, training):
    whole, parts = training(grad_sample_mode=mode), training(grad_sample_mode=mode)
    whole.run()
    while parts.engine.run.remaining:
        parts.accumulated_epoch(largest)
    assert np.allclose(whole.weights(), parts.weights(), rtol=0, atol=1e-5)
    assert whole.engine.record() == parts.engine.record()


@pytest.mark.parametrize("set_to_none", [False, True])
def test_parts_without_examples_change_nothing(set_to_none, training):
    """Their sum may be where the noisy gradient of the step before was; backward passes must not add to it."""
    sampler = hs.Deterministic(bins=20, epochs=2)
    made, twin = training(mechanism_of(sampler=sampler)), training(mechanism_of(sampler=sampler))
    while made.engine.run.remaining:
        for x, y in made.loader:
            for part in (slice(0), slice(None)):
                made.optimizer.zero_grad(set_to_none)
                made.criterion(made.model(x[part]), y[part]).backward()
                made.optimizer.signal_skip_step(part == slice(0))
                made.optimizer.step()
    twin.run()
    assert np.array_equal(made.weights(), twin.weights())
    assert made.engine.record() == twin.engine.record()


def test_one_step_is_the_sum_of_clipped_gradients_plus_the_row_over_the_expected_size(training):
    """By hand, for every step of the run; the weights move by 0.1 times it."""
    made, twin = training(), training().engine.run
    data, run = made.data(), made.engine.run
    for batch in twin.batches():
        before = made.weights()
        total = np.zeros_like(before)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        torch.nn.utils.vector_to_parameters(torch.from_numpy(before).float(), model.parameters())
        for example in batch:
            x, y = data[example]
            model.zero_grad()
            torch.nn.functional.cross_entropy(model(x[None]), y[None]).backward()
            gradient = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).double().numpy()
            total += gradient * min(1.0, CLIP / (np.linalg.norm(gradient) + 1e-6))
        expected = before - 0.1 * (total + CLIP * twin.noise(batch)) / (0.05 * 60)
        step = iter(made.loader)
        x, y = next(step)
        assert len(x) == batch.size
        made.optimizer.zero_grad()
        made.criterion(made.model(x), y).backward()
        made.optimizer.step()
        assert np.allclose(made.weights(), expected, rtol=0, atol=1e-5)
    assert run.remaining == 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "sampler",
    [POISSON, hs.BallsInBins(bins=20, epochs=2), hs.BMinSep(min_sep=4, sampling_prob=0.02, steps=40)],
    ids=lambda one: one.kind,
)
def test_the_loader_gives_the_mechanism_s_batches(sampler, workers, training):
    made = training(mechanism_of(sampler=sampler), loader={"num_workers": workers})
    twin = training(mechanism_of(sampler=sampler)).engine.run
    seen: list[torch.Tensor] = []
    made.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    made.run()
    x = made.loader.dataset.tensors[0]
    assert len(seen) == 40
    assert any(len(batch) == 0 for batch in seen)
    assert all(torch.equal(a, x[b]) for a, b in zip(seen, twin.batches(), strict=True))


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_model_that_is_not_wrapped_trains_the_same(mode, training):
    wrapped, bare = training(grad_sample_mode=mode), training(grad_sample_mode=mode, wrap_model=False)
    bare.model = bare.model._module  # make_private returns hooks, and the loop goes on with the model
    wrapped.run()
    bare.run()
    assert np.array_equal(wrapped.weights(), bare.weights())


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_state_resumes_in_an_engine_of_another_seed(mode, training, tmp_path):
    """torch.load reads it with weights_only; a state without a run, and one of another plan, are refused."""
    whole, first, second = (
        training(grad_sample_mode=mode),
        training(grad_sample_mode=mode),
        training(seed=9, grad_sample_mode=mode),
    )
    whole.run()
    first.epoch()
    torch.save({"model": first.model.state_dict(), "optimizer": first.optimizer.state_dict()}, tmp_path / "state.pt")
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    second.model.load_state_dict(state["model"])
    second.optimizer.load_state_dict(state["optimizer"])
    second.run()
    assert np.array_equal(whole.weights(), second.weights())
    assert whole.engine.record().commitment == second.engine.record().commitment
    with pytest.raises(InvalidInputError, match="'hockeystick_run' entry"):
        second.optimizer.load_state_dict(torch.optim.SGD(second.model.parameters(), lr=0.1).state_dict())
    with pytest.raises(InvalidInputError, match="another mechanism"):
        training(mechanism_of(hs.Identity())).optimizer.load_state_dict(state["optimizer"])


def test_a_checkpoint_goes_on_with_dropout_s_generator(training, device, tmp_path):
    """That of the device, where the checkpoint may be loaded as a whole."""

    def dropping(seed):
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3)).to(device)
        torch.nn.utils.vector_to_parameters(torch.linspace(-1.0, 1.0, 83, device=device), model.parameters())
        return training(seed=seed, module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))

    first = dropping(0)
    first.epoch()
    first.engine.save_checkpoint(path=tmp_path / "state.pt", module=first.model, optimizer=first.optimizer)
    first.run()
    second = dropping(9)
    second.engine.load_checkpoint(
        path=tmp_path / "state.pt",
        module=second.model,
        optimizer=second.optimizer,
        torch_load_kwargs={"map_location": device},
    )
    second.run()
    assert np.array_equal(first.weights(), second.weights())


def test_checkpoints_need_the_optimizer(training, tmp_path):
    made = training()
    for act in (made.engine.save_checkpoint, made.engine.load_checkpoint):
        with pytest.raises(InvalidInputError, match="its state holds the run"):
            act(path=tmp_path / "state.pt", module=made.model)


def test_epochs_end_where_they_should(training):
    made = training()
    assert len(made.loader) == 20
    made.epoch()
    assert made.engine.run.step == 20
    made.epoch()
    with pytest.raises(InvalidInputError, match="All 40 planned steps were taken"):
        made.epoch()


def test_the_certificate_is_hs_certify_s(training):
    made = training(mechanism_of(hs.Identity()))
    made.epoch()
    expected = hs.certify(made.engine.mechanism, delta=1e-5)
    assert made.engine.certificate(1e-5) == expected
    assert len(made.engine.accountant) == 20
    executed = made.engine.certificate(1e-5, executed=True)
    assert executed == hs.certify(made.engine.run.executed(), delta=1e-5)
    assert executed.epsilon.upper < expected.epsilon.upper
    record = made.engine.record(executed, stopped_without_looking=True)
    assert {"noise_is_added", "public_normaliser", "clipping_norm", "batches_in_step"} <= set(record.checked)
    assert "clipping" in record.asserted


def test_a_pass_that_was_left_begins_again_with_the_same_batch(training):
    """Also in the middle of a batch, of which a part was summed and more parts were announced."""
    from opacus.utils.batch_memory_manager import BatchMemoryManager

    sampler = hs.Deterministic(bins=20, epochs=2)
    made, twin = training(mechanism_of(sampler=sampler)), training(mechanism_of(sampler=sampler))
    for _ in made.loader:
        break
    with BatchMemoryManager(data_loader=made.loader, max_physical_batch_size=1, optimizer=made.optimizer) as loader:
        for calls, (x, y) in enumerate(loader):
            made.optimizer.zero_grad()
            made.criterion(made.model(x), y).backward()
            made.optimizer.step()
            if calls == 4:  # 3 physical batches make one of 3 examples
                break
    assert made.engine.run.step == 1
    made.run()
    twin.run()
    assert np.allclose(made.weights(), twin.weights(), rtol=0, atol=1e-5)


def violated(made, promise):
    assert made.engine.record().violations == (promise,)
    with pytest.raises(ViolationError, match="so no certificate covers it"):
        made.engine.certificate(1e-5)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_skipped_empty_batch_is_caught(mode, training):
    made = training(grad_sample_mode=mode)
    filled = (pair for pair in made.loader if len(pair[0]))
    with pytest.raises(ViolationError, match="Every batch that was handed out was used at its own step"):
        made.epoch(filled)
    violated(made, "batches_in_step")


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize(
    "change", [lambda x: x[:-1], lambda x: x.repeat(2, *[1] * (x.dim() - 1))], ids=["less", "more"]
)
def test_sums_over_other_examples_are_caught(mode, change, training):
    made = training(mechanism_of(sampler=hs.Deterministic(bins=20)), grad_sample_mode=mode)
    before = made.weights()
    x, y = next(iter(made.loader))
    made.criterion(made.model(change(x)), change(y)).backward()
    with pytest.raises(ViolationError, match="number_of_examples"):
        made.optimizer.step()
    assert np.array_equal(made.weights(), before)
    violated(made, "number_of_examples")


@pytest.mark.parametrize(
    ("name", "value"), [("max_grad_norm", 0.5), ("noise_multiplier", 0.1), ("expected_batch_size", 1)]
)
def test_changed_settings_are_caught(name, value, training):
    made = training()
    setattr(made.optimizer, name, value)
    with pytest.raises(ViolationError, match="clipping_norm"):
        made.epoch()
    violated(made, "clipping_norm")


def test_parameters_that_join_later_are_caught(training):
    made = training(grad_sample_mode="ghost")
    made.optimizer.param_groups[0]["params"].append(torch.nn.Parameter(torch.zeros(2)))
    with pytest.raises(ViolationError, match="clipping_norm"):
        made.epoch()


def test_gradients_without_clipping_are_refused(training):
    """The criterion of one's own, in place of the one that make_private returned."""
    made = training(grad_sample_mode="ghost")
    made.criterion = torch.nn.CrossEntropyLoss()
    with pytest.raises(InvalidInputError, match="were not clipped"):
        made.epoch()
    assert made.engine.run.step == 0


def test_two_batches_in_one_step_are_refused(training):
    made = training(mechanism_of(sampler=hs.Deterministic(bins=20)))
    (x, y), (v, w) = itertools.islice(made.loader, 2)
    made.criterion(made.model(x), y).backward()
    with pytest.raises(ValueError, match="not compatible with grad accumulation"):
        made.criterion(made.model(v), w).backward()
    assert made.engine.run.step == 0


def test_gradients_are_used_once(training):
    made = training()
    x, y = next(iter(made.loader))
    made.criterion(made.model(x), y).backward()
    made.optimizer.step()
    with pytest.raises((ValueError, ViolationError)):
        made.optimizer.step()
    assert made.engine.run.step == 1
