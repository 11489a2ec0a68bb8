"""Hooks that leave a layer's inputs to autograd: passes that are broken off, repeated, and used twice."""

import pytest

pytest.importorskip("opacus", reason="needs torch and opacus")

import torch
from torch.utils.checkpoint import checkpoint

from hockeystick.errors import UnsupportedError
from hockeystick.training.torch.kept_inputs import SampleHooks

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 5), torch.nn.Linear(5, 2))


def samples_of(model):
    return [parameter.grad_sample for parameter in model.parameters()]


def test_a_pass_that_was_broken_off_leaves_nothing_to_the_next():
    model, x = network(), torch.randn(3, 4)
    SampleHooks(model)
    hidden = model[1](model[0](x))
    hidden.register_hook(lambda grad: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        model[3](model[2](hidden)).mean().backward()
    assert samples_of(model) == [None] * 6
    model(x).mean().backward()
    again = network()
    SampleHooks(again)
    again(x).mean().backward()
    assert all(torch.equal(one, other) for one, other in zip(samples_of(model), samples_of(again), strict=True))


@pytest.mark.parametrize("again", [False, True])
def test_a_layer_that_is_used_twice_has_the_sum_whether_it_runs_again_or_not(again):
    model, x = network(), torch.randn(3, 4, requires_grad=True)

    def twice(hidden):
        return model[2](torch.tanh(model[2](hidden)))

    rows = []
    for example in x:
        loss = model[3](twice(model[1](model[0](example[None])))).mean()
        rows.append(torch.autograd.grad(loss, list(model.parameters())))
    SampleHooks(model)
    hidden = model[1](model[0](x))
    used = checkpoint(twice, hidden, use_reentrant=False) if again else twice(hidden)
    model[3](used).mean(dim=1).mean().backward()
    for at, samples in enumerate(samples_of(model)):
        torch.testing.assert_close(samples, torch.stack([row[at] for row in rows]))


def test_two_passes_without_a_step_are_refused():
    model, x = network(), torch.randn(3, 4)
    hooks = SampleHooks(model)
    hooks.forbid_grad_accumulation()
    model(x).mean().backward()
    with pytest.raises(UnsupportedError, match="Two backward passes came before"):
        model(x).mean().backward()


def test_what_these_hooks_cannot_do_is_refused():
    for options in ({"batch_first": False}, {"force_functorch": True}):
        with pytest.raises(UnsupportedError, match="leave out wrap_model=False"):
            SampleHooks(network(), **options)
