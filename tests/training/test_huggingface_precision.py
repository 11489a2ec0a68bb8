"""16 bits and activation checkpointing in the Trainer: the mechanism is that of float32 without either."""

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")
pytest.importorskip("peft", reason="needs peft")

import peft
import torch
from huggingface_training import FIXED, model_of, sentences
from transformers import default_data_collator

from hockeystick.training.huggingface.losses import next_tokens
from hockeystick.training.torch.norms import total_norm

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

DATA = sentences()
PARTS = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3}
"""Of a batch of five: two, two and one."""


def adapted(dtype=torch.float32):
    """Frozen layers of a type, with adapters in float32 on all of them."""
    torch.manual_seed(0)
    base = model_of(attention_dropout=0.0, num_hidden_layers=2, initializer_range=0.3).to(dtype)
    return peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))


def sums_of_first_step(made):
    """The sums of clipped gradients before the noise, by name, and the types of the per-sample gradients."""
    made.get_train_dataloader()
    names = {id(p): name for name, p in made.model.named_parameters()}
    sums: dict[str, torch.Tensor] = {}
    types: set[torch.dtype] = set()
    add_noise, clip = made.optimizer.add_noise, made.optimizer.clip_and_accumulate

    def look():
        if not sums:
            sums.update({names[id(p)]: p.summed_grad.clone().view_as(p) for p in made.optimizer.params})
        add_noise()

    def look_at_types():
        types.update(p.grad_sample.dtype for p in made.optimizer.params)
        clip()

    made.optimizer.add_noise, made.optimizer.clip_and_accumulate = look, look_at_types
    made.train()
    return sums, types


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_checkpointing_changes_not_a_bit(mode, dropout, trainer):
    """With all weights trained, over a whole training, with layers that run again under the same masks."""
    weights = []
    for checkpointing in (False, True):
        model = model_of(num_hidden_layers=3, attention_dropout=dropout)
        made = trainer(
            model=model, grad_sample_mode=mode, arguments=PARTS | {"activation_checkpointing": checkpointing}
        )
        made.train()
        assert made.record().violations == ()
        assert made.model.is_gradient_checkpointing == checkpointing
        weights.append(torch.cat([p.detach().reshape(-1) for p in made.model.parameters()]))
    assert torch.equal(*weights)


def test_tied_weights_and_checkpointing_sum_over_both_uses(trainer):
    made = trainer(
        model=model_of(tie_word_embeddings=True, attention_dropout=0.0),
        arguments=PARTS | {"activation_checkpointing": True, "max_steps": 1, "max_grad_norm": 1e3},
    )
    expected = gradients_alone(made.model, DATA[:5], torch.float32)
    sums, _ = sums_of_first_step(made)
    for name, total in sums.items():
        np.testing.assert_allclose(total, sum(one[name] for one in expected), rtol=1e-4, atol=1e-5)


def gradients_alone(model, data, precision):
    """Of one example after another, by autograd, by name; under autocast where ``precision`` is narrow."""
    model.train()
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gradients = []
    for example in data:
        batch = default_data_collator([example])
        labels = {"labels": batch.pop("labels")}
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision is torch.bfloat16):
            outputs = model(**batch)
        loss = next_tokens(outputs, labels).sum()
        parts = torch.autograd.grad(loss, list(trained.values()))
        gradients.append(dict(zip(trained, parts, strict=True)))
    return gradients


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize(("frozen", "bf16"), [("float32", True), ("bfloat16", True), ("bfloat16", False)])
def test_in_16_bits_the_sum_is_that_of_a_loop_over_single_examples(frozen, bf16, checkpointing, trainer):
    """In the same precision, to 2^-5 of a clipping norm an example, for a few roundings of 2^-8 in each of two layers.

    Sums in bfloat16 would be off by up to that themselves. Parts of the batch are of unequal sizes.
    """
    model = adapted(getattr(torch, frozen))
    alone = gradients_alone(model, DATA[:5], torch.bfloat16 if bf16 else torch.float32)
    norms = [total_norm(parts.values()) for parts in alone]
    norm = sorted(norms)[2]
    given = {"bf16": bf16, "activation_checkpointing": checkpointing, "max_steps": 1, "max_grad_norm": norm}
    made = trainer(model=model, arguments=PARTS | given)
    sums, types = sums_of_first_step(made)
    assert types == {torch.float32}
    assert {total.dtype for total in sums.values()} == {torch.float32}
    factors = [min(1.0, norm / own) for own in norms]
    changes = [
        total - sum(factor * parts[name] for factor, parts in zip(factors, alone, strict=True))
        for name, total in sums.items()
    ]
    assert total_norm(changes) <= 5 * norm * 2.0**-5
    assert total_norm(sums.values()) > norm


def test_no_clipped_gradient_of_16_bits_is_longer_than_its_norm(trainer):
    """Batches of one example, all of which are clipped: the lengths of their sums, before the noise."""
    plan = hs.Mechanism(sampler=hs.Deterministic(bins=60), noise_multiplier=1.0)
    norm = 1e-3
    given = {"per_device_train_batch_size": 1, "bf16": True, "activation_checkpointing": True, "max_grad_norm": norm}
    made = trainer(plan, model=adapted(torch.bfloat16), arguments=given)
    made.get_train_dataloader()
    lengths, add_noise = [], made.optimizer.add_noise

    def look():
        lengths.append(total_norm(p.summed_grad for p in made.optimizer.params))
        add_noise()

    made.optimizer.add_noise = look
    made.train()
    assert len(lengths) == 60
    assert max(lengths) <= norm
    assert min(lengths) >= norm * (1.0 - 2.0**-19)
    assert {"norms", "independence_tried"} <= set(made.record().checked)


def test_ghost_clipping_in_16_bits_is_refused(trainer):
    with pytest.raises(InvalidInputError, match="'bf16' training argument must be False with grad_sample_mode='ghost'"):
        trainer(arguments={"bf16": True}, grad_sample_mode="ghost")
    made = trainer(model=adapted(torch.bfloat16), grad_sample_mode="ghost")
    with pytest.raises(UnsupportedError, match=r"needs parameters in float32 or float64.*Got torch\.bfloat16 in"):
        made.train()


def test_a_second_pass_in_16_bits_would_be_longer_than_the_norm():
    """Why it is refused: the gradient of a loss times a factor is not the factor times the gradient, where it rounds.

    Some factor makes the clipped gradient longer than its norm, by more than float32 and room for it explain.
    """
    torch.manual_seed(0)
    first = torch.nn.Linear(16, 64, bias=False)
    layers = [torch.nn.Linear(64, 64, dtype=torch.bfloat16) for _ in range(4)]
    frozen = torch.nn.Sequential(*layers).requires_grad_(False)
    x = torch.randn(1, 16)
    loss = frozen(first(x).to(torch.bfloat16)).float().square().sum()
    (once,) = torch.autograd.grad(loss, first.weight, retain_graph=True)
    lengths = []
    for part in torch.linspace(0.5, 1.0, 41)[:-1]:
        (twice,) = torch.autograd.grad(loss * part, first.weight, retain_graph=True)
        lengths.append(total_norm([twice]) / (float(part) * total_norm([once])))
    assert max(lengths) > 1.0 + 2.0**-10


def test_layers_that_run_again_in_passes_of_their_own_are_refused(trainer):
    with pytest.raises(InvalidInputError, match="'activation_checkpointing_kwargs' training argument cannot be"):
        trainer(
            arguments={"activation_checkpointing": True, "activation_checkpointing_kwargs": {"use_reentrant": True}}
        )
    every = {"activation_checkpointing": True, "activation_checkpointing_kwargs": {"every_n_layers": 2}}
    made = trainer(FIXED, model=model_of(num_hidden_layers=2), arguments=every)
    made.train()
    assert made.engine.run.step == 12
