"""Ways in which a language-model loop loses its guarantee without a word: each is stopped, or left out and named."""

from functools import partial

import numpy as np
import pytest

import hockeystick as hs
from hockeystick.errors import InvalidInputError, UnsupportedError, ViolationError

pytest.importorskip("opacus", reason="needs torch and opacus")
pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("accelerate", reason="needs accelerate")
pytest.importorskip("peft", reason="needs peft")

import peft
import torch
import transformers
from huggingface_training import model_of, sentences
from torch.nn import functional
from transformers import DataCollatorWithFlattening
from transformers.integrations import neftune_post_forward_hook

from hockeystick.training.huggingface.arguments import checked_arguments
from hockeystick.training.huggingface.losses import next_tokens

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

DATA = sentences()


def mixed(made, message):
    """The training is refused before the first step, and no weight has changed."""
    before = [parameter.clone() for parameter in made.model.parameters()]
    with pytest.raises(UnsupportedError, match=message):
        made.train()
    assert made.engine.run.step == 0
    assert all(torch.equal(one, other) for one, other in zip(made.model.parameters(), before, strict=True))


def over_the_batch(outputs, labels):
    """Losses that are divided by the labelled tokens of the whole batch."""
    counted = labels["labels"][:, 1:] != -100
    return next_tokens(outputs, labels) * counted.sum(dim=1) / counted.sum() * len(counted)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_losses_that_count_the_tokens_of_the_batch_are_refused(mode, trainer):
    made = trainer(model=model_of(initializer_range=1.0), example_losses=over_the_batch, grad_sample_mode=mode)
    mixed(made, "their loss together is .* the loss or the collator")


class ByTokens(hs.huggingface.Trainer):
    """The loss of transformers itself, a mean over the tokens of the batch."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


def test_a_subclass_that_divides_by_the_tokens_of_the_batch_is_refused(trainer):
    made = trainer(model=model_of(initializer_range=1.0))
    made.__class__ = ByTokens
    mixed(made, "the derivative of their loss by the embeddings or inputs of one changes")


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_gradient_that_counts_the_tokens_of_the_batch_behind_a_loss_that_does_not_is_refused(mode, trainer):
    """The values of the losses are their own, and have no derivative by the other example."""

    def losses(outputs, labels):
        own, divided = next_tokens(outputs, labels), over_the_batch(outputs, labels)
        return own.detach() + divided - divided.detach()

    mixed(
        trainer(example_losses=losses, grad_sample_mode=mode),
        "a gradient changes by .* of its norm beside another example, most in",
    )


class Mixing(torch.nn.Module):
    """A layer without parameters that changes hidden states by those of the whole batch, or of the batch before."""

    def __init__(self, how):
        super().__init__()
        self.how, self.memory = how, torch.zeros(())
        if how == "batch_norm":
            self.norm = torch.nn.BatchNorm1d(8, affine=False)
        if how == "buffer":
            self.register_buffer("seen", torch.zeros(8))

    def forward(self, hidden):
        if self.how == "statistics":
            return (hidden - hidden.mean(dim=0, keepdim=True)) / (hidden.std(dim=0, keepdim=True, correction=0) + 0.1)
        if self.how == "cache":
            kept, self.memory = self.memory, hidden.detach().mean(dim=(0, 1))
            return hidden + kept
        if self.how == "buffer":
            self.seen += hidden.detach().mean(dim=(0, 1))
            return hidden
        return self.norm(hidden.flatten(0, 1)).view_as(hidden)


@pytest.mark.parametrize("how", ["statistics", "cache"])
def test_layers_that_mix_examples_are_named(how, trainer):
    """Statistics of the batch, and a cache that examples share."""
    model = model_of(attention_dropout=0.0)
    model.lm_head = torch.nn.Sequential(Mixing(how), model.lm_head)
    mixed(trainer(model=model), "the first layer that mixes them is 'lm_head.0' of type Mixing")


def test_layers_that_write_what_the_examples_are_are_refused(trainer):
    """A buffer is saved with the model."""
    model = model_of()
    model.lm_head = torch.nn.Sequential(Mixing("buffer"), model.lm_head)
    with pytest.raises(UnsupportedError, match="writes what the examples of a batch are to the buffer 'seen'"):
        trainer(model=model).train()


def test_batch_normalisation_is_refused(trainer):
    model = model_of()
    model.lm_head = torch.nn.Sequential(Mixing("batch_norm"), model.lm_head)
    with pytest.raises(
        UnsupportedError, match=r"'lm_head\.0\.norm' of type BatchNorm1d takes its statistics from whole"
    ):
        trainer(model=model, try_independence=False).train()


def experts():
    """A mixture of experts with adapters, whose balancing loss is over all tokens of a batch."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    more = {
        "num_key_value_heads": 2,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "initializer_range": 1.0,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 0,
    }
    config = transformers.MixtralConfig(vocab_size=16, output_router_logits=True, **sizes, **more)
    adapters = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    return peft.get_peft_model(transformers.MixtralForCausalLM(config), adapters)


def test_the_balancing_loss_of_experts_is_left_out_and_refused_where_it_is_put_in(trainer):
    made = trainer(model=experts())
    made.train()
    assert made.engine.run.step == 12
    mixed(
        trainer(
            model=experts(), example_losses=lambda outputs, labels: next_tokens(outputs, labels) + 5 * outputs.aux_loss
        ),
        "derivative of a loss by .* no layer mixes them, so the loss does",
    )


def test_packing_is_refused_by_the_collator_that_does_it(trainer):
    made = trainer(data_collator=DataCollatorWithFlattening(return_position_ids=False))
    with pytest.raises(
        InvalidInputError, match=r"must give a row for each example\. Got 1 for 2; to train on packed texts"
    ):
        made.train()


@pytest.mark.parametrize("name", ["neftune_noise_alpha", "label_smoothing_factor", "dataloader_drop_last"])
def test_arguments_that_mix_examples_or_drop_them_are_refused(name, tmp_path):
    given = transformers.TrainingArguments(str(tmp_path), use_cpu=True)
    setattr(given, name, 1)
    with pytest.raises(InvalidInputError, match=f"The '{name}' training argument cannot be"):
        checked_arguments(given)


def test_a_last_part_that_is_dropped_ends_the_run(trainer):
    class Drops(hs.huggingface.Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            whole = len(inputs["labels"]) // 2 * 2
            return super().training_step(model, {name: entry[:whole] for name, entry in inputs.items()})

    made = trainer(arguments={"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3})
    made.__class__ = Drops
    with pytest.raises(ViolationError, match="number_of_examples"):
        made.train()


def test_accumulation_does_not_count_tokens(trainer):
    """Parts of one, two and five examples are the same step."""
    weights = []
    for largest, parts in ((5, 1), (2, 3), (1, 5)):
        made = trainer(
            model=model_of(attention_dropout=0.0),
            arguments={"per_device_train_batch_size": largest, "gradient_accumulation_steps": parts, "max_steps": 2},
        )
        made.train()
        weights.append(torch.cat([p.detach().reshape(-1) for p in made.model.parameters()]).numpy())
    np.testing.assert_allclose(weights[1], weights[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(weights[2], weights[0], rtol=0, atol=1e-5)


def test_evaluation_on_the_training_data_is_refused(trainer):
    for evaluated in (DATA, {"same": DATA}, torch.utils.data.Subset(DATA, [0, 1])):
        with pytest.raises(InvalidInputError, match="'eval_dataset' argument must not be the training data"):
            trainer(data=DATA, eval_dataset=evaluated)


def padded(examples, side="right"):
    """Of one length, by zeros without labels."""
    longest = max(len(example["input_ids"]) for example in examples)

    def filled(example, name, value):
        width = longest - len(example[name])
        return functional.pad(example[name], (0, width) if side == "right" else (width, 0), value=value)

    fills = {"input_ids": 0, "labels": -100}
    return {name: torch.stack([filled(one, name, value) for one in examples]) for name, value in fills.items()}


SHORT = [{name: part[: 3 + at % 3] for name, part in example.items()} for at, example in enumerate(DATA)]
"""Of three lengths."""


def with_positions():
    """A model with absolute positions, and adapters."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 16, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 2, "initializer_range": 1.0}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    config = peft.LoraConfig(r=2, target_modules=["c_attn"], init_lora_weights=False, fan_in_fan_out=True)
    return peft.get_peft_model(model, config)


def test_positions_that_depend_on_the_longest_example_are_refused(trainer):
    """Padding on the left moves the tokens of a model with absolute positions; on the right it does nothing."""
    made = trainer(model=with_positions(), data=SHORT, data_collator=padded)
    made.train()
    assert made.engine.run.step == 12
    left = trainer(model=with_positions(), data=SHORT, data_collator=partial(padded, side="left"))
    mixed(left, "their loss together is")


def test_noise_on_embeddings_that_was_put_there_by_hand_is_refused(trainer):
    """Its size depends on the longest example of the batch."""
    model = model_of(initializer_range=1.0)
    embeddings = model.get_input_embeddings()
    embeddings.neftune_noise_alpha = 5.0
    embeddings.register_forward_hook(neftune_post_forward_hook)
    mixed(trainer(model=model, data=SHORT, data_collator=padded), "must not depend on the examples beside it")


def test_the_trial_leaves_nothing_and_the_record_says_that_it_was_made(trainer):
    """Weights, and dropout after it, are those of a training without it."""
    tried, untried = trainer(), trainer(try_independence=False)
    for made in (tried, untried):
        torch.manual_seed(0)
        made.train()
    for one, other in zip(tried.model.parameters(), untried.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert "independence_tried" in tried.record().checked
    assert "independence_tried" not in (*untried.record().checked, *untried.record().asserted)
