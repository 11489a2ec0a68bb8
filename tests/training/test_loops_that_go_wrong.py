"""Loops as people write them, which are not what the certificate says: they raise before any noise is given out."""

import copy
import gc
import io

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError, ViolationError

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch.utils.data import DataLoader

from hockeystick.training.torch import guards

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
both = pytest.mark.parametrize("mode", ["hooks", "ghost"])


def ends(made, promise, loop):
    """The loop raises, moves no weight after the last good step, and leaves a record without a certificate."""
    with pytest.raises(ViolationError, match=f"'{promise}'"):
        loop()
    assert made.engine.record().violations[0] == promise
    assert made.engine.record(hs.certify(made.engine.mechanism, delta=1e-5, method="gaussian")).certificate is None
    with pytest.raises(ViolationError, match="so no certificate covers it"):
        made.engine.certificate(1e-5)


@both
def test_batches_of_another_loader_are_caught(mode, made):
    """Of the right size, in the right number, and not the plan's: nothing but their origin tells."""
    one = made(mode)
    loader = DataLoader(one.loader.dataset, batch_size=3, shuffle=True, drop_last=True)
    ends(one, "examples_of_the_batch", lambda: one.epoch(loader))
    assert one.engine.run.step == 0


@both
@pytest.mark.parametrize("largest", [None, 2, 5])
def test_a_batch_that_is_left_out_is_caught(mode, largest, made):
    """As by ``if not loss.isfinite(): continue``, with BatchMemoryManager and without."""
    one = made(mode)

    def loop():
        manager = BatchMemoryManager(
            data_loader=one.loader, max_physical_batch_size=largest or 1, optimizer=one.optimizer
        )
        parts = 2 if largest == 2 else 1
        for at, (x, y) in enumerate(one.loader if largest is None else manager.__enter__()):
            if at // parts == 3:
                continue
            one.backward(x, y)
            one.optimizer.step()

    ends(one, "batches_in_step", loop)
    assert one.engine.run.step == 3


def test_batches_that_workers_cut_are_not_said_to_be_checked(made):
    plain, one = made(), made(loader={"num_workers": 2})
    plain.epoch()
    one.accumulated_epoch(2)
    assert np.allclose(plain.weights(), one.weights(), rtol=0, atol=1e-5)
    assert "batches_in_step" in plain.engine.record().checked
    assert "batches_in_step" in one.engine.record().asserted


@both
@pytest.mark.parametrize("which", ["the_wrapped_one", "another"])
def test_another_optimizer_on_gradients_without_noise_is_caught(mode, which, made):
    """The optimizer of before make_private is still in scope, and its step takes ``p.grad`` as it is."""
    one = made(mode)
    other = one.optimizer.original_optimizer
    if which == "another":
        other = torch.optim.Adam(one.model.parameters())
    before = one.weights()

    def loop():
        x, y = next(iter(one.loader))
        one.backward(x, y)
        other.step()

    ends(one, "noise_is_added", loop)
    assert np.array_equal(before, one.weights())


def test_other_optimizers_on_other_gradients_are_fine(made):
    one = made()
    other = torch.optim.SGD(one.model.parameters(), lr=0.0)
    elsewhere = torch.nn.Parameter(torch.ones(2))
    more = torch.optim.SGD([elsewhere], lr=0.1)
    for x, y in one.loader:
        one.backward(x, y)
        elsewhere.grad = torch.ones(2)
        more.step()
        one.optimizer.step()
        other.step()  # on the noisy gradient
    assert not one.engine.record().violations
    one.run()
    x, y = one.loader.dataset.tensors
    one.backward(x, y)
    with pytest.raises(InvalidInputError, match="have no noise; to train on public data after the run"):
        other.step()
    one.model.remove_hooks()
    one.model.zero_grad()
    torch.nn.functional.cross_entropy(one.model(x), y).backward()
    other.step()
    assert not one.engine.record().violations


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_a_scaler_of_the_loss_is_refused(value, made, device):
    """Norms would be 65,536 times as long, and whether a step is left out would depend on the data."""
    one = made()
    one.loader.dataset.tensors[0][7] = value
    scaler = torch.amp.GradScaler(device)
    before = one.weights()
    x, y = next(iter(one.loader))
    one.optimizer.zero_grad()
    scaler.scale(one.criterion(one.model(x), y)).backward()
    with pytest.raises(InvalidInputError, match=r"GradScaler multiplies the loss before .* is clipped"):
        scaler.step(one.optimizer)
    assert np.array_equal(before, one.weights())
    assert one.engine.run.step == 0


def test_a_scaler_that_is_switched_off_is_fine(made, device):
    one, plain = made(), made()
    scaler = torch.amp.GradScaler(device, enabled=False)
    for x, y in one.loader:
        one.optimizer.zero_grad()
        scaler.scale(one.criterion(one.model(x), y)).backward()
        scaler.step(one.optimizer)
        scaler.update()
    plain.epoch()
    assert np.array_equal(one.weights(), plain.weights())


@both
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_example_that_is_not_finite_is_caught(mode, value, made):
    one = made(mode)
    one.loader.dataset.tensors[0][7] = value
    before = [one.weights()]

    def loop():
        one.epoch(on_step=lambda: before.append(one.weights()))

    ends(one, "finite_gradients", loop)
    with pytest.raises(ViolationError, match="finite_gradients"):
        one.engine.get_epsilon(1e-5)
    assert np.isfinite(one.weights()).all()
    assert np.array_equal(before[-1], one.weights())


def test_a_second_backward_pass_without_clipping_is_caught(made):
    """Ghost clipping leaves its sums in ``p.grad``, where any backward pass adds to them."""
    one = made("ghost")

    def loop():
        x, y = next(iter(one.loader))
        one.backward(x, y)
        (100.0 * torch.nn.functional.cross_entropy(one.model(x), y)).backward()
        one.optimizer.step()

    ends(one, "clipping", loop)


class Reused(torch.nn.Module):
    """A weight that is used by its layer, and again by a function, which no hook sees."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 6)
        self.second = torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.second(self.first(x)) + 20.0 * (x @ self.first.weight.t() @ self.first.weight)[:, :3]


def test_weights_that_ghost_clipping_does_not_see_all_of_are_caught(made, monkeypatch):
    """In the graph of the loss, and by the sum where the graph does not show it, as of a compiled function."""

    def reused():
        model = Reused()
        return made("ghost", module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))

    with pytest.raises(UnsupportedError, match="'weight' of the layer 'first' is used 3 times in this pass"):
        reused().epoch()
    monkeypatch.setattr("hockeystick.training.torch.guards.check_uses", lambda losses, module: None)
    one = reused()
    ends(one, "clipping", one.epoch)
    model = Reused()
    made(module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)).epoch()  # per sample, it is cut off


@pytest.mark.parametrize(
    "combine",
    [
        lambda loss, penalty: loss + penalty,
        lambda loss, penalty: penalty + loss,
        lambda loss, penalty: 2.0 * loss - penalty,
        lambda loss, penalty: penalty - (-loss),
        lambda loss, penalty: loss / 3.0 * penalty,
        lambda loss, penalty: (loss + loss) / penalty,
    ],
)
def test_penalties_are_refused_by_ghost_clipping(combine, made):
    one = made("ghost")
    x, y = next(iter(one.loader))
    penalty = sum((p**2).sum() for p in one.model.parameters())
    loss = one.criterion(one.model(x), y)
    with pytest.raises(InvalidInputError, match="gradient of anything else would not be clipped"):
        combine(loss, penalty)
    combine(loss, penalty.detach()).backward()
    one.optimizer.step()
    assert one.engine.run.step == 1


def test_norms_of_an_earlier_pass_are_not_used_again(made):
    """A forward pass without a backward one leaves a layer without new norms; Opacus would take the old ones."""
    model = torch.nn.Sequential(torch.nn.Unflatten(1, (1, 6)), torch.nn.Conv1d(1, 3, 6), torch.nn.Flatten())
    one = made("ghost", module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    batches = iter(one.loader)
    one.backward(*next(batches))
    one.optimizer.step()
    x, y = next(batches)
    one.model(x)
    with pytest.raises(InvalidInputError, match="Norms of per-sample gradients are missing"):
        one.backward(1e3 * x, y)


@both
def test_a_forward_pass_in_training_mode_is_refused(mode, made):
    one = made(mode)
    x, y = next(iter(one.loader))
    one.model(x)

    def step():
        one.backward(x, y)
        one.optimizer.step()

    message = "The layer '.*', or another .* has run before in this pass" if mode == "ghost" else "run the model, once"
    with pytest.raises((InvalidInputError, UnsupportedError), match=message):
        step()
    assert one.engine.run.step == 0


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
def test_rows_that_are_not_examples_are_refused(clipping, made):
    """A layer that gets every token of every example as a row of its own."""

    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.whole = torch.nn.Linear(4, 3)
            self.token = torch.nn.Linear(2, 4)

        def forward(self, x):
            return self.whole(self.token(x.reshape(-1, 2)).reshape(len(x), 3, 4).mean(1))

    model = Tokens()
    norms = 1.5 if clipping == "flat" else [0.75] * 4
    one = made(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), clipping=clipping, max_grad_norm=norms
    )
    with pytest.raises(
        InvalidInputError, match=r"'token.weight' has gradients of 9 examples, where 'whole.weight' .* 3"
    ):
        one.epoch()


@both
def test_gradients_are_used_once(mode, made):
    one = made(mode)
    one.backward(*next(iter(one.loader)))
    one.optimizer.step()
    before = one.weights()
    with pytest.raises((ValueError, InvalidInputError)):
        one.optimizer.step()
    assert np.array_equal(before, one.weights())
    assert one.engine.run.step == 1


@pytest.mark.parametrize("every", [2, 4])
@both
def test_accumulation_by_hand_is_refused(mode, every, made):
    """Steps after some batches are not those of the plan; larger batches are, or BatchMemoryManager."""
    one = made(mode)

    def loop():
        for at, (x, y) in enumerate(one.loader):
            one.criterion(one.model(x), y).backward()
            if at % every == every - 1:
                one.optimizer.step()
                one.optimizer.zero_grad()

    with pytest.raises((ValueError, ViolationError)):
        loop()
    assert one.engine.run.step == 0


@both
@pytest.mark.parametrize("later", ["thawed", "group", "frozen"])
def test_parameters_that_come_or_go_are_caught(mode, later, made):
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    model[0].requires_grad_(later == "frozen")
    one = made(mode, module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    if later == "group":
        one.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(3))]})
    else:
        model[0].requires_grad_(later == "thawed")
    ends(one, "clipping_norm", one.epoch)


@pytest.mark.parametrize("which", ["noise", "norm", "norms_of_layers"])
def test_schedules_of_noise_and_norms_are_caught(which, made):
    from opacus.schedulers import ExponentialGradClip, ExponentialNoise

    one = made() if which != "norms_of_layers" else made(clipping="per_layer", max_grad_norm=[0.75] * 4)
    kinds = {"noise": ExponentialNoise, "norm": ExponentialGradClip}
    schedule = kinds[which](one.optimizer, gamma=0.9) if which in kinds else None

    def change():
        if schedule is None:
            one.optimizer.max_grad_norms[2] = 100.0
        else:
            schedule.step()

    ends(one, "clipping_norm", lambda: one.epoch(on_step=change))
    assert one.engine.run.step == 1


@both
def test_optimizers_on_a_run_are_not_copied(mode, made):
    one = made(mode)
    for act in (copy.copy, copy.deepcopy, lambda optimizer: torch.save(optimizer, io.BytesIO())):
        with pytest.raises(InvalidInputError, match="both would have the same noise; save its state_dict"):
            act(one.optimizer)
    copy.deepcopy(one.model)


@both
def test_noise_goes_with_the_weights_it_was_saved_with(mode, made):
    """The state of the optimizer alone, without that of the model: its next rows were used on other weights."""
    one = made(mode)
    state, weights = one.optimizer.state_dict(), copy.deepcopy(one.model.state_dict())
    one.epoch()
    first = one.weights()
    one.optimizer.load_state_dict(state)
    with pytest.raises(InvalidInputError, match="The weights are not those that were saved"):
        one.epoch()
    assert np.array_equal(first, one.weights())
    one.model.load_state_dict(weights)
    one.epoch()
    assert np.array_equal(first, one.weights())
    assert "repeated_steps_repeat" in one.engine.record().asserted


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
@pytest.mark.parametrize("narrow", ["parameters", "autocast"])
def test_clipping_is_in_float32_whatever_the_types(clipping, narrow, made):
    """The sum that the noise is added to is that of gradients that were clipped and added up in float32."""
    dtype = torch.bfloat16 if narrow == "parameters" else torch.float32
    norms = 0.01 if clipping == "flat" else [0.005] * 4  # so that everything is clipped
    one = made(clipping=clipping, max_grad_norm=norms, dtype=dtype)
    sums = []
    add_noise = one.optimizer.add_noise

    def look():
        sums.append([p.summed_grad.clone() for p in one.optimizer.params])  # the noise is added in place
        add_noise()

    one.optimizer.add_noise = look
    for x, y in one.loader:
        one.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=narrow == "autocast"):
            loss = one.criterion(one.model(x), y)
        loss.backward()
        rows = [p.grad_sample.double() for p in one.optimizer.params]
        one.optimizer.step()
        lengths = torch.stack([row.flatten(1).norm(dim=1) for row in rows])
        if clipping == "flat":
            factors = (0.01 / lengths.norm(dim=0)).clamp(max=1.0).expand(4, -1)
        else:
            factors = (0.005 / lengths).clamp(max=1.0)
        for total, row, factor in zip(sums[-1], rows, factors, strict=True):
            assert total.dtype is torch.float32
            exact = torch.einsum("i,i...", factor, row)
            assert (total.double() - exact).norm() <= 3e-4 * exact.norm() + 1e-9
    assert one.engine.run.step == 20


def test_ghost_clipping_in_narrow_types_is_refused(made):
    one = made("ghost")
    x, _ = next(iter(one.loader))
    for bare in (one, made("ghost", wrap_model=False)):
        model = bare.model if bare is one else bare.model._module
        refused = pytest.raises(UnsupportedError, match=r"cannot be used under autocast to torch\.bfloat16")
        with torch.autocast(x.device.type, dtype=torch.bfloat16), refused:
            model(x)
    with pytest.raises(UnsupportedError, match=r"needs parameters in float32 or float64.*Got torch\.bfloat16"):
        made("ghost", dtype=torch.bfloat16)


@both
def test_a_second_engine_continues_with_the_model(mode, made):
    """Two phases, each with a certificate; the optimizer of the first one still watches, and sees noise."""
    first = made(mode)
    first.epoch()
    optimizer = first.optimizer.original_optimizer
    second = made(mode, module=first.model, optimizer=optimizer)
    second.run()
    assert (first.engine.run.step, second.engine.run.step) == (20, 40)
    assert not first.engine.record().violations
    assert not second.engine.record().violations


def test_optimizers_that_are_gone_watch_nothing(made):
    """Also where they go while torch steps another one."""
    one, other = made(), made()
    one.epoch()
    before = len(guards.WATCHING)

    def forget():
        if other.__dict__.pop("optimizer", None) is not None:
            other.__dict__.clear()
            gc.collect()

    one.optimizer.original_optimizer.register_step_pre_hook(lambda *_: forget())
    one.epoch()
    assert len(guards.WATCHING) < before
    assert not one.engine.record().violations
